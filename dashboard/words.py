"""How times, shares and states are said, on the page and in the terminal alike.

Knows nothing of HTML or colours. Stamps are UTC epoch milliseconds.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from failsoft.dashboard.standing import (
    Answers,
    FileDifference,
    MoveUnderWay,
    PinnedSlot,
    Queue,
    Rung,
    Standing,
    Unknown,
    UnknownWindow,
    Verdict,
    is_model,
)
from failsoft.fingerprint_status import FingerprintStanding
from failsoft.fingerprint_status import Verdict as Weights
from failsoft.front_status import LastError
from failsoft.run_state import ChildState

UNKNOWN = "unknown"
NONE = "-"
"""Nothing to show: no calls, no version, no exit. Never stands for a zero."""

_HEADLINES = {
    Answers.YES: "Answering",
    Answers.DEGRADED: "Degraded",
    Answers.NO: "Not answering",
    Answers.UNKNOWN: "Unknown",
}
_WEIGHTS: Mapping[Weights, str] = {
    "same": "as they were",
    "new": "noted for the first time",
    "changed": "CHANGED",
    "unclear": "nobody can tell",
}
_DIGEST_CHARS = 12
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400


def span(seconds: float) -> str:
    """Return a duration in at most two units.

    >>> [span(s) for s in (0.4, 59, 60, 3_599, 7_500, 90_000, 864_000)]
    ['0 s', '59 s', '1 min', '59 min', '2 h 05 min', '1 d 1 h', '10 d']
    """
    whole = max(0, int(seconds))
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02d} min"
    days, hours = whole // _DAY_S, whole % _DAY_S // _HOUR_S
    return f"{days} d {hours} h" if hours and days < 10 else f"{days} d"


def age(at_ms: int | None, *, now_ms: int) -> str:
    """Return how long ago *at_ms* was."""
    return NONE if at_ms is None else span((now_ms - at_ms) / 1000)


def clock(at_ms: int) -> str:
    """Return a stamp as ISO 8601 in UTC.

    >>> clock(1_800_000_000_000)
    '2027-01-15 08:00:00 UTC'
    """
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def percent(share: float | None) -> str:
    """Return a share; what is not all is never said to be 100 %, what is something never 0 %.

    >>> [percent(s) for s in (None, 0.0, 0.0001, 0.1234, 0.9, 0.9999, 1.0)]
    ['-', '0 %', '<0.1 %', '12.3 %', '90 %', '>99.9 %', '100 %']
    """
    if share is None:
        return NONE
    if 0 < share < 0.001:
        return "<0.1 %"
    if 0.999 < share < 1:
        return ">99.9 %"
    return f"{share * 100:.1f}".removesuffix(".0") + " %"


def window(seconds: int) -> str:
    """Return a window's name.

    >>> [window(s) for s in (300, 3_600, 86_400)]
    ['5 min', '1 h', '24 h']
    """
    return f"{seconds // _HOUR_S} h" if seconds >= _HOUR_S else f"{seconds // _MINUTE_S} min"


def digest(text: str | None) -> str:
    """Return a digest's first digits."""
    return NONE if text is None else text[:_DIGEST_CHARS]


def version(name: str | None, digest_text: str | None) -> str:
    """Return a version by its name and the first digits of its digest."""
    known = [part for part in (name, digest_text and digest(digest_text)) if part]
    return " ".join(known) or NONE


def file_name(path: str) -> str:
    """Return a path's last part: where it lies matters to few who read a page.

    >>> file_name("/srv/app/failsoft.toml")
    'failsoft.toml'
    """
    return path.rpartition("/")[2] or path


def headline(verdict: Verdict) -> str:
    """Return the verdict in a word or two."""
    return _HEADLINES[verdict.answers]


def verdict_line(verdict: Verdict, *, now_ms: int) -> str:
    """Return who answers, in which version, since when: one line."""
    parts = []
    if verdict.rung is not None:
        verb = "" if verdict.answers is Answers.YES else "answers "
        parts.append(f"{verb}from {verdict.rung}")
        if verdict.version_name or verdict.version_digest:
            parts.append(f"({version(verdict.version_name, verdict.version_digest)})")
    if verdict.since_ms is not None:
        ago = age(verdict.since_ms, now_ms=now_ms)
        parts.append(f"since {clock(verdict.since_ms)}, {ago} ago")
    return " ".join(parts)


def rung_state(rung: Rung) -> str:
    """Return whether a rung serves, and if not, why."""
    if rung.can_serve:
        return "can serve"
    if rung.can_serve is None:
        return f"{UNKNOWN}: {rung.why_not}" if rung.why_not else UNKNOWN
    return f"cannot serve: {rung.why_not}" if rung.why_not else "cannot serve"


def breaker(rung: Rung) -> str:
    """Return a breaker's state, and when it lets the next probe out."""
    if rung.breaker is None:
        return UNKNOWN if rung.can_serve is None and is_model(rung) else NONE
    state = rung.breaker.replace("_", "-")
    if rung.retry_in_s is None:
        return state
    return f"{state}, probe in {span(rung.retry_in_s)}"


def queue(found: Queue | Unknown) -> str:
    """Return what an engine has to do."""
    if isinstance(found, Unknown):
        return f"{UNKNOWN}: {found.reason}"
    return f"{found.num_running} running, {found.num_waiting} waiting"


