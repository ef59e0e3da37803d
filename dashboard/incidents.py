"""Events as an operator reads them: told in words, repeats in a row drawn together.

Knows nothing of where they come from. What is in them is text like any other: whoever
shows it escapes it.
"""

import json
from collections.abc import Iterable

from failsoft.call_records import EventRecord
from failsoft.dashboard.standing import Incident

NUM_SHOWN = 10

ABLE_KINDS = frozenset({"breaker.closed", "engine.restarted"})
"""Events after which their subject may serve again."""
UNABLE_KINDS = frozenset(
    {"breaker.open", "breaker.opened", "engine.died", "engine.gave_up", "engine.hung"}
)
"""Events after which their subject does not serve."""
GOOD_KINDS = ABLE_KINDS | {
    "pin.confirmed",
    "settings.reloaded",
    "store.recovered",
}
"""Good news, which is shown so."""

_NO_INCIDENT = frozenset({"breaker.half_open", "pin.asked", "pin.switched"})
"""A probe goes out: while an engine is down there is one every few seconds. A move's steps: a
warning tells of it while it is under way, its end afterwards."""
_SPEAK_FOR_THEMSELVES = frozenset({"error", "exit", "reason", "why"})
_MAX_DETAIL_CHARS = 300


def incidents_of(events: Iterable[EventRecord], *, limit: int = NUM_SHOWN) -> tuple[Incident, ...]:
    """Return the newest incidents of *events* (newest first), at most *limit*.

    The same kind of thing on the same subject several times in a row is one incident
    with a number; the words are the last one's. Each move of a pin stands by itself.
    """
    found: list[Incident] = []
    for event in events:
        if event.kind in _NO_INCIDENT:
            continue
        last = found[-1] if found and not _is_move(event) else None
        if last is not None and (last.kind, last.subject) == (event.kind, event.subject):
            found[-1] = _with_earlier(last, event)
        elif len(found) == limit:
            break
        else:
            found.append(_one(event))
    return tuple(found)


def _one(event: EventRecord) -> Incident:
    return Incident(
        kind=event.kind,
        subject=event.subject,
        at_ms=event.at_ms,
        first_at_ms=event.at_ms,
        num=1,
        detail=_detail_words(event),
    )


def _with_earlier(incident: Incident, event: EventRecord) -> Incident:
    return Incident(
        kind=incident.kind,
        subject=incident.subject,
        at_ms=incident.at_ms,
        first_at_ms=event.at_ms,
        num=incident.num + 1,
        detail=incident.detail,
    )


def _is_move(event: EventRecord) -> bool:
    return event.kind.startswith("pin.")


def _detail_words(event: EventRecord) -> str:
    return (move_words if _is_move(event) else detail_words)(event.detail_json)


def move_words(detail_json: str) -> str:
    """Return a pin's move as one line: who, where to, what for, and why it came to nothing.

    >>> move_words('{"move": "01", "who": "ann", "how": "set", "left": "v1", "to": "v2", '
    ...            '"why": "try it", "was_in": "smoking", "reason": "smoking: no text"}')
    'set by ann, v1 -> v2: try it; smoking: no text'
    >>> move_words('{"who": "ann", "how": "set", "to": "v2", "unproven": "true"}')
    'set by ann, nothing -> v2; taken unproven'
    """
    try:
        detail = json.loads(detail_json)
        path = f"{detail.get('left') or 'nothing'} -> {detail['to']}"
        said = f"{detail['how']} by {detail['who']}, {path}"
    except (ValueError, AttributeError, KeyError, TypeError):
        return detail_words(detail_json)
    if detail.get("why"):
        said += f": {detail['why']}"
    if detail.get("unproven") == "true":
        said += "; taken unproven"
    if detail.get("reason"):
        said += f"; {detail['reason']}"
    return _one_line(said)


def detail_words(detail_json: str) -> str:
    """Return an event's detail as one line; the whole text when it is no JSON object.

    >>> detail_words('{"ladder": "chat", "why": "stuck", "num": {"call": 2}, "error": null}')
    'ladder chat, stuck, num call 2'
    >>> detail_words('{"exit": "code 1", "restart_in_s": 1.2}')
    'code 1, restart in 1.2 s'
    """
    try:
        detail = json.loads(detail_json)
    except ValueError:
        detail = detail_json
    return _one_line(_words(detail))


def _one_line(said: str) -> str:
    return " ".join(said.split())[:_MAX_DETAIL_CHARS]


def _labelled(key: str, words: str) -> str:
    if key in _SPEAK_FOR_THEMSELVES:
        return words
    name = key.removesuffix("_s").replace("_", " ")
    return f"{name} {words} s" if key.endswith("_s") else f"{name} {words}"


def _words(value: object) -> str:
    if isinstance(value, dict):
        kept = {key: _words(item) for key, item in value.items() if item not in (None, "", {}, [])}
        return ", ".join(_labelled(key, words) for key, words in kept.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return str(value)
