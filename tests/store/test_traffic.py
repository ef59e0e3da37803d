"""Counts by rung, the newest calls and the last failures, on both databases."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from failsoft.call_records import AttemptOutcome, AttemptRecord, CallOutcome, CallRecord
from failsoft.config.settings import StoreConfig
from failsoft.errors import StoreError
from failsoft.store import Store
from failsoft.store.schema import calls
from failsoft.store.traffic import CallEnd, TrafficReader

OpenStore = Callable[..., Store]
MakeCall = Callable[..., CallRecord]
MakeAttempt = Callable[..., AttemptRecord]

RUNGS = ("primary", "small", "cache")


def record(store: Store, *records: CallRecord | AttemptRecord) -> TrafficReader:
    """Write *records* and return who counts them."""
    for item in records:
        if isinstance(item, CallRecord):
            store.recorder.record_call(item)
        else:
            store.recorder.record_attempt(item)
    assert store.flush(10)
    return TrafficReader(store._database)


def test_replies_are_counted_by_rung_and_outcomes_apart(
    open_store: OpenStore, make_call: MakeCall
) -> None:
    """A cut reply is no reply of its rung; another ladder's calls are not counted."""
    nobody = {"served_endpoint": None}
    reader = record(
        open_store(),
        make_call(),
        make_call(),
        make_call(served_endpoint="cache"),
        make_call(served_endpoint="retired"),
        make_call(outcome=CallOutcome.INCOMPLETE),
        make_call(outcome=CallOutcome.FAILED, **nobody),
        make_call(outcome=CallOutcome.REJECTED, **nobody),
        make_call(ladder="another"),
    )

    found = reader.counts("chat", RUNGS, since_ms=0)

    assert found.replies == {"primary": 2, "small": 0, "cache": 1}
    assert found.num_other_replies == 1
    assert found.outcomes == {
        CallOutcome.OK: 4,
        CallOutcome.INCOMPLETE: 1,
        CallOutcome.FAILED: 1,
        CallOutcome.DEADLINE: 0,
        CallOutcome.REJECTED: 1,
        CallOutcome.CANCELLED: 0,
    }


def test_a_window_begins_at_its_stamp(open_store: OpenStore, make_call: MakeCall) -> None:
    """That moment is in it; a ladder that nobody called counts nothing."""
    reader = record(open_store(), *(make_call(started_at_ms=at_ms) for at_ms in (999, 1000, 1001)))

    assert reader.counts("chat", RUNGS, since_ms=1000).replies["primary"] == 2
    assert set(reader.counts("nobody", (), since_ms=0).outcomes.values()) == {0}


def test_the_newest_calls_and_the_last_reply(open_store: OpenStore, make_call: MakeCall) -> None:
    """Newest first, not more than asked for; the last reply is found behind failures."""
    failed = {"outcome": CallOutcome.FAILED, "served_endpoint": None}
    reader = record(
        open_store(),
        make_call(started_at_ms=1),
        make_call(started_at_ms=2, served_endpoint="small"),
        make_call(started_at_ms=3, **failed),
        make_call(started_at_ms=4, **failed),
        make_call(started_at_ms=5, ladder="another"),
    )

    newest = reader.newest("chat", since_ms=2, limit=2)

    assert [end.started_at_ms for end in newest] == [4, 3]
    assert newest[0] == CallEnd(started_at_ms=4, outcome=CallOutcome.FAILED, endpoint=None)
    last = reader.last_reply("chat", since_ms=0)
    assert last == CallEnd(started_at_ms=2, outcome=CallOutcome.OK, endpoint="small")
    assert reader.last_reply("chat", since_ms=3) is None


@pytest.mark.parametrize(
    ("outcome", "is_failure"),
    [
        (AttemptOutcome.RESET, True),
        (AttemptOutcome.TIMEOUT_FIRST_TOKEN, True),
        (AttemptOutcome.THROTTLED, True),
        (AttemptOutcome.STORE_FAILED, True),
        (AttemptOutcome.OK, False),
        (AttemptOutcome.BAD_REQUEST, False),
        (AttemptOutcome.CANCELLED, False),
        (AttemptOutcome.BREAKER_OPEN, False),
        (AttemptOutcome.SKIPPED_CONTEXT, False),
        (AttemptOutcome.CACHE_MISS, False),
    ],
)
def test_what_counts_as_an_endpoints_failure(
    open_store: OpenStore, make_attempt: MakeAttempt, outcome: AttemptOutcome, is_failure: bool
) -> None:
    """A caller's fault, a rung passed over and a miss are none."""
    reader = record(open_store(), make_attempt("c", outcome=outcome))

    assert (reader.last_failures(["primary"]) != {}) is is_failure


