"""Records go in, and come out the same; what cannot be kept is counted."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from failsoft.call_records import (
    AttemptOutcome,
    AttemptRecord,
    CallOutcome,
    CallRecord,
    CallText,
    EventRecord,
)
from failsoft.config.settings import StoreConfig
from failsoft.store import Store

OpenStore = Callable[..., Store]
MakeCall = Callable[..., CallRecord]
MakeAttempt = Callable[..., AttemptRecord]

WHOLE_CALL = CallRecord(
    call_id="c1",
    ladder="chat",
    tenant="acme",
    started_at_ms=1_800_000_000_123,
    outcome=CallOutcome.INCOMPLETE,
    served_rung=2,
    served_endpoint="cache",
    version_digest="ab" * 32,
    num_attempts=4,
    ttft_s=0.25,
    e2e_s=1.5,
    is_stream=True,
    is_complete=False,
    age_s=12.5,
    is_stale=True,
    cost=0.000123,
    num_prompt_tokens=2**40,
    num_cached_tokens=3,
    num_output_tokens=0,
    error_kind="StreamCutError",
)
WHOLE_ATTEMPT = AttemptRecord(
    call_id="c1",
    attempt=3,
    rung=1,
    endpoint="remote",
    outcome=AttemptOutcome.TIMEOUT_GAP,
    started_at_ms=1_800_000_000_456,
    was_sent=True,
    total_s=1.25,
    connect_s=0.01,
    ttft_s=0.5,
    http_status=200,
    version_digest="cd" * 32,
    reported_model="some-model",
    reported_fingerprint="fp_1",
    num_prompt_tokens=10,
    num_cached_tokens=4,
    num_output_tokens=2,
    cost=0.5,
    error_message="no token for 5 s",
)


def test_records_come_back_as_they_went_in(open_store: OpenStore) -> None:
    """Every field, enums and booleans with their types."""
    store = open_store()
    event = EventRecord(kind="breaker.opened", at_ms=5, subject="remote", detail_json='{"n": 3}')

    store.recorder.record_call(WHOLE_CALL)
    store.recorder.record_attempt(WHOLE_ATTEMPT)
    store.recorder.record_event(event)
    assert store.flush(10)

    assert store.reader.call("c1") == WHOLE_CALL
    assert store.reader.attempts("c1") == [WHOLE_ATTEMPT]
    assert store.reader.events() == [event]
    assert store.reader.call("c1").is_stale is True  # type: ignore[union-attr]


def test_what_is_not_known_comes_back_as_none(
    open_store: OpenStore, make_call: MakeCall, make_attempt: MakeAttempt
) -> None:
    """A missing cost must not turn into a free call."""
    store = open_store()
    call = make_call(cost=None, ttft_s=None, served_rung=None, served_endpoint=None)
    attempt = make_attempt(call.call_id, cost=None, connect_s=None)

    store.recorder.record_call(call)
    store.recorder.record_attempt(attempt)
    assert store.flush(10)

    assert store.reader.call(call.call_id) == call
    assert store.reader.attempts(call.call_id) == [attempt]


def test_a_record_is_in_the_database_soon_without_anyone_asking(
    open_store: OpenStore, make_call: MakeCall
) -> None:
    """The batch is written by its age; 5 s is a loaded machine's slack over 200 ms."""
    store = open_store()

    store.recorder.record_call(make_call(call_id="first"))
    store.recorder.record_call(make_call(call_id="second"))

    deadline = time.monotonic() + 5
    while store.reader.call("second") is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_same_record_twice_is_one_row(open_store: OpenStore, make_call: MakeCall) -> None:
    """A batch that is tried again after an unclear commit doubles nothing; the first stays."""
    store = open_store()

    store.recorder.record_call(make_call(call_id="c", num_attempts=1))
    store.recorder.record_call(make_call(call_id="c", num_attempts=2))
    assert store.flush(10)

    assert [call.num_attempts for call in store.reader.calls()] == [1]


