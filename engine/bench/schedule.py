"""The schedules that are compared, as who may join whom and when a reply leaves.

All of them drive the same engine; continuous batching is what it does by itself, and the
others only hold requests back (or, for static batches, keep rows in the forward whose reply
is complete). Knows nothing of torch or time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from failsoft.engine.bench.workload import Item
from failsoft.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When requests enter the forward and when they and their replies leave."""

    name: str
    has_batches: bool = True
    """Whether nobody joins before everybody of the batch before has left."""
    is_alone: bool = False
    """Whether a batch is one request."""
    keeps_rows: bool = False
    """Whether finished rows stay in every forward until the batch's slowest ends, and the
    replies leave with it."""


SCHEDULES = {
    schedule.name: schedule
    for schedule in (
        Schedule(name="sequential", is_alone=True),
        Schedule(name="static", keeps_rows=True),
        Schedule(name="static-early"),
        Schedule(name="continuous", has_batches=False),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a batch must fit into."""

    max_running: int
    num_blocks: int
    block_size: int
    max_step_tokens: int
    max_model_len: int


def parse_modes(text: str, *, allowed: Sequence[str] = tuple(SCHEDULES)) -> list[str]:
    """Return the modes of a comma-separated list, in its order, each once.

    Raises:
        ConfigError: One of them is unknown, or there is none.

    >>> parse_modes("static, continuous,static")
    ['static', 'continuous']
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names or [text]:
        if name not in allowed:
            raise ConfigError(key="--mode", value=name, allowed=f"some of {','.join(allowed)}")
    return list(dict.fromkeys(names))


def batches(schedule: Schedule, items: Sequence[Item], room: Room) -> list[list[int]]:
    """Return the indexes of *items* in batches, in order of arrival.

    A batch that does not grow and shrink must have room for all that it will ever hold, so
    it is as large as *room* has slots and KV blocks for; one request always fits.
    """
    if not schedule.has_batches:
        return [list(range(len(items)))]
    size = 1 if schedule.is_alone else room.max_running
    found: list[list[int]] = [[]]
    for index in range(len(items)):
        batch = [*found[-1], index]
        if len(batch) > size or (
            len(batch) > 1
            and _num_blocks(schedule, [items[i] for i in batch], room) > room.num_blocks
        ):
            found.append([index])
        else:
            found[-1] = batch
    return found


def num_kept(batch: Sequence[Item], room: Room) -> int:
    """Return the tokens that a static batch's rows may each decode before its slowest ends.

    Rows that were prefilled first decode a few steps longer than the slowest, at most as many
    as the batch's prompts take.
    """
    num_prompt = sum(len(item.prompt_ids) for item in batch)
    num_prefill_steps = num_prompt // room.max_step_tokens + len(batch) + 1
    return max(item.output_len for item in batch) + num_prefill_steps


def _num_blocks(schedule: Schedule, batch: Sequence[Item], room: Room) -> int:
    """Return the KV blocks that *batch* holds at its end; each row is granted one to spare."""
    kept = num_kept(batch, room) if schedule.keeps_rows else 0
    total = 0
    for item in batch:
        num_tokens = len(item.prompt_ids) + max(item.output_len, kept)
        total += -(-min(num_tokens, room.max_model_len) // room.block_size) + 1
    return total