def test_the_last_failure_of_each_endpoint(
    open_store: OpenStore, make_attempt: MakeAttempt
) -> None:
    """The newest one, with its words; an endpoint without one is left out."""
    fields = {"outcome": AttemptOutcome.RESET}
    reader = record(
        open_store(),
        make_attempt("a", started_at_ms=1, error_message="old", **fields),
        make_attempt("b", started_at_ms=2, error_message="new", **fields),
        make_attempt("c", started_at_ms=3),
        make_attempt("d", endpoint="small", started_at_ms=4, **fields),
    )

    found = reader.last_failures(["primary", "small", "never"])

    assert {name: attempt.started_at_ms for name, attempt in found.items()} == {
        "primary": 2,
        "small": 4,
    }
    assert found["primary"].error_message == "new"


@pytest.fixture
def plans(store_config: StoreConfig, open_store: OpenStore) -> Callable[..., str]:
    """Return what tells how the database would run the query of a method."""
    store = open_store()
    reader = TrafficReader(store._database)

    def plan(ask: Callable[[TrafficReader], object]) -> str:
        statements: list[sa.Select[Any]] = []

        def take(statement: sa.Select[Any]) -> list[Any]:
            statements.append(statement)
            return []

        reader.__dict__["_rows"] = take
        with contextlib.suppress(ValueError):  # a count expects a row
            ask(reader)
        explain = "EXPLAIN QUERY PLAN " if store_config.is_sqlite else "EXPLAIN "
        with store._database.read() as connection:
            if not store_config.is_sqlite:
                connection.exec_driver_sql("SET LOCAL enable_seqscan = off")  # a table without rows
                connection.exec_driver_sql("SET LOCAL enable_bitmapscan = off")
            sql = statements[0].compile(
                connection, compile_kwargs={"literal_binds": True, "render_postcompile": True}
            )
            rows = connection.exec_driver_sql(explain + str(sql).replace("%", "%%")).all()
        return "\n".join(str(row[-1]) for row in rows)

    return plan


@pytest.mark.parametrize(
    ("ask", "index"),
    [
        (lambda reader: reader.counts("chat", RUNGS, since_ms=9), "calls_by_start"),
        (lambda reader: reader.last_reply("chat", since_ms=9), "calls_by_start"),
        (lambda reader: reader.newest("chat", since_ms=9, limit=9), "calls_by_start"),
        (lambda reader: reader.last_failures(["primary"]), "attempts_by_failure"),
    ],
    ids=["counts", "last_reply", "newest", "last_failures"],
)
def test_each_query_reads_one_index(
    plans: Callable[..., str], ask: Callable[[TrafficReader], object], index: str
) -> None:
    """And sorts nothing: at a million calls a day a sort takes longer than the whole limit."""
    plan = plans(ask)

    assert index in plan
    assert "TEMP B-TREE" not in plan
    assert "Sort" not in plan


def test_a_query_that_takes_too_long_is_called_off(open_store: OpenStore) -> None:
    """By the database itself: a page must not leave work behind. 30,000 rows need over 1 ms."""
    store = open_store()
    row = {
        "ladder": "chat",
        "tenant": "",
        "started_at_ms": 1,
        "outcome": "ok",
        "num_attempts": 1,
        "e2e_s": 1.0,
        "is_stream": True,
        "is_complete": True,
        "is_stale": False,
    }
    with store._database.write() as connection:
        connection.execute(sa.insert(calls), [{**row, "call_id": str(i)} for i in range(30_000)])
    hurried = TrafficReader(store._database, limit_s=0.001)

    with pytest.raises(StoreError, match=r"took longer than 0\.001 s"):
        hurried.counts("chat", RUNGS, since_ms=0)

    patient = TrafficReader(store._database)
    assert patient.counts("chat", RUNGS, since_ms=0).outcomes[CallOutcome.OK] == 30_000