def test_threads_record_at_once_and_no_row_is_lost(
    open_store: OpenStore, make_call: MakeCall, make_attempt: MakeAttempt
) -> None:
    """8 threads, 500 calls each with two attempts: 12,000 rows."""
    store = open_store()

    def record(thread: int) -> None:
        for i in range(500):
            call = make_call(call_id=f"{thread}-{i}")
            store.recorder.record_attempt(make_attempt(call.call_id, 0))
            store.recorder.record_attempt(make_attempt(call.call_id, 1))
            store.recorder.record_call(call)

    threads = [threading.Thread(target=record, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.flush(60)

    rows = store.reader.stats().num_rows
    assert (rows["calls"], rows["attempts"]) == (4000, 8000)
    assert store.stats().dropped_total == {}
    assert store.stats().written_total == {"call": 4000, "attempt": 8000}


def test_closing_writes_what_is_queued(store_config: StoreConfig, make_call: MakeCall) -> None:
    """A program that ends in order loses nothing."""
    with Store(store_config) as store:
        for i in range(1234):
            store.recorder.record_call(make_call(call_id=str(i)))

    with Store(store_config) as store:
        assert store.reader.stats().num_rows["calls"] == 1234


def test_a_record_after_closing_is_dropped_and_counted(
    open_store: OpenStore, make_call: MakeCall
) -> None:
    """A late call must neither fail nor vanish silently."""
    store = open_store()
    store.close()

    store.recorder.record_call(make_call())

    assert store.stats().dropped_total == {"call": 1}


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("zero \0 byte", "zero \ufffd byte"),
        ("lone \ud800 surrogate", "lone ? surrogate"),
        ("é😀\n", "é😀\n"),
        ("x" * 10_000, "x" * 500),
    ],
)
def test_odd_text_from_outside_costs_no_row(
    open_store: OpenStore, make_attempt: MakeAttempt, text: str, stored: str
) -> None:
    """An endpoint may report anything as its model; the ledger row still counts."""
    store = open_store()

    store.recorder.record_attempt(make_attempt("c", reported_model=text))
    assert store.flush(10)

    assert store.reader.attempts("c")[0].reported_model == stored


@pytest.mark.parametrize(
    "unfit", [{"num_prompt_tokens": 2**70}, {"e2e_s": None}, {"num_attempts": {}}]
)
def test_an_unfit_row_is_dropped_alone_and_counted(
    open_store: OpenStore, make_call: MakeCall, unfit: dict[str, Any]
) -> None:
    """Its batch's other rows are written, and an event tells of it."""
    store = open_store()

    store.recorder.record_call(make_call(call_id="before"))
    store.recorder.record_call(make_call(call_id="unfit", **unfit))
    store.recorder.record_call(make_call(call_id="after"))
    store.close()

    reopened = open_store()
    assert {call.call_id for call in reopened.reader.calls()} == {"before", "after"}
    assert store.stats().dropped_total == {"call": 1}
    assert store.stats().last_error is not None, "an operator is told why"
    assert reopened.reader.stats().dropped_total == {"call": 1}


def test_something_that_is_no_record_is_dropped_and_counted(
    open_store: OpenStore, make_call: MakeCall
) -> None:
    """A caller's bug must not stop the recording of others."""
    store = open_store()
    wrong: Any = object()

    store.recorder.record_call(wrong)
    store.recorder.record_call(make_call(call_id="right"))
    assert store.flush(10)

    assert store.reader.call("right") is not None
    assert store.stats().dropped_total == {"call": 1}


@pytest.mark.parametrize(("keep_text", "is_kept"), [("all", True), ("cache-only", False)])
def test_a_calls_words_are_kept_only_when_all_text_is(
    open_store: OpenStore, keep_text: str, is_kept: bool
) -> None:
    """One setting decides; text that is not kept is policy, not a drop."""
    store = open_store(keep_text=keep_text)
    text = CallText(call_id="c", tenant="acme", at_ms=1, request_json='{"q": "é"}', reply_json=None)

    store.recorder.record_text(text)
    assert store.flush(10)

    assert store.reader.text("c") == (text if is_kept else None)
    assert store.stats().dropped_total == {}


def test_calls_are_read_newest_first(open_store: OpenStore, make_call: MakeCall) -> None:
    """From a moment on, and not more than asked for."""
    store = open_store()
    for i in range(5):
        store.recorder.record_call(make_call(call_id=str(i), started_at_ms=i))
    assert store.flush(10)

    found = store.reader.calls(since_ms=1, limit=3)

    assert [call.call_id for call in found] == ["4", "3", "2"]


def test_events_are_read_by_kind(open_store: OpenStore) -> None:
    """Newest first, others left out."""
    store = open_store()
    for i, kind in enumerate(["a", "b", "a"]):
        store.recorder.record_event(EventRecord(kind=kind, at_ms=i, subject="s"))
    assert store.flush(10)

    assert [event.at_ms for event in store.reader.events(kind="a")] == [2, 0]


def test_a_full_queue_drops_new_records_and_tells(
    sqlite_config: StoreConfig, make_call: MakeCall
) -> None:
    """The count of rows and drops adds up to the count of calls."""
    config = replace(sqlite_config, queue_records=1000)
    with Store(config) as store:
        for i in range(30_000):
            store.recorder.record_call(make_call(call_id=str(i)))
        num_dropped = store.stats().dropped_total.get("call", 0)

    with Store(config) as store:
        stats = store.reader.stats()
        told = [
            json.loads(event.detail_json) for event in store.reader.events(kind="store.dropped")
        ]

    assert num_dropped > 0
    assert stats.num_rows["calls"] + num_dropped == 30_000
    assert sum(detail["dropped"]["call"] for detail in told) == num_dropped
    assert stats.dropped_total == {"call": num_dropped}