def rung_queue(rung: Rung, found: Queue | Unknown) -> str:
    """Return what *rung*'s engine has to do; a reason that its state gives already is not said."""
    if isinstance(found, Unknown) and rung.why_not and found.reason in rung.why_not:
        return UNKNOWN
    return queue(found)


def last_error(error: LastError) -> str:
    """Return what went wrong; a message that names its kind is enough by itself."""
    if error.message.startswith(error.outcome):
        return error.message
    return f"{error.outcome} {error.message}".rstrip()


def phase(child: ChildState) -> str:
    """Return what a process does."""
    return child.phase.replace("_", " ")


def kind(text: str) -> str:
    """Return an event's kind.

    >>> kind("engine.gave_up")
    'engine gave up'
    """
    return text.replace(".", " ").replace("_", " ")


def counts(found: dict[str, int]) -> str:
    """Return counts by kind.

    >>> counts({"call": 2, "attempt": 3}), counts({})
    ('call 2, attempt 3', 'none')
    """
    return ", ".join(f"{kind} {num:,}" for kind, num in found.items()) or "none"


def move(found: MoveUnderWay, *, now_ms: int) -> str:
    """Return a move under way: where to, how far, since when, by whom and why."""
    state_age = age(found.state_since_ms, now_ms=now_ms)
    asked_age = age(found.asked_at_ms, now_ms=now_ms)
    wish = "" if found.abort_by is None else f"; {found.abort_by} wants it taken back"
    target = version(found.to_name, found.to_digest)
    return (
        f"{found.kind} to {target}, {found.state} for {state_age}, "
        f"asked {asked_age} ago by {found.who}: {found.why}{wish}"
    )


def pinned_by(pin: PinnedSlot) -> str:
    """Return who decided what a slot runs, and why."""
    if pin.by is None:
        return "a move" if pin.is_moved else "the settings file"
    return f"{pin.by.kind} by {pin.by.who}: {pin.by.why}"


def file_cell(pin: PinnedSlot) -> str:
    """Return what the settings file says of a moved slot, as a cell."""
    found = pin.differs_from_file
    if found is None:
        return NONE
    if isinstance(found, Unknown):
        return f"{UNKNOWN}: {found.reason}"
    return "means another by it" if found.says == pin.version_name else f"says {found.says}"


def move_cell(pin: PinnedSlot) -> str:
    """Return how far a slot's move is, as a cell."""
    return NONE if pin.move is None else f"{pin.move.state} {pin.move.to_name}"


def weights(found: FingerprintStanding) -> str:
    """Return what a fingerprint says of an endpoint's weights."""
    return UNKNOWN if found.verdict is None else _WEIGHTS[found.verdict]


def _weights_warnings(standing: Standing) -> list[str]:
    said = []
    for found in standing.fingerprints:
        if found.verdict not in ("changed", "unclear"):
            continue
        what = (
            f"{found.endpoint} answers as other weights would"
            if found.verdict == "changed"
            else f"nobody can tell whether {found.endpoint} has the weights it had"
        )
        span_words = age(found.since_ms, now_ms=standing.at_ms)
        said.append(f"{what}, for {span_words}: {found.why}")
    return said


def warnings(standing: Standing) -> list[str]:
    """Return what an operator should hear of beside the verdict, gravest first."""
    said = []
    supervisor, front = standing.supervisor, standing.front
    if not isinstance(supervisor, Unknown):
        said += [
            f"{child.name} crashed again and again and is not started any more"
            + (f": {child.last_exit}" if child.last_exit else "")
            for child in supervisor.children
            if child.phase == "gave_up"
        ]
    if not isinstance(standing.pins, Unknown):
        said += [
            f"pin {pin.slot} is being moved: {move(pin.move, now_ms=standing.at_ms)}"
            for pin in standing.pins
            if pin.move is not None
        ]
        said += [
            pin.differs_from_file.words
            for pin in standing.pins
            if isinstance(pin.differs_from_file, FileDifference)
        ]
    reloads = [part.last_reload for part in (supervisor, front) if not isinstance(part, Unknown)]
    refused = next((reload for reload in reloads if reload and reload.error), None)
    if refused is not None:
        ago = age(refused.at_ms, now_ms=standing.at_ms)
        said.append(f"the settings were refused {ago} ago, the old ones hold: {refused.error}")
    said += _weights_warnings(standing)
    if not isinstance(front, Unknown) and front.store_trouble is not None:
        said.append(f"the front answers, but its store takes no records: {front.store_trouble}")
    if not isinstance(front, Unknown) and front.dropped_records:
        said.append(f"the front could not keep records: {counts(dict(front.dropped_records))}")
    if not isinstance(standing.dropped_24h, Unknown) and any(standing.dropped_24h.values()):
        said.append(f"records dropped in 24 h: {counts(dict(standing.dropped_24h))}")
    said += [
        f"the calls of {window(part.window_s)} could not be counted: {part.reason}"
        for ladder in standing.ladders
        for part in (() if isinstance(ladder.traffic, Unknown) else ladder.traffic.windows)
        if isinstance(part, UnknownWindow)
    ]
    return said
