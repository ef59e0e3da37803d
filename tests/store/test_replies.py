"""The reply cache's rows: newest wins, oldest use goes first, purges are exact."""

from collections.abc import Callable
from typing import Any

import pytest

from failsoft.reply_records import CachedReply, ReplyStore, ServedVersion
from failsoft.store import Store

OpenStore = Callable[..., Store]
MakeReply = Callable[..., CachedReply]


def replies_of(store: Store) -> ReplyStore:
    """Return the store's reply cache, which must be on."""
    assert store.replies is not None
    return store.replies


def test_a_reply_is_there_at_once_and_for_another_process_once_written(
    open_store: OpenStore, make_reply: MakeReply
) -> None:
    """The second store stands for another process: it sees only what is in the database."""
    one, other = open_store(), open_store()
    reply = make_reply(tenant="acme", finish_reason="length", reply_json='{"text": "é"}')

    replies_of(one).put(reply)

    assert replies_of(one).get(reply.key) == reply
    assert one.flush(10)
    assert replies_of(one).get(reply.key) == reply
    assert replies_of(other).get(reply.key) == reply


def test_an_unknown_key_is_a_miss(open_store: OpenStore) -> None:
    """A miss is None, not an error."""
    assert replies_of(open_store()).get("0" * 64) is None


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_newer_reply_replaces_an_older_one_and_never_the_reverse(
    open_store: OpenStore, make_reply: MakeReply, is_flushed: bool
) -> None:
    """Two processes may finish in either order; queued or written makes no difference."""
    store = open_store()
    old, middle, new = (make_reply(created_at_ms=i, reply_json=str(i)) for i in (1, 2, 3))

    for reply in (middle, new, old):
        replies_of(store).put(reply)
        assert store.flush(10) or not is_flushed
    assert store.flush(10)

    assert replies_of(store).get(new.key) == new


def test_a_batch_may_hold_the_same_key_twice(open_store: OpenStore, make_reply: MakeReply) -> None:
    """PostgreSQL refuses to update one row twice in a statement; the newest is kept."""
    store = open_store()
    wrong: Any = object()
    store.recorder.record_call(wrong)  # the first batch, so that the next one holds three
    for i in (1, 2, 3):
        replies_of(store).put(make_reply(created_at_ms=i, reply_json=str(i)))
    assert store.flush(10)

    found = open_store().replies
    assert found is not None
    reply = found.get("k" * 64)

    assert reply is not None
    assert reply.reply_json == "3"
    assert store.stats().dropped_total == {"call": 1}


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ({"tenant": "a"}, {"3", "4"}),
        ({"version": "v1"}, {"2", "4"}),
        ({"older_than_ms": 3}, {"3", "4"}),
        ({"tenant": "b", "version": "v1"}, {"1", "2", "4"}),
        ({"tenant": ""}, {"1", "2", "3", "4"}),
    ],
)
def test_a_purge_deletes_what_matches_every_filter(
    open_store: OpenStore, make_reply: MakeReply, filters: dict[str, Any], left: set[str]
) -> None:
    """By tenant, by version digest, by age, or several at once; also what is only queued."""
    store = open_store()
    rows = [("1", "a", "v1", 1), ("2", "a", "v2", 2), ("3", "b", "v1", 3), ("4", "b", None, 4)]
    for key, tenant, version, created in rows:
        replies_of(store).put(
            make_reply(key, tenant=tenant, version_digest=version, created_at_ms=created)
        )

    num = replies_of(store).purge(**filters)

    found = {key for key, *_ in rows if replies_of(store).get(key) is not None}
    assert found == left
    assert num == 4 - len(left)


def test_a_purge_without_a_filter_is_refused(open_store: OpenStore) -> None:
    """A forgotten argument must not empty the cache."""
    with pytest.raises(ValueError, match="purge never means everything"):
        replies_of(open_store()).purge()


def test_past_the_cap_the_replies_used_longest_ago_go_first(
    open_store: OpenStore, make_reply: MakeReply, clock: Any
) -> None:
    """Ten of 10,000 bytes under a cap of 65,536: down to 0.9 of it leaves five."""
    store = open_store(reply_bytes=65_536)
    for i in range(10):
        replies_of(store).put(
            make_reply(str(i), created_at_ms=clock.now_ms + i, reply_json="x" * 10_000)
        )
    assert store.flush(10)
    clock.now_s += 60
    assert replies_of(store).get("0") is not None  # oldest by birth, newest by use

    store._upkeep.tick(is_quiet=False)

    left = {str(i) for i in range(10) if replies_of(store).get(str(i)) is not None}
    assert left == {"0", "6", "7", "8", "9"}
    assert replies_of(store).size().num_bytes == 50_000


def test_under_the_cap_nothing_is_evicted(open_store: OpenStore, make_reply: MakeReply) -> None:
    """Exactly at the cap is still within it."""
    store = open_store(reply_bytes=65_536)
    replies_of(store).put(make_reply(reply_json="x" * 65_536))
    assert store.flush(10)

    store._upkeep.tick(is_quiet=False)

    assert replies_of(store).size().num_replies == 1


def test_a_reply_larger_than_the_cap_is_dropped_and_counted(
    open_store: OpenStore, make_reply: MakeReply
) -> None:
    """It would evict everything, itself included."""
    store = open_store(reply_bytes=65_536)

    replies_of(store).put(make_reply(reply_json="x" * 65_537))

    assert replies_of(store).get("k" * 64) is None
    assert store.stats().dropped_total == {"reply": 1}


def test_keeping_no_text_means_no_reply_cache(open_store: OpenStore) -> None:
    """There is nothing that could store or serve a reply by mistake."""
    assert open_store(keep_text="none").replies is None


def test_size_counts_bytes_of_text_not_characters(
    open_store: OpenStore, make_reply: MakeReply
) -> None:
    """An é is two bytes in UTF-8."""
    store = open_store()
    replies_of(store).put(make_reply("1", reply_json="é"))
    replies_of(store).put(make_reply("2", reply_json="ab"))
    assert store.flush(10)

    size = replies_of(store).size()

    assert (size.num_replies, size.num_bytes) == (2, 4)


def test_the_last_digest_of_a_source_is_found_again(open_store: OpenStore) -> None:
    """By any process, whatever happened to the replies; the newest one counts."""
    one, other = open_store(), open_store()
    assert replies_of(one).last_digest("s") is None

    for at_ms, digest in ((1, "d"), (3, "f"), (2, "e")):
        replies_of(one).note_served(ServedVersion(source="s", version_digest=digest, at_ms=at_ms))
    replies_of(one).note_served(ServedVersion(source="t", version_digest=None, at_ms=1))
    assert one.flush(10)

    assert replies_of(one).last_digest("s") == replies_of(other).last_digest("s") == "f"
    assert replies_of(other).last_digest("t") is None


def test_what_answers_is_written_when_it_changes_and_now_and_then(open_store: OpenStore) -> None:
    """Not with every reply: it hardly ever changes."""
    store = open_store()
    for at_ms, digest in ((0, "d"), (1, "d"), (59_999, "d"), (60_000, "d"), (60_001, "e")):
        version = ServedVersion(source="s", version_digest=digest, at_ms=at_ms)
        replies_of(store).note_served(version)
    assert store.flush(10)

    assert store.stats().written_total["served version"] == 3
