"""Each kind of row goes at its own age; text that may not be kept goes at once."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from failsoft.call_records import AttemptRecord, CallRecord, CallText, EventRecord
from failsoft.config.settings import StoreConfig
from failsoft.idempotency_records import IdempotencyState
from failsoft.reply_records import CachedReply
from failsoft.store import Store
from failsoft.store.retention import BATCH_ROWS
from failsoft.store.schema import idempotency

OpenStore = Callable[..., Store]
MakeCall = Callable[..., CallRecord]
MakeAttempt = Callable[..., AttemptRecord]
MakeReply = Callable[..., CachedReply]

DAY_MS = 86_400_000


def test_every_kind_of_row_goes_at_its_own_age(
    open_store: OpenStore,
    make_call: MakeCall,
    make_attempt: MakeAttempt,
    make_reply: MakeReply,
    clock: Any,
) -> None:
    """One row a second too old, one a second young enough, of each kind."""
    ages = {"call_days": 1.0, "event_days": 2.0, "text_days": 3.0, "reply_days": 4.0}
    store = open_store(keep_text="all", **ages)
    assert store.replies is not None
    for name, late_ms in (("old", 1000), ("young", -1000)):
        stamp = {days: clock.now_ms - int(age * DAY_MS) - late_ms for days, age in ages.items()}
        store.recorder.record_call(make_call(call_id=name, started_at_ms=stamp["call_days"]))
        store.recorder.record_attempt(make_attempt(name, started_at_ms=stamp["call_days"]))
        store.recorder.record_event(EventRecord(kind=name, at_ms=stamp["event_days"], subject=""))
        store.recorder.record_text(
            CallText(
                call_id=name,
                tenant="",
                at_ms=stamp["text_days"],
                request_json="{}",
                reply_json=None,
            )
        )
        store.replies.put(make_reply(name, created_at_ms=stamp["reply_days"]))
    assert store.flush(10)

    deleted = store.retention.run()

    assert deleted == {"calls": 1, "attempts": 1, "events": 1, "texts": 1, "replies": 1}
    assert store.reader.call("young") is not None
    assert store.reader.call("old") is None
    assert [event.kind for event in store.reader.events()] == ["young"]
    assert store.reader.text("young") is not None
    assert store.replies.get("young") is not None
    assert store.replies.get("old") is None


def test_an_idempotency_key_goes_after_its_last_moment_and_a_grace(
    open_store: OpenStore, clock: Any
) -> None:
    """One that runs late may still be finished for an hour."""
    store = open_store()
    late = store.idempotency.begin("late", "t", "f", lease_s=1)
    done = store.idempotency.begin("done", "t", "f", lease_s=1)
    store.idempotency.finish(done, "reply")

    clock.now_s += 3600
    assert store.retention.run() == {}
    assert store.idempotency.finish(late, "reply")
    clock.now_s += 23 * 3600 - 1
    assert store.retention.run() == {}
    assert store.idempotency.begin("done", "t", "f", lease_s=1).state is IdempotencyState.DONE
    clock.now_s += 3600 + 2
    assert store.retention.run() == {"idempotency": 1}


def test_a_step_deletes_no_more_than_a_batch(open_store: OpenStore, make_call: MakeCall) -> None:
    """Records must not wait behind a delete of everything; a run does all of it."""
    store = open_store()
    for i in range(2 * BATCH_ROWS + 1):
        store.recorder.record_call(make_call(call_id=str(i), started_at_ms=0))
    assert store.flush(10)

    assert store.retention.step() == {"calls": BATCH_ROWS}
    assert store.retention.run() == {"calls": BATCH_ROWS + 1}
    assert store.retention.step() == {}


def test_text_that_no_longer_may_be_kept_goes_at_once(
    open_store: OpenStore, make_reply: MakeReply
) -> None:
    """Turning ``keep_text`` down reaches what is on disk already; counts stay.

    A reply made just now, and one stamped by a clock that is ahead, used to stay.
    """
    store = open_store(keep_text="all")
    assert store.replies is not None
    store.recorder.record_text(
        CallText(call_id="c", tenant="", at_ms=1, request_json="{}", reply_json=None)
    )
    store.replies.put(make_reply())
    store.replies.put(make_reply("a" * 64, created_at_ms=4_000_000_000_000))
    store.idempotency.finish(store.idempotency.begin("k", "t", "f", lease_s=1), "reply")
    store.close()

    strict = open_store(keep_text="none")
    deleted = strict.retention.run()

    assert deleted == {"texts": 1, "replies": 2, "idempotency replies": 1}
    again = strict.idempotency.begin("k", "t", "f", lease_s=1)
    assert (again.state, again.reply_json) == (IdempotencyState.DONE, None)


def test_replies_of_keys_are_forgotten_batch_by_batch(open_store: OpenStore) -> None:
    """As every other delete: no record waits behind one long transaction."""
    store = open_store()
    fixed = {"tenant": "t", "fingerprint": "f", "until_ms": 4_000_000_000_000, "reply_json": "{}"}
    rows = [{"key_hash": str(number), **fixed} for number in range(BATCH_ROWS + 1)]
    with store._database.write() as connection:
        connection.execute(sa.insert(idempotency), rows)
    store.close()

    strict = open_store(keep_text="none")

    assert strict.retention.step() == {"idempotency replies": BATCH_ROWS}
    assert strict.retention.step() == {"idempotency replies": 1}
    assert strict.retention.step() == {}


def test_a_tenants_text_can_be_deleted_whatever_its_age(
    open_store: OpenStore, make_reply: MakeReply
) -> None:
    """Replies, words and keys of that tenant, nobody else's."""
    store = open_store(keep_text="all")
    assert store.replies is not None
    for tenant in ("acme", "other"):
        store.replies.put(make_reply(tenant, tenant=tenant))
        store.idempotency.begin("k", tenant, "f", lease_s=1)
        store.recorder.record_text(
            CallText(call_id=tenant, tenant=tenant, at_ms=1, request_json="{}", reply_json=None)
        )
    assert store.flush(10)

    deleted = store.retention.forget_tenant("acme")

    assert deleted == {"replies": 1, "texts": 1, "idempotency": 1}
    assert store.reader.text("acme") is None
    assert store.reader.text("other") is not None
    assert store.replies.get("other") is not None


def test_a_pruned_sqlite_file_gives_its_room_back(
    sqlite_config: StoreConfig, make_reply: MakeReply
) -> None:
    """Incremental vacuum was on from the first page, so no full VACUUM is needed."""
    with Store(replace(sqlite_config, reply_days=1)) as store:
        assert store.replies is not None
        for i in range(200):
            store.replies.put(make_reply(str(i), created_at_ms=0, reply_json="x" * 20_000))
        assert store.flush(30)
        store.retention.give_back()
        before = store.reader.stats().file_bytes

        store.retention.run()

        after = store.reader.stats().file_bytes
        assert before is not None
        assert after is not None
        assert before > 4_000_000
        assert after < 500_000
