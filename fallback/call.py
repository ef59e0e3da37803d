"""One call on its way through a ladder: what was asked, until when, and what was tried.

Knows nothing of HTTP. A call belongs to one event loop. Units: monotonic seconds,
but for stamps that end in ``_at_ms``.
"""

import json
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from failsoft.call_records import AttemptRecord, Recorder
from failsoft.errors import InvalidCallError
from failsoft.fallback.cache_salt import SALT_FIELD
from failsoft.fallback.deadline import Deadline
from failsoft.fallback.failure import Failure
from failsoft.fallback.surroundings import Surroundings

CacheMode = Literal["on", "off", "refresh"]
Kind = Literal["chat", "completion"]

SET_FIELDS = frozenset({"stream", "stream_options", "model", SALT_FIELD})
"""Body fields that the ladder sets anew for each endpoint."""
MAX_DEADLINE_S = 86_400.0
MAX_IDEMPOTENCY_KEY_CHARS = 255
MAX_NESTING = 100
"""Levels of a request; what hashes it recurses, and nobody means as many."""
MAX_CALL_ID_CHARS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """What one caller asks.

    Raises:
        InvalidCallError: An argument is out of range; nothing was asked.
    """

    kind: Kind
    body: Mapping[str, Any] = field(repr=False)
    """The OpenAI-shaped request; ``model`` and ``stream`` are set for each endpoint."""
    ladder: str
    deadline_s: float | None = None
    """None takes the ladder's."""
    tenant: str = ""
    """Set by a server, never taken from a body; keeps replies and keys apart."""
    idempotency_key: str | None = field(default=None, repr=False)
    cache: CacheMode = "on"
    """``off`` neither reads nor keeps a reply; ``refresh`` asks the models first, wherever the
    cache stands, and keeps what they say."""
    fallback: bool = True
    """False asks the first model rung alone."""
    is_stream: bool = False
    call_id: str | None = None
    """For a server that names its calls before it asks; None makes one."""
    body_json: str = field(init=False, repr=False)
    """*body* as it goes to every endpoint, but for `SET_FIELDS`; never empty."""

    def __post_init__(self) -> None:
        deadline_s: object = self.deadline_s
        if deadline_s is not None and not (
            isinstance(deadline_s, int | float) and 0 < deadline_s <= MAX_DEADLINE_S
        ):
            raise InvalidCallError(
                f"deadline_s is out of range: give seconds in 0..{MAX_DEADLINE_S:g}",
                param="deadline_s",
            )
        if self.cache not in ("on", "off", "refresh"):
            raise InvalidCallError(
                f"cache = {self.cache!r}: give on, off or refresh", param="cache"
            )
        key = self.idempotency_key
        if key is not None and not 1 <= len(key) <= MAX_IDEMPOTENCY_KEY_CHARS:
            raise InvalidCallError(
                f"an idempotency key of {len(key)} characters: give 1..{MAX_IDEMPOTENCY_KEY_CHARS}",
                param="idempotency_key",
            )
        if self.call_id is not None and not 1 <= len(self.call_id) <= MAX_CALL_ID_CHARS:
            raise InvalidCallError(
                f"a call id of {len(self.call_id)} characters: give 1..{MAX_CALL_ID_CHARS}",
                param="call_id",
            )
        self._check_body()

    def _check_body(self) -> None:
        field = "messages" if self.kind == "chat" else "prompt"
        if not self.body.get(field):
            raise InvalidCallError(f"{field} is missing or empty: give at least one", param=field)
        if self.kind == "chat" and not _are_messages(self.body["messages"]):
            raise InvalidCallError("messages must be a list of objects", param="messages")
        object.__setattr__(self, "body_json", self._checked_json())
        n = self.body.get("n")
        if n is not None and (not isinstance(n, int) or isinstance(n, bool) or n < 1):
            raise InvalidCallError("n is out of range: give an integer of at least 1", param="n")

    def _checked_json(self) -> str:
        sent = {k: v for k, v in self.body.items() if k not in SET_FIELDS}
        if SALT_FIELD in self.body:
            _json_of({SALT_FIELD: self.body[SALT_FIELD]})  # it is not sent, but hashed
        return _json_of(sent)

    @property
    def num_choices(self) -> int:
        """Choices the reply must have."""
        return (self.body.get("n") or 1) * self._num_prompts

    @property
    def _num_prompts(self) -> int:
        prompt = self.body.get("prompt") if self.kind == "completion" else None
        if isinstance(prompt, str) or not isinstance(prompt, Sequence):
            return 1
        return 1 if isinstance(prompt[0], int) else len(prompt)


