"""Notices that an endpoint elsewhere reports another model or fingerprint: ``version.drift``.

An engine of ours says which version it runs, and a move of its pin is no drift: only replies
without a version digest count. The writer shows each attempt here as it is handed over: a look
into a small memory. What is news waits for the next upkeep, where one transaction on ``reported``
decides, over every process that shares the store, whether it is an event. Stamps are UTC epoch
milliseconds.

A hosted API alternates between a handful of fingerprints, so an event is only for a pair of model
and fingerprint that its endpoint did not report for `FORGET_MS`, or never; the first pair ever is
none. An absent name is kept as an empty text.
"""

import json
import threading
from typing import NamedTuple

import sqlalchemy as sa

from failsoft.call_records import AttemptRecord, EventRecord
from failsoft.store.database import Database
from failsoft.store.rows import INSERTS, short
from failsoft.store.schema import events, reported

KIND = "version.drift"
FORGET_MS = 7 * 86_400_000
"""A pair that was not reported for this long is news again."""
MAX_SKEW_MS = 86_400_000
"""How far the clocks of processes that share a store may lie apart."""
MAX_PAIRS = 32
"""Pairs an endpoint may report within `FORGET_MS`; one that reports more says nothing by them."""

_SAY_AGAIN_MS = 3_600_000
"""How often a known pair's last sight is written."""
_MAX_KNOWN = 1_000
_MAX_NEWS = 100


class Pair(NamedTuple):
    """What an endpoint reported of itself."""

    endpoint: str
    model: str
    fingerprint: str


class DriftWatch:
    """Finds drift among attempts.

    Args:
        database: Holds ``reported`` and ``events``.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.start_anew()

    def start_anew(self) -> None:
        """Remember nothing, as a forked child must: its parent settles what it saw."""
        self._lock = threading.Lock()
        self._known: dict[Pair, int] = {}
        self._news: dict[Pair, int] = {}

    def see(self, attempt: AttemptRecord) -> None:
        """Take in one attempt, on the call path: never blocks on the database."""
        if attempt.version_digest is not None:
            return
        if attempt.reported_model is None and attempt.reported_fingerprint is None:
            return
        # Cut here: an endpoint may report another name of a megabyte each time.
        model, fingerprint = attempt.reported_model or "", attempt.reported_fingerprint or ""
        pair = Pair(*map(short, (attempt.endpoint, model, fingerprint)))
        at_ms = attempt.started_at_ms
        known_ms = self._known.get(pair)
        if known_ms is not None and abs(at_ms - known_ms) < _SAY_AGAIN_MS:
            return
        with self._lock:
            if pair in self._news or len(self._news) < _MAX_NEWS:
                self._news[pair] = max(at_ms, self._news.get(pair, 0))

    def settle(self) -> None:
        """Write what is news, and the events that come of it.

        Raises:
            StoreError: The database refused; it is tried again at the next call.
        """
        with self._lock:
            news = dict(self._news)
        if not news:
            return
        with self._database.write() as connection:
            for pair, at_ms in news.items():
                event = _note(connection, pair, at_ms)
                if event is not None:
                    connection.execute(sa.insert(events), _event_values(event))
        with self._lock:
            if len(self._known) + len(news) > _MAX_KNOWN:
                self._known.clear()
            self._known |= news
            for pair, at_ms in news.items():
                if self._news.get(pair) == at_ms:
                    del self._news[pair]


def _note(connection: sa.Connection, pair: Pair, at_ms: int) -> EventRecord | None:
    """Note one sight of *pair*; return the event if this transaction is the first to see it."""
    its_own = reported.c.endpoint == pair.endpoint
    others = (
        sa.select(reported)
        .where(its_own, sa.not_(_is(pair)))
        .order_by(reported.c.last_seen_ms.desc())
        .limit(MAX_PAIRS)
    )
    before = connection.execute(others).all()
    recent = [row for row in before if row.last_seen_ms > at_ms - FORGET_MS]
    if len(recent) >= MAX_PAIRS:
        return None
    if not _is_news(connection, pair, at_ms) or not before:
        return None
    detail = {
        "from": {"model": before[0].model or None, "fingerprint": before[0].fingerprint or None},
        "to": {"model": pair.model or None, "fingerprint": pair.fingerprint or None},
        "is_last": len(recent) == MAX_PAIRS - 1,
    }
    return EventRecord(
        kind=KIND, at_ms=at_ms, subject=pair.endpoint, detail_json=json.dumps(detail)
    )


def _is_news(connection: sa.Connection, pair: Pair, at_ms: int) -> bool:
    """Write the sight; return whether the pair is new, or was forgotten.

    Of several processes the database lets one insert the row, or move it over the gap.
    """
    values = {**pair._asdict(), "at_ms": at_ms}
    if connection.execute(_INSERT, values).rowcount == 1:
        return True
    moved = sa.update(reported).values(last_seen_ms=at_ms)
    was_forgotten = reported.c.last_seen_ms <= at_ms - FORGET_MS
    if connection.execute(moved.where(_is(pair), was_forgotten)).rowcount == 1:
        return True
    # A sight from the future is a clock's that was set back since: it would count for too long.
    is_older = reported.c.last_seen_ms < at_ms
    is_future = reported.c.last_seen_ms > at_ms + MAX_SKEW_MS
    connection.execute(moved.where(_is(pair), sa.or_(is_older, is_future)))
    return False


_INSERT = sa.text(
    "INSERT INTO reported (endpoint, model, fingerprint, first_seen_ms, last_seen_ms) "
    "VALUES (:endpoint, :model, :fingerprint, :at_ms, :at_ms) ON CONFLICT DO NOTHING"
)


def _is(pair: Pair) -> sa.ColumnElement[bool]:
    return sa.and_(*(reported.c[name] == value for name, value in pair._asdict().items()))


def _event_values(event: EventRecord) -> dict[str, object]:
    insert = INSERTS["event"]
    return dict(zip(insert.columns, insert.to_row(event), strict=True))
