"""What endpoints report of themselves: which change is an event, over processes and restarts."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from failsoft.call_records import AttemptRecord
from failsoft.config.settings import StoreConfig
from failsoft.errors import StoreError
from failsoft.store import Store, drift
from failsoft.store.database import Database
from failsoft.store.rows import MAX_TEXT
from tests.store.conftest import OpenStore

MakeAttempt = Callable[..., AttemptRecord]
START_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Replies:
    """Attempts of one endpoint into one store."""

    def __init__(self, store: Store, make_attempt: MakeAttempt) -> None:
        self.store = store
        self._make = make_attempt
        self._number = 0

    def report(
        self,
        *fingerprints: str | None,
        model: str | None = "m-1",
        at_ms: int = START_MS,
        endpoint: str = "hosted",
        version_digest: str | None = None,
    ) -> None:
        """Record a reply for each of *fingerprints*, and let the upkeep settle after each."""
        for fingerprint in fingerprints:
            self._number += 1
            attempt = self._make(
                f"{id(self)}-{self._number}",
                endpoint=endpoint,
                reported_model=model,
                reported_fingerprint=fingerprint,
                version_digest=version_digest,
                started_at_ms=at_ms,
            )
            self.store.recorder.record_attempt(attempt)
            assert self.store.flush(10)
            self.store._upkeep.tick(is_quiet=False)

    def told(self) -> list[tuple[Any, ...]]:
        """Return endpoint, old and new fingerprint of every event, the oldest first."""
        events = self.store.reader.events(kind=drift.KIND)
        details = [(event.subject, json.loads(event.detail_json)) for event in reversed(events)]
        return [(who, d["from"]["fingerprint"], d["to"]["fingerprint"]) for who, d in details]


@pytest.fixture
def replies(open_store: OpenStore, make_attempt: MakeAttempt) -> Replies:
    """Return one process's replies."""
    return Replies(open_store(), make_attempt)


def test_the_first_report_ever_is_no_event_and_a_new_one_is(replies: Replies) -> None:
    """It names the one that was seen last before."""
    replies.report("a", "a", at_ms=START_MS)
    replies.report("b", at_ms=START_MS + 1)

    assert replies.told() == [("hosted", "a", "b")]


def test_endpoints_do_not_mix(replies: Replies) -> None:
    """Each has a first one."""
    replies.report("a")
    replies.report("b", endpoint="other")

    assert replies.told() == []


def test_fingerprints_that_alternate_are_told_once(replies: Replies) -> None:
    """As hosted APIs do: three behind one name make two events, however often they change."""
    for turn in range(4):
        replies.report("a", "b", "c", at_ms=START_MS + turn)

    assert sorted(new for _, _, new in replies.told()) == ["b", "c"]


def test_one_that_was_not_seen_for_a_week_is_news_again(replies: Replies) -> None:
    """By then nobody remembers it as one of the handful."""
    replies.report("a", at_ms=START_MS)
    replies.report("b", at_ms=START_MS + 1)
    replies.report("b", at_ms=START_MS + 4 * DAY_MS)

    replies.report("a", at_ms=START_MS + 8 * DAY_MS)
    replies.report("b", at_ms=START_MS + 8 * DAY_MS)

    assert [new for _, _, new in replies.told()] == ["b", "a"]


def test_a_clock_that_was_a_year_ahead_hides_no_return(replies: Replies) -> None:
    """The pair it saw counted as seen for a year; a sight by the right clock corrects that."""
    replies.report("a", at_ms=START_MS + 365 * DAY_MS)
    replies.report("a", at_ms=START_MS)
    replies.report("b", at_ms=START_MS + DAY_MS)
    replies.report("a", at_ms=START_MS + 9 * DAY_MS)

    assert replies.told() == [("hosted", "a", "b"), ("hosted", "b", "a")]


def test_another_model_under_the_same_fingerprint_is_drift(replies: Replies) -> None:
    """And what is not reported is null, never an empty name."""
    replies.report(None, model="m-1", at_ms=START_MS)
    replies.report(None, model="m-2", at_ms=START_MS + 1)

    (event,) = replies.store.reader.events(kind=drift.KIND)
    assert json.loads(event.detail_json) == {
        "from": {"model": "m-1", "fingerprint": None},
        "to": {"model": "m-2", "fingerprint": None},
        "is_last": False,
    }
    assert event.at_ms == START_MS + 1


