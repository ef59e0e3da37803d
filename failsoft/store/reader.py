"""Reads the store: rows in, records out, short read-only transactions."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from failsoft.call_records import AttemptRecord, CallRecord, CallText, EventRecord
from failsoft.store.database import Database
from failsoft.store.rows import to_attempt, to_call, to_event, to_text
from failsoft.store.schema import HEAD, attempts, calls, events, metadata, replies, texts
from failsoft.store.tally import DROPPED, RECOVERED


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """What a store holds."""

    url: str
    revision: str
    num_rows: Mapping[str, int]
    """By table."""
    reply_bytes: int
    oldest_call_at_ms: int | None
    newest_call_at_ms: int | None
    file_bytes: int | None
    """Database file and write-ahead log; None on PostgreSQL."""
    dropped_total: Mapping[str, int]
    """Records dropped by all processes, by kind, as their events tell; kept like events."""


class StoreReader:
    """Queries; any thread.

    Every method raises StoreError when the database cannot be read.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def calls(self, *, since_ms: int = 0, limit: int = 1000) -> list[CallRecord]:
        """Return the newest calls that started at or after *since_ms*, newest first."""
        statement = (
            sa.select(calls)
            .where(calls.c.started_at_ms >= since_ms)
            .order_by(calls.c.started_at_ms.desc(), calls.c.call_id)
            .limit(limit)
        )
        return [to_call(row) for row in self._rows(statement)]

    def call(self, call_id: str) -> CallRecord | None:
        """Return one call; None when there is no row of it."""
        rows = self._rows(sa.select(calls).where(calls.c.call_id == call_id))
        return to_call(rows[0]) if rows else None

    def attempts(self, call_id: str) -> list[AttemptRecord]:
        """Return a call's ledger rows in their order."""
        statement = sa.select(attempts).where(attempts.c.call_id == call_id)
        return [to_attempt(row) for row in self._rows(statement.order_by(attempts.c.attempt))]

    def events(
        self, *, kind: str | None = None, since_ms: int = 0, limit: int = 1000
    ) -> list[EventRecord]:
        """Return the newest events of *kind* (None: every kind), newest first."""
        statement = sa.select(events).where(events.c.at_ms >= since_ms)
        if kind is not None:
            statement = statement.where(events.c.kind == kind)
        statement = statement.order_by(events.c.at_ms.desc(), events.c.event_id).limit(limit)
        return [to_event(row) for row in self._rows(statement)]

    def text(self, call_id: str) -> CallText | None:
        """Return a call's words; None unless ``keep_text = "all"`` kept them."""
        rows = self._rows(sa.select(texts).where(texts.c.call_id == call_id))
        return to_text(rows[0]) if rows else None

    def stats(self) -> StoreStats:
        """Count what is there; reads every table's index once."""
        stamp = calls.c.started_at_ms
        with self._database.read() as connection:
            num_rows = {
                table.name: connection.execute(
                    sa.select(sa.func.count()).select_from(table)
                ).scalar_one()
                for table in metadata.sorted_tables
            }
            span = sa.select(sa.func.min(stamp), sa.func.max(stamp))
            oldest, newest = connection.execute(span).one()
            total = sa.select(sa.func.coalesce(sa.func.sum(replies.c.num_bytes), 0))
            reply_bytes = int(connection.execute(total).scalar_one())
        return StoreStats(
            url=self._database.shown_url,
            revision=HEAD,
            num_rows=num_rows,
            reply_bytes=reply_bytes,
            oldest_call_at_ms=oldest,
            newest_call_at_ms=newest,
            file_bytes=self._database.file_bytes(),
            dropped_total=self.dropped(),
        )

    def dropped(self, *, since_ms: int = 0) -> dict[str, int]:
        """Return what all processes dropped, by kind, as their events since *since_ms* tell."""
        is_told = events.c.kind.in_((DROPPED, RECOVERED)) & (events.c.at_ms >= since_ms)
        dropped: Counter[str] = Counter()
        for row in self._rows(sa.select(events.c.detail_json).where(is_told)):
            dropped.update(json.loads(row["detail_json"])["dropped"])
        return dict(dropped)

    def _rows(self, statement: sa.Select[Any]) -> list[Mapping[str, Any]]:
        with self._database.read() as connection:
            return [dict(row) for row in connection.execute(statement).mappings()]
