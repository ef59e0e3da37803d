"""What references of endpoints elsewhere cost: none is paid for at every round."""

import pytest

from failsoft.errors import StoreError
from failsoft.fallback.fingerprint.probes import QUESTIONS
from failsoft.fingerprint_status import read_fingerprints
from failsoft.serving.ops.fingerprint_round import CHANGED, MAX_TOLD, UNCLEAR
from failsoft.serving.ops.reference_wait import FIRST_MS, MAX_MS
from failsoft.store.fingerprints import FingerprintStore
from tests.fallback.fingerprint.foreign import Foreign, only_chats
from tests.serving.ops.rounds import Clock, Rounds, look


def test_a_store_that_takes_no_reference_has_none_taken_at_every_round(
    rounds: Rounds, foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk can be read: 50 chats were paid every five minutes, and nobody else was seen."""
    clock = Clock()

    def full(*_arguments: object, **_rest: object) -> None:
        raise StoreError("disk is full", url="u", may_pass=True)

    with Foreign() as engine:
        rounds.publish(engine, "a" * 64)
        monkeypatch.setattr(FingerprintStore, "keep", full)
        standing = look(rounds, clock)
        asked = len(foreign.bodies)
        look(rounds, clock)

        assert asked > 48
        assert len(foreign.bodies) == asked
        assert standing.trouble == "its reference could not be kept: disk is full"
        assert read_fingerprints(rounds.home)["local"].trouble == standing.trouble
        monkeypatch.undo()
        assert look(rounds, clock).verdict == "new"


def test_a_change_whose_reference_is_not_kept_is_not_followed(
    rounds: Rounds, foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told, and tried again later."""
    clock = Clock()
    look(rounds, clock)
    foreign.weights = "two"

    def full(*_arguments: object, **_rest: object) -> None:
        raise StoreError("disk is full", url="u", may_pass=True)

    monkeypatch.setattr(FingerprintStore, "replace", full)
    standing = look(rounds, clock)
    monkeypatch.undo()

    assert (standing.verdict, standing.is_followed) == ("changed", False)
    assert standing.next_reference_at_ms == standing.checked_at_ms + FIRST_MS
    assert not look(rounds, clock).is_followed
    assert look(rounds, clock).is_followed


def test_an_endpoint_that_is_never_twice_the_same_gets_fewer_and_fewer_references(
    rounds: Rounds, foreign: Foreign
) -> None:
    """The next would show as little, and costs eight checks; it is told once."""
    clock = Clock()

    def another(path: str, body: dict[str, object]) -> int | None:
        foreign.weights = str(len(foreign.bodies))
        return only_chats(path, body)

    foreign.refuses = another
    asked = []
    for _ in range(4 * 60 // 5):
        before = len(foreign.bodies)
        look(rounds, clock)
        asked.append(len(foreign.bodies) - before)

    assert [number for number, num in enumerate(asked) if num > 40] == [0, 2, 4, 8, 16, 32]
    assert rounds.events() == [(UNCLEAR, "hosted")]


def test_an_endpoint_that_alternates_costs_three_checks_at_a_look_once_it_is_told_no_more(
    rounds: Rounds, foreign: Foreign
) -> None:
    """It cost a reference each five minutes besides: eleven checks, without end."""
    clock = Clock()
    asked = []
    for number in range(MAX_TOLD + 6):
        foreign.weights = ("one", "two")[number % 2]
        before = len(foreign.bodies)
        look(rounds, clock)
        asked.append(len(foreign.bodies) - before)

    assert min(asked[1:MAX_TOLD]) > 8 * len(QUESTIONS)
    assert max(asked[MAX_TOLD + 1 :]) <= 3 * len(QUESTIONS)
    foreign.weights = "three"
    assert not look(rounds, clock).is_followed
    clock.now_s += 86_400
    assert look(rounds, clock).is_followed
    assert look(rounds, clock).verdict == "same"
    assert rounds.events() == [(CHANGED, "hosted")] * (MAX_TOLD + 1)


def test_a_first_look_that_is_refused_halfway_is_not_begun_at_every_round(
    rounds: Rounds, foreign: Foreign
) -> None:
    """A rate limit was asked 48 chats every five minutes, for ever."""
    clock = Clock()
    answers = 10

    def limited(path: str, body: dict[str, object]) -> int | None:
        return 429 if len(foreign.bodies) > answers else only_chats(path, body)

    foreign.refuses = limited
    seen = []
    for _ in range(4 * 60 // 5):
        answers = len(foreign.bodies) + 10  # the limit is of a minute: each round has its share
        before = len(foreign.bodies)
        standing = look(rounds, clock)
        seen.append(len(foreign.bodies) - before)

    begun = [number for number, asked in enumerate(seen) if asked]
    assert begun == [0, 2, 6, 14, 30]  # after 10, 20, 40 and 80 minutes
    assert standing.trouble == "HTTP 429 to /chat/completions"
    assert standing.verdict is None
    foreign.refuses = only_chats
    clock.now_s += MAX_MS / 1000
    assert look(rounds, clock).verdict == "new"
    assert look(rounds, clock).next_reference_at_ms is None


def test_a_change_that_cannot_be_followed_is_not_tried_at_every_round(
    rounds: Rounds, foreign: Foreign
) -> None:
    """A reference of what it has become costs as much as the first."""
    clock = Clock()
    look(rounds, clock)
    foreign.weights = "two"
    checks = len(foreign.bodies) + 25  # three takings, and the first answers of a reference

    def limited(path: str, body: dict[str, object]) -> int | None:
        return 429 if len(foreign.bodies) > checks else only_chats(path, body)

    foreign.refuses = limited
    standing = look(rounds, clock)

    assert (standing.verdict, standing.is_followed) == ("changed", False)
    assert standing.next_reference_at_ms == standing.checked_at_ms + FIRST_MS
    foreign.refuses = only_chats
    assert not look(rounds, clock).is_followed
    assert look(rounds, clock).is_followed
    assert rounds.events() == [(CHANGED, "hosted")]