def test_an_attempt_that_reports_nothing_is_no_drift(replies: Replies) -> None:
    """A refused connection has no model."""
    replies.report("a")
    replies.report(None, model=None)

    assert replies.told() == []


def test_an_endpoint_that_reports_something_new_each_time_is_soon_passed_over(
    replies: Replies,
) -> None:
    """Its last event says so; the table and the events stay small."""
    for number in range(drift.MAX_PAIRS + 10):
        replies.report(f"random-{number}", at_ms=START_MS + number)

    events = replies.store.reader.events(kind=drift.KIND)
    lasts = [json.loads(event.detail_json)["is_last"] for event in events]
    assert len(events) == drift.MAX_PAIRS - 1
    assert lasts == [True] + [False] * (len(events) - 1)
    assert replies.store.reader.stats().num_rows["reported"] == drift.MAX_PAIRS


def test_a_name_as_long_as_a_book_is_remembered_by_its_beginning(replies: Replies) -> None:
    """Of a thousand pairs each was held whole: a megabyte each made a gigabyte of the client."""
    for number in range(3):
        replies.report("fp", model=f"{number}\ud800\0" + "x" * 1_000_000)

    assert len(replies.told()) == 2
    assert max(len(pair.model) for pair in replies.store._drift._known) == MAX_TEXT


def test_of_many_processes_one_raises_the_event(
    open_store: OpenStore, make_attempt: MakeAttempt
) -> None:
    """Eight that see the same new fingerprint at the same moment."""
    first = Replies(open_store(), make_attempt)
    first.report("a")
    watches = [drift.DriftWatch(open_store()._database) for _ in range(8)]
    for number, watch in enumerate(watches):
        watch.see(
            make_attempt(
                f"n{number}",
                endpoint="hosted",
                reported_model="m-1",
                reported_fingerprint="b",
                started_at_ms=START_MS + number,
            )
        )

    threads = [threading.Thread(target=watch.settle) for watch in watches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert first.told() == [("hosted", "a", "b")]


def test_a_program_that_ends_at_once_still_notes_what_it_saw(
    store_config: StoreConfig, make_attempt: MakeAttempt
) -> None:
    """No upkeep has come by then."""
    for fingerprint in ("a", "b"):
        with Store(store_config) as store:
            store.recorder.record_attempt(
                make_attempt(
                    fingerprint,
                    endpoint="hosted",
                    reported_fingerprint=fingerprint,
                    version_digest=None,
                    started_at_ms=START_MS,
                )
            )

    with Store(store_config) as store:
        assert [event.kind for event in store.reader.events()] == [drift.KIND]


def test_what_the_database_refused_is_settled_later(
    open_store: OpenStore, make_attempt: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that was seen is forgotten by an outage."""
    replies = Replies(open_store(), make_attempt)
    replies.report("a")
    watch = replies.store._drift
    watch.see(make_attempt("x", endpoint="hosted", reported_fingerprint="b"))

    def refuse(self: Database, **_options: object) -> None:
        raise self.error("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(Database, "write", refuse)
        with pytest.raises(StoreError):
            watch.settle()
    watch.settle()

    assert [new for _, _, new in replies.told()] == ["b"]


def test_a_known_pair_costs_no_transaction(
    replies: Replies, make_attempt: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is due to be said again, an hour later."""
    replies.report("a")
    watch = replies.store._drift

    watch.see(make_attempt("x", endpoint="hosted", reported_model="m-1", reported_fingerprint="a"))

    assert watch._news == {}


def test_an_engine_of_ours_that_moved_to_another_version_has_not_drifted(replies: Replies) -> None:
    """Its replies say which version wrote them: a moved pin is on record as that."""
    replies.report("v1", version_digest="1" * 64)
    replies.report("v2", model="m-2", version_digest="2" * 64)

    assert replies.told() == []
