"""Who shares a batch: as many as there are slots, and as memory has room for at its end."""

import pytest

from failsoft.engine.bench.schedule import SCHEDULES, Room, batches, num_kept, parse_modes
from failsoft.engine.bench.workload import Item
from failsoft.errors import ConfigError


def make_items(*lengths: tuple[int, int]) -> list[Item]:
    return [Item(prompt_ids=(1,) * prompt, output_len=output) for prompt, output in lengths]


def make_room(**changes: int) -> Room:
    fields = {
        "max_running": 3,
        "num_blocks": 1000,
        "block_size": 4,
        "max_step_tokens": 64,
        "max_model_len": 1000,
    }
    return Room(**{**fields, **changes})


@pytest.mark.parametrize(
    ("mode", "sizes"),
    [
        ("sequential", [1] * 7),
        ("static", [3, 3, 1]),
        ("static-early", [3, 3, 1]),
        ("continuous", [7]),
    ],
)
def test_batches_are_in_order_and_as_large_as_the_slots(mode: str, sizes: list[int]) -> None:
    """Continuous batching is one crowd that the engine admits by itself."""
    found = batches(SCHEDULES[mode], make_items(*[(4, 4)] * 7), make_room())

    assert [len(batch) for batch in found] == sizes
    assert [index for batch in found for index in batch] == list(range(7))


def test_a_batch_that_keeps_its_rows_needs_room_for_the_slowest() -> None:
    """Dropped rows need room for themselves only; one request always gets a batch."""
    items = make_items((4, 4), (4, 4), (4, 100), (4, 4))
    room = make_room(num_blocks=40)

    kept = batches(SCHEDULES["static"], items, room)
    dropped = batches(SCHEDULES["static-early"], items, room)

    assert kept == [[0, 1], [2], [3]]
    assert dropped == [[0, 1, 2], [3]]


def test_kept_rows_outlast_the_slowest_however_late_it_was_prefilled() -> None:
    """Else a slot would empty before the batch is over."""
    items = make_items((60, 10), (60, 5), (60, 2))

    assert num_kept(items, make_room(max_step_tokens=20)) >= 10 + 180 // 20


@pytest.mark.parametrize("text", ["", ",", "static,nope", "Static"])
def test_an_unknown_mode_is_refused(text: str) -> None:
    """The line lists what there is."""
    with pytest.raises(ConfigError, match="sequential,static,static-early,continuous"):
        parse_modes(text)
