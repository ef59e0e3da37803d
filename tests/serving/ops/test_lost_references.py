"""Endpoints elsewhere whose reference cannot be taken, or is of no use any more."""

from pathlib import Path

from failsoft.fingerprint_status import FingerprintStanding
from failsoft.serving.ops.fingerprint_round import (
    CHANGED,
    MAX_TOLD,
    UNCLEAR,
)
from failsoft.serving.ops.reference_wait import FIRST_MS, MAX_MS, backed_off, must_wait
from tests.fallback.fingerprint.foreign import Foreign, only_chats
from tests.serving.ops.rounds import Clock, Rounds, look


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


def test_a_reference_taken_while_replicas_were_replaced_is_not_kept_for_good(
    rounds: Rounds, foreign: Foreign
) -> None:
    """Half of its answers were of the old model: no later change was noticed any more."""
    clock = Clock()
    look(rounds, clock)
    foreign.weights = "two"
    checks = len(foreign.bodies) + 20  # three takings; what follows makes the new reference

    def mixed(path: str, body: dict[str, object]) -> int | None:
        if len(foreign.bodies) > checks:
            foreign.weights = ("one", "two", "four")[len(foreign.bodies) % 7 % 3]
        return only_chats(path, body)

    foreign.refuses = mixed
    seen = [look(rounds, clock)]
    foreign.refuses = only_chats
    foreign.weights = "two"
    seen += [look(rounds, clock) for _ in range(3)]
    foreign.weights = "three"
    seen.append(look(rounds, clock))

    assert [one.verdict for one in seen] == ["changed", "unclear", "unclear", "same", "changed"]
    assert rounds.events() == [(CHANGED, "hosted"), (UNCLEAR, "hosted"), (CHANGED, "hosted")]


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
