"""Records into rows and back; the only place that knows both.

Rows are plain tuples for one prepared statement: at 10,000 rows a second the
cost of building a statement for each would be most of the writer's time.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from itertools import count
from operator import attrgetter, itemgetter
from typing import Any, Literal, NamedTuple, get_args
from unicodedata import category
from uuid import uuid4

from failsoft.call_records import (
    AttemptOutcome,
    AttemptRecord,
    CallOutcome,
    CallRecord,
    CallText,
    EventRecord,
)
from failsoft.reply_records import CachedReply, ServedVersion

MAX_TEXT = 500
"""Characters kept of a name or message that came from outside."""

_JOINERS = "\u200c\u200d"
"""They have no width, and words of some languages, and emoji, are wrong without them."""

Row = tuple[Any, ...]
ToRow = Callable[[Any], Row]


RecordKind = Literal["call", "attempt", "event", "text", "reply", "served version"]
"""What the writer can be handed. Plain strings: Python's garbage collector passes them by, and
with them a queued row that holds nothing else (ADR 17)."""


class Insert(NamedTuple):
    """How records of one kind reach their table."""

    table: str
    columns: tuple[str, ...]
    to_row: ToRow
    conflict: str
    """What happens to a second row with the same key."""
    stamp: str | None = None
    """The first column is the key, and the row with the newest *stamp* is kept; None keeps the
    first one."""

    def statement(self, num_rows: int, *, is_numbered: bool) -> str:
        """Return the SQL for *num_rows*, its parameters ``$1`` and on or all ``?``."""
        numbers = count(1)
        rows = [
            [f"${next(numbers)}" if is_numbered else "?" for _ in self.columns]
            for _ in range(num_rows)
        ]
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        names = ", ".join(self.columns)
        return f"INSERT INTO {self.table} ({names}) VALUES {values} {self.conflict}"  # noqa: S608


def _storable(text: str) -> str:
    """Return *text* without what UTF-8 or PostgreSQL cannot hold: lone surrogates, NUL."""
    if "\0" not in text and (text.isascii() or text.isprintable()):
        return text
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def short(value: Any) -> Any:
    """Return *value* fit to store; PostgreSQL cannot index a text of 3,000 bytes."""
    return _storable(value[:MAX_TEXT]) if type(value) is str else value


def one_line(text: str, *, max_chars: int = MAX_TEXT) -> str:
    r"""Return *text* fit to store and to stand in a line on a terminal, in a log and on a page.

    Whoever writes a reason must not forge a line below it, colour it, or turn its letters
    around: line ends and control characters become a space, marks of direction go.

    >>> one_line("it is\x1b[2J\nconfirmed")
    'it is [2J confirmed'
    """
    shown = "".join(map(_shown, text[: 4 * max_chars]))  # what goes makes room
    return _storable(" ".join(shown.split())[:max_chars])


def _shown(char: str) -> str:
    kind = category(char)
    if kind in ("Cc", "Zl", "Zp"):
        return " "
    return "" if kind == "Cf" and char not in _JOINERS else char


def _plain(cls: type) -> tuple[tuple[str, ...], ToRow]:
    """Return a record's columns, and what makes a row of them in their order."""
    kinds = {item.name: item.type for item in fields(cls)}
    names = tuple(kinds)
    read = attrgetter(*[f"{name}.value" if name == "outcome" else name for name in names])
    # One look at all texts together: cleaning each costs four times as much as reading.
    texts = itemgetter(
        *[i for i, kind in enumerate(kinds.values()) if kind is str or str in get_args(kind)]
    )

    def to_row(record: Any) -> Row:
        row: Row = read(record)
        together = "".join(filter(None, texts(row)))
        if len(together) <= MAX_TEXT and together.isascii() and "\0" not in together:
            return row
        return tuple([short(value) for value in row])

    return names, to_row


def _event_row(record: EventRecord) -> Row:
    detail = _storable(record.detail_json)
    return (uuid4().hex, short(record.kind), record.at_ms, short(record.subject), detail)


def _text_row(record: CallText) -> Row:
    reply = None if record.reply_json is None else _storable(record.reply_json)
    request = _storable(record.request_json)
    return (short(record.call_id), short(record.tenant), record.at_ms, request, reply)


def reply_bytes(record: CachedReply) -> int:
    """Return how many bytes of text *record* keeps."""
    return len(record.reply_json.encode("utf-8", "replace"))


def _reply_row(record: CachedReply) -> Row:
    return (
        record.key,
        short(record.tenant),
        short(record.version_digest),
        short(record.ladder),
        record.created_at_ms,
        record.created_at_ms,
        reply_bytes(record),
        record.finish_reason,
        _storable(record.reply_json),
    )


REPLY_COLUMNS = (
    "key",
    "tenant",
    "version_digest",
    "ladder",
    "created_at_ms",
    "used_at_ms",
    "num_bytes",
    "finish_reason",
    "reply_json",
)


def _newest_wins(table: str, columns: tuple[str, ...], to_row: ToRow, *, stamp: str) -> Insert:
    sets = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    conflict = f"ON CONFLICT ({columns[0]}) DO UPDATE SET {sets}"
    conflict += f" WHERE excluded.{stamp} >= {table}.{stamp}"
    return Insert(table, columns, to_row, conflict, stamp)


_FIRST_WINS = "ON CONFLICT DO NOTHING"

INSERTS: Mapping[RecordKind, Insert] = {
    "call": Insert("calls", *_plain(CallRecord), _FIRST_WINS),
    "attempt": Insert("attempts", *_plain(AttemptRecord), _FIRST_WINS),
    "event": Insert(
        "events", ("event_id", "kind", "at_ms", "subject", "detail_json"), _event_row, _FIRST_WINS
    ),
    "text": Insert(
        "texts",
        ("call_id", "tenant", "at_ms", "request_json", "reply_json"),
        _text_row,
        _FIRST_WINS,
    ),
    "reply": _newest_wins("replies", REPLY_COLUMNS, _reply_row, stamp="created_at_ms"),
    "served version": _newest_wins("served", *_plain(ServedVersion), stamp="at_ms"),
}


def to_call(row: Mapping[str, Any]) -> CallRecord:
    """Return the call of one row of ``calls``."""
    return CallRecord(**{**row, "outcome": CallOutcome(row["outcome"])})


def to_attempt(row: Mapping[str, Any]) -> AttemptRecord:
    """Return the attempt of one row of ``attempts``."""
    return AttemptRecord(**{**row, "outcome": AttemptOutcome(row["outcome"])})


def to_event(row: Mapping[str, Any]) -> EventRecord:
    """Return the event of one row of ``events``."""
    return EventRecord(**{key: value for key, value in row.items() if key != "event_id"})


def to_text(row: Mapping[str, Any]) -> CallText:
    """Return the words of one row of ``texts``."""
    return CallText(**row)


def to_reply(row: Mapping[str, Any]) -> CachedReply:
    """Return the reply of one row of ``replies``."""
    names = (item.name for item in fields(CachedReply))
    return CachedReply(**{name: row[name] for name in names})
