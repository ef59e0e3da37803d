"""Which rung answered how much, and what failed last: what an operator's pages ask.

Knows nothing of verdicts or words. Stamps are UTC epoch milliseconds. Each query reads
one index and has a time limit, so that a page never holds a big store up:

* counts: `calls_by_start` alone (it covers them), from the window's start on;
* newest calls and the last reply: the same index backwards, stopped by their limit;
* last failures: one step into `attempts_by_failure` for each endpoint.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from failsoft.call_records import AttemptRecord, CallOutcome
from failsoft.errors import StoreError
from failsoft.store.database import Database
from failsoft.store.rows import to_attempt
from failsoft.store.schema import IS_FAILURE, attempts, calls

LIMIT_S = 1.0
"""A query that takes longer is called off."""

_LOOK_EVERY_STEPS = 10_000
"""SQLite looks at the clock once in so many steps of its machine: about a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderTraffic:
    """How one ladder's calls of one window ended."""

    replies: Mapping[str, int]
    """Complete replies by the endpoint that gave them, for those that were asked for."""
    outcomes: Mapping[CallOutcome, int]
    """All calls by how they ended for their caller."""

    @property
    def num_other_replies(self) -> int:
        """Complete replies of endpoints that were not asked for."""
        return self.outcomes[CallOutcome.OK] - sum(self.replies.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnd:
    """How one call ended."""

    started_at_ms: int
    outcome: CallOutcome
    endpoint: str | None
    """Who answered, or began to; None when nobody did."""


class TrafficReader:
    """Counts; any thread.

    Every method raises StoreError when the database cannot be read, or takes too long.

    Args:
        database: Where the rows are.
        limit_s: Seconds that one query may take.
    """

    def __init__(self, database: Database, *, limit_s: float = LIMIT_S) -> None:
        self._database = database
        self._limit_s = limit_s

    def counts(self, ladder: str, endpoints: Sequence[str], *, since_ms: int) -> LadderTraffic:
        """Count *ladder*'s calls that started at or after *since_ms*, and its *endpoints*' replies.

        One pass without a sort: SQLite would sort every row to group them (1.5 s for a
        million calls where this takes 0.5 s).
        """
        is_reply = calls.c.outcome == CallOutcome.OK.value
        by_endpoint = [
            sa.func.count().filter(is_reply, calls.c.served_endpoint == endpoint)
            for endpoint in endpoints
        ]
        by_outcome = [
            sa.func.count().filter(calls.c.outcome == outcome.value) for outcome in CallOutcome
        ]
        columns: list[sa.ColumnElement[Any]] = [
            column.label(f"n{place}") for place, column in enumerate(by_endpoint + by_outcome)
        ]
        is_asked = (calls.c.started_at_ms >= since_ms) & (calls.c.ladder == ladder)
        (row,) = self._rows(sa.select(*columns).where(is_asked))
        counted = list(row.values())
        return LadderTraffic(
            replies=dict(zip(endpoints, counted, strict=False)),
            outcomes=dict(zip(CallOutcome, counted[len(endpoints) :], strict=True)),
        )

    def newest(self, ladder: str, *, since_ms: int, limit: int) -> list[CallEnd]:
        """Return *ladder*'s newest calls that started at or after *since_ms*, newest first."""
        return self._ends(self._of(ladder, since_ms), limit)

    def last_reply(self, ladder: str, *, since_ms: int) -> CallEnd | None:
        """Return *ladder*'s newest complete reply; None when there is none since *since_ms*."""
        is_reply = calls.c.outcome == CallOutcome.OK.value
        found = self._ends(self._of(ladder, since_ms).where(is_reply), 1)
        return found[0] if found else None

    def last_failures(self, endpoints: Sequence[str]) -> dict[str, AttemptRecord]:
        """Return the newest attempt that each of *endpoints* failed; nothing for one without."""
        found: dict[str, AttemptRecord] = {}
        for endpoint in endpoints:
            statement = (
                sa.select(attempts)
                .where(attempts.c.endpoint == endpoint, sa.text(IS_FAILURE))
                .order_by(attempts.c.started_at_ms.desc())
                .limit(1)
            )
            for row in self._rows(statement):
                found[endpoint] = to_attempt(row)
        return found

    def _of(self, ladder: str, since_ms: int) -> sa.Select[Any]:
        columns = (calls.c.started_at_ms, calls.c.outcome, calls.c.served_endpoint)
        return (
            sa.select(*columns)
            .where(calls.c.started_at_ms >= since_ms, calls.c.ladder == ladder)
            .order_by(calls.c.started_at_ms.desc())
        )

    def _ends(self, statement: sa.Select[Any], limit: int) -> list[CallEnd]:
        return [
            CallEnd(
                started_at_ms=row["started_at_ms"],
                outcome=CallOutcome(row["outcome"]),
                endpoint=row["served_endpoint"],
            )
            for row in self._rows(statement.limit(limit))
        ]

    def _rows(self, statement: sa.Select[Any]) -> list[Mapping[str, Any]]:
        deadline_s = time.monotonic() + self._limit_s
        try:
            with self._database.read() as connection, self._limited(connection, deadline_s):
                return [dict(row) for row in connection.execute(statement).mappings()]
        except StoreError as exc:
            if time.monotonic() < deadline_s:
                raise
            raise self._database.error(f"a query took longer than {self._limit_s:g} s") from exc

    @contextmanager
    def _limited(self, connection: sa.Connection, deadline_s: float) -> Iterator[None]:
        """Have the database itself call the connection's query off once it is late."""
        if not self._database.is_sqlite:
            limit_ms = max(1, int(self._limit_s * 1000))
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {limit_ms}")
            yield
            return
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(lambda: time.monotonic() > deadline_s, _LOOK_EVERY_STEPS)
        try:
            yield
        finally:
            driver.set_progress_handler(None, 0)