_ids = random.Random()  # noqa: S311 it names calls, it guards nothing
os.register_at_fork(after_in_child=_ids.seed)


def _are_messages(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(message, Mapping) for message in value)


def _json_of(sent: object) -> str:
    """Return the JSON of *sent*.

    Raises:
        InvalidCallError: It is none, or nested deeper than `MAX_NESTING`.
    """
    try:
        text = json.dumps(sent, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise InvalidCallError(f"the request is no JSON: {exc}", param="body") from exc
    except RecursionError:
        text = "{" * (MAX_NESTING + 1)
    # Few requests have so many brackets at all, so few are looked at any further.
    if text.count("{") + text.count("[") > MAX_NESTING and _is_deep(sent):
        raise InvalidCallError(
            f"the request is nested too deeply: give at most {MAX_NESTING} levels",
            param="body",
        )
    return text


def _is_deep(value: object) -> bool:
    """Return whether *value* has more than `MAX_NESTING` levels; without recursion itself."""
    level = [value]
    for _ in range(MAX_NESTING):
        level = [inner for outer in level for inner in _containers_in(outer)]
        if not level:
            return False
    return True


def _containers_in(value: object) -> Iterable[object]:
    inside = value.values() if isinstance(value, Mapping) else value
    assert isinstance(inside, Iterable)
    return [inner for inner in inside if isinstance(inner, Mapping | list | tuple)]


def new_call_id(at_ms: int) -> str:
    """Return an id no other call has: the time in milliseconds, then 80 random bits.

    The bits are drawn from a generator of our own that no program seeds by the way, and
    that a forked child seeds anew: asking the system for each costs tens of microseconds.

    Laid out as UUIDv7 (RFC 9562, 5.7), without its version bits: ids made together share
    the head, so the store's index grows at one end instead of everywhere.
    """
    return f"call_{at_ms:012x}{_ids.getrandbits(80):020x}"


class Call:
    """One call under way; holds its ledger.

    Args:
        request: What was asked.
        ladder_deadline_s: The ladder's own deadline in seconds, for a caller who set none.
        recorder: Takes each attempt as it ends.
        surroundings: Clocks.
    """

    __slots__ = (
        "asked",
        "attempts",
        "call_id",
        "causes",
        "deadline",
        "first_content_s",
        "num_sent",
        "recorder",
        "request",
        "started_at_ms",
        "started_s",
        "surroundings",
    )

    def __init__(
        self,
        request: CallRequest,
        *,
        ladder_deadline_s: float,
        recorder: Recorder,
        surroundings: Surroundings,
    ) -> None:
        self.request = request
        self.surroundings = surroundings
        self.recorder = recorder
        self.started_s = surroundings.clock()
        self.started_at_ms = surroundings.wall_ms()
        self.call_id = request.call_id or new_call_id(self.started_at_ms)
        deadline_s = request.deadline_s if request.deadline_s is not None else ladder_deadline_s
        self.deadline = Deadline(at_s=self.started_s + deadline_s, clock=surroundings.clock)
        self.attempts: list[AttemptRecord] = []
        self.causes: list[tuple[str, Failure]] = []
        """Why each rung failed, for the last error."""
        self.num_sent = 0
        self.asked: set[int] = set()
        """Rungs that an attempt was made on."""
        self.first_content_s: float | None = None

    @property
    def next_attempt(self) -> int:
        """Index of the next attempt; taken by `record`."""
        return len(self.attempts)

    def record(self, record: AttemptRecord) -> None:
        """Enter *record* into the ledger."""
        self.attempts.append(record)
        self.recorder.record_attempt(record)

    def pass_over(self, *, rung: int, endpoint: str, failure: Failure) -> None:
        """Enter a rung that was not asked."""
        self.record(
            AttemptRecord(
                call_id=self.call_id,
                attempt=self.next_attempt,
                rung=rung,
                endpoint=endpoint,
                outcome=failure.outcome,
                started_at_ms=self.surroundings.wall_ms(),
                was_sent=False,
                total_s=0.0,
                error_message=str(failure),
            )
        )

    def on_content(self) -> None:
        """The caller's first content is here; only the first word counts."""
        if self.first_content_s is None:
            self.first_content_s = self.surroundings.clock()

    @property
    def cost(self) -> float | None:
        """Sum over attempts that used tokens; None when one of them has no cost."""
        total = 0.0
        for attempt in self.attempts:
            if attempt.cost is not None:
                total += attempt.cost
            elif attempt.num_output_tokens is not None or attempt.num_prompt_tokens is not None:
                return None
        return total
