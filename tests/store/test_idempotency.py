"""One owner a key, over threads, processes and crashes."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from failsoft.idempotency_records import IdempotencyEntry, IdempotencyState
from failsoft.store import Store

OpenStore = Callable[..., Store]


def begin(store: Store, key: str = "k", tenant: str = "t", body: str = "f") -> IdempotencyEntry:
    """Claim a key for ten seconds."""
    return store.idempotency.begin(key, tenant, body, lease_s=10)


def test_a_new_key_is_started_and_runs_for_everyone_else(open_store: OpenStore, clock: Any) -> None:
    """The second caller learns until when the first one's lease holds."""
    one, other = open_store(), open_store()

    first, second = begin(one), begin(other)

    assert first.state is IdempotencyState.STARTED
    assert second.state is IdempotencyState.RUNNING
    assert second.lease_until_ms == clock.now_ms + 10_000
    assert second.owner is None


def test_a_finished_key_plays_its_reply_back(open_store: OpenStore) -> None:
    """Byte for byte, from any process."""
    one, other = open_store(), open_store()

    assert one.idempotency.finish(begin(one), '{"text": "é"}')

    again = begin(other)
    assert again.state is IdempotencyState.DONE
    assert again.reply_json == '{"text": "é"}'


@pytest.mark.parametrize("is_finished", [True, False])
def test_another_body_under_the_same_key_is_a_conflict(
    open_store: OpenStore, is_finished: bool
) -> None:
    """Whether the first call is over or not; and its reply is not shown."""
    store = open_store()
    entry = begin(store, body="one")
    if is_finished:
        store.idempotency.finish(entry, "secret")

    conflict = begin(store, body="two")

    assert conflict.state is IdempotencyState.CONFLICT
    assert conflict.reply_json is None


def test_the_same_key_of_another_tenant_is_another_key(open_store: OpenStore) -> None:
    """Nor can tenant and key be cut differently to meet."""
    store = open_store()
    begin(store, key="bc", tenant="a")

    for key, tenant in (("bc", "b"), ("c", "ab"), ("1:a:bc", "")):
        assert begin(store, key=key, tenant=tenant).state is IdempotencyState.STARTED


def test_a_crashed_owners_key_is_free_when_its_lease_is_over(
    open_store: OpenStore, clock: Any
) -> None:
    """And the owner, should it live after all, learns that it lost the key."""
    store = open_store()
    crashed = begin(store)
    clock.now_s += 10

    taken = begin(store)

    assert taken.state is IdempotencyState.STARTED
    assert not store.idempotency.finish(crashed, "late")
    store.idempotency.release(crashed)
    assert begin(store).state is IdempotencyState.RUNNING
    assert store.idempotency.finish(taken, "in time")
    assert begin(store).reply_json == "in time"


def test_an_owner_who_is_late_but_alone_still_finishes(open_store: OpenStore, clock: Any) -> None:
    """The work is done and nobody else began it."""
    store = open_store()
    entry = begin(store)
    clock.now_s += 11

    assert store.idempotency.finish(entry, "late")
    assert begin(store).state is IdempotencyState.DONE


def test_a_released_key_is_new_again(open_store: OpenStore) -> None:
    """A call that was shed or refused did no work to play back."""
    store = open_store()

    store.idempotency.release(begin(store))

    assert begin(store, body="another").state is IdempotencyState.STARTED


def test_a_finished_key_is_kept_for_its_hours_and_new_afterwards(
    open_store: OpenStore, clock: Any
) -> None:
    """24 hours after the finish, not after the start."""
    store = open_store()
    entry = begin(store)
    clock.now_s += 5
    store.idempotency.finish(entry, "reply")

    clock.now_s += 24 * 3600 - 1
    assert begin(store).state is IdempotencyState.DONE
    clock.now_s += 1
    assert begin(store, body="another").state is IdempotencyState.STARTED


def test_keeping_no_text_forgets_the_reply_but_not_that_there_was_one(
    open_store: OpenStore,
) -> None:
    """The work is still not done twice."""
    store = open_store(keep_text="none")
    store.idempotency.finish(begin(store), "reply")

    again = begin(store)

    assert again.state is IdempotencyState.DONE
    assert again.reply_json is None


def test_of_many_at_once_exactly_one_owns_the_key(open_store: OpenStore) -> None:
    """Two stores, 8 threads each, 10 keys: one owner a key, the others see it run."""
    stores = [open_store(), open_store()]
    seen: list[tuple[str, IdempotencyState]] = []
    start = threading.Barrier(16)

    def claim(store: Store) -> None:
        start.wait()
        seen.extend((str(i), begin(store, key=str(i)).state) for i in range(10))

    threads = [threading.Thread(target=claim, args=(stores[i % 2],)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for i in range(10):
        states = [state for key, state in seen if key == str(i)]
        assert states.count(IdempotencyState.STARTED) == 1
        assert states.count(IdempotencyState.RUNNING) == 15


@pytest.mark.parametrize(("key", "lease_s"), [("", 1), ("x" * 256, 1), ("k", 0), ("k", -1)])
def test_a_key_or_lease_out_of_range_is_refused(
    open_store: OpenStore, key: str, lease_s: float
) -> None:
    """1..255 characters; a lease of nothing would own nothing."""
    with pytest.raises(ValueError, match=r"idempotency key|lease_s"):
        open_store().idempotency.begin(key, "t", "f", lease_s=lease_s)


def test_only_an_owner_can_finish_or_release(open_store: OpenStore) -> None:
    """An entry that says RUNNING is somebody else's."""
    store = open_store()
    begin(store)
    running = begin(store)

    with pytest.raises(ValueError, match="STARTED"):
        store.idempotency.finish(running, "mine now")
    with pytest.raises(ValueError, match="STARTED"):
        store.idempotency.release(running)


def test_the_database_holds_no_key_as_it_was_sent(open_store: OpenStore) -> None:
    """Callers put names and numbers into keys."""
    store = open_store()
    begin(store, key="order-4711")

    with store._database.read() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM idempotency").all()

    assert "order-4711" not in str(rows)
