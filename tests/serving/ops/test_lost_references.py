"""Endpoints elsewhere whose reference cannot be taken, or is of no use any more."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from failsoft.errors import StoreError
from failsoft.fallback.fingerprint.probes import QUESTIONS
from failsoft.fingerprint_status import FingerprintStanding, read_fingerprints
from failsoft.serving.ops.fingerprint_round import (
    CHANGED,
    MAX_TOLD,
    UNCLEAR,
    FingerprintRound,
)
from failsoft.serving.ops.reference_wait import FIRST_MS, MAX_MS, backed_off, must_wait
from failsoft.store import Store
from failsoft.store.fingerprints import FingerprintStore
from tests.fallback.fingerprint.foreign import Foreign, only_chats
from tests.serving.ops.rounds import Rounds

EVERY_S = 300


class Clock:
    """A clock that a test sets; UTC epoch seconds."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def foreign() -> Iterator[Foreign]:
    """Return an endpoint elsewhere that answers chats alone."""
    with Foreign(refuses=only_chats) as server:
        yield server


@pytest.fixture
def rounds(tmp_path: Path, foreign: Foreign) -> Rounds:
    """Return rounds that look at it."""
    return Rounds(tmp_path, foreign)


def look(rounds: Rounds, clock: Clock) -> FingerprintStanding:
    """Run one round; return where the endpoint elsewhere stands. Five minutes go by."""
    with Store(rounds.settings.store) as store:
        one = FingerprintRound(rounds.settings, home=rounds.home, environ={}, clock=clock)
        standing = asyncio.run(one.run(store))["hosted"]
    clock.now_s += EVERY_S
    return standing


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


def test_an_endpoint_that_is_down_is_asked_at_every_round(rounds: Rounds, foreign: Foreign) -> None:
    """One request that is refused costs nothing, and it may be back."""
    clock = Clock()
    foreign.refuses = lambda _path, _body: 503
    assert [look(rounds, clock).next_reference_at_ms for _ in range(3)] == [None] * 3

    foreign.refuses = only_chats
    assert look(rounds, clock).verdict == "new"


def test_log_probabilities_that_are_gone_are_told_and_the_texts_compared_from_then_on(
    rounds: Rounds, foreign: Foreign
) -> None:
    """It stayed unclear for good, so that no other model was noticed any more."""
    clock = Clock()
    look(rounds, clock)
    foreign.has_logprobs = False
    lost, still, after = (look(rounds, clock) for _ in range(3))
    foreign.weights = "two"
    other = look(rounds, clock)

    assert (lost.verdict, lost.why) == ("unclear", "its answers carry no log probabilities")
    assert (lost.is_followed, still.is_followed) == (False, True)
    assert (after.verdict, other.verdict) == ("same", "changed")
    assert "text alone" in (other.why or "")
    assert rounds.events() == [(UNCLEAR, "hosted"), (CHANGED, "hosted")]


def test_an_answer_of_no_use_at_one_look_does_not_make_other_weights_the_reference(
    tmp_path: Path,
) -> None:
    """A proxy's page while a server is replaced: what came up then was compared with itself."""
    clock = Clock()
    with Foreign() as foreign:
        rounds = Rounds(tmp_path, foreign)
        look(rounds, clock)
        foreign.refuses = only_chats
        lost = look(rounds, clock)
        foreign.refuses = lambda _path, _body: None
        foreign.weights = "two"
        after = look(rounds, clock)

    assert (lost.verdict, lost.is_followed) == ("unclear", False)
    assert after.verdict == "changed"
    assert (after.why or "").endswith("at the worst (limit 0.1)")  # scored, as it was before


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


def test_a_clock_that_was_set_back_silences_nobody(rounds: Rounds, foreign: Foreign) -> None:
    """Events told in what is now the future counted until it came."""
    clock = Clock()
    clock.now_s += 400 * 86_400
    for number in range(MAX_TOLD + 1):
        foreign.weights = ("one", "two")[number % 2]
        look(rounds, clock)
    clock.now_s -= 400 * 86_400
    foreign.weights = "three"

    look(rounds, clock)

    assert rounds.events() == [(CHANGED, "hosted")] * (MAX_TOLD + 1)


def test_another_model_is_noticed_where_no_margin_is_told(rounds: Rounds, foreign: Foreign) -> None:
    """Its answers part at the first token, which without a margin may be chance: not in all six."""
    foreign.num_alternatives = 1
    clock = Clock()
    look(rounds, clock)
    foreign.weights = "two"

    assert look(rounds, clock).verdict == "changed"


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


def test_waits_double_up_to_six_hours_and_no_clock_makes_one_longer() -> None:
    """One that was set back by a year would keep the endpoint unseen for a year."""
    standing = FingerprintStanding(
        endpoint="e",
        subject="s",
        verdict=None,
        why=None,
        verdict_at_ms=None,
        since_ms=None,
        trouble="t",
        checked_at_ms=0,
    )
    waits = []
    for _ in range(40):
        standing = backed_off(standing, now_ms=1000)
        waits.append((standing.next_reference_at_ms or 0) - 1000)

    assert waits[:7] == [FIRST_MS * 2**number for number in range(6)] + [MAX_MS]
    assert waits[-1] == MAX_MS
    assert must_wait(standing, now_ms=1000)
    assert not must_wait(standing, now_ms=1000 + MAX_MS)
    assert not must_wait(standing, now_ms=-400 * 86_400_000)
