"""A reference and its noise, and what a new taking says against it: no network, no model."""

import random
from dataclasses import replace

import pytest

from failsoft.errors import FingerprintError
from failsoft.fallback.fingerprint.compare import compare
from failsoft.fallback.fingerprint.noise import MEAN_FLOOR, NUM_TAKINGS, limit, make_reference
from failsoft.fallback.fingerprint.records import Answer
from failsoft.fallback.fingerprint.stored import from_json, to_json
from tests.fallback.fingerprint.takings import greedy, plain, scored, several, taking


@pytest.mark.parametrize("noise", [0.0, 1e-5, 0.01, 0.1])
def test_an_unchanged_model_is_the_same_a_thousand_times(noise: float) -> None:
    """Whatever its noise is: the limits follow it. Seeds are fixed: nothing is left to chance."""
    reference = make_reference(several(noise))

    said = [compare(reference, scored(noise=noise, seed=seed)) for seed in range(1000)]

    assert [one.is_changed for one in said] == [False] * 1000


@pytest.mark.parametrize("noise", [0.0, 1e-5, 0.003, 0.01])
def test_a_shift_of_a_few_times_the_noise_is_a_change(noise: float) -> None:
    """Of each position by four times the noise, or by twice the floor where that is more."""
    reference = make_reference(several(noise))
    shift = max(4 * noise, 2 * MEAN_FLOOR)

    said = compare(reference, scored(noise=noise, seed=1, shift=shift))

    assert said.is_changed
    assert said.mean == pytest.approx(shift, rel=0.3)
    assert said.noise is not None
    assert said.mean is not None
    assert said.mean > said.noise.mean_limit


def test_one_position_far_off_is_a_change() -> None:
    """A mean over all of them would hide it."""
    reference = make_reference(several(1e-4))
    answer, *others = scored(noise=1e-4, seed=1).answers
    numbers = (answer.logprobs[0] - 0.2, *answer.logprobs[1:])

    said = compare(reference, taking([replace(answer, logprobs=numbers), *others]))

    assert said.is_changed
    assert said.mean is not None
    assert said.mean < MEAN_FLOOR


def test_below_the_floor_nothing_is_a_change() -> None:
    """An endpoint without any noise would else answer for its last bit."""
    reference = make_reference(several(0.0))

    assert compare(reference, scored(shift=0.9 * MEAN_FLOOR)).is_changed is False


def test_noise_that_hides_any_change_is_unclear() -> None:
    """It says so, and with which figure."""
    reference = make_reference(several(1.5))

    said = compare(reference, scored(noise=1.5, seed=1))

    assert said.is_changed is None
    assert "too far to see a change" in said.why


def test_the_same_text_as_other_tokens_is_another_tokenizer() -> None:
    """However alike the numbers are."""
    reference = make_reference(several(0.0))
    answer, *others = scored().answers
    other = Answer(tokens=answer.tokens[:-1], logprobs=answer.logprobs[:-1], margins=())

    said = compare(reference, taking([other, *others]))

    assert said.is_changed
    assert "another tokenizer" in said.why


def test_a_version_that_changes_under_the_takings_gives_no_reference() -> None:
    """Half of them would be of another model."""
    takings = [*several(0.0)[:-1], scored(digest="e" * 64)]

    with pytest.raises(FingerprintError, match="changed under"):
        make_reference(takings)


def test_a_reference_needs_its_number_of_takings() -> None:
    """The limits' factor is made for that many."""
    with pytest.raises(ValueError, match="8 takings"):
        make_reference(several(0.0)[:-1])


def test_an_answer_that_came_empty_once_does_not_take_the_numbers_of_the_others() -> None:
    """The first of eight decided whether there were any, and comparing raised a ValueError."""
    takings = [greedy("", "hello world"), *[greedy("hello", "hello world")] * (NUM_TAKINGS - 1)]

    reference = make_reference(takings)

    assert [len(probe.means) for probe in reference.probes] == [5, 11]
    assert compare(reference, greedy("hello", "hello world")).is_changed is False


def test_a_limit_is_exceeded_once_in_ten_thousand() -> None:
    """By a further value of the same normal distribution; 40,000 draws, 4 expected, seed fixed."""
    rng = random.Random(1)

    num_above = 0
    for _ in range(40_000):
        values = [rng.gauss(10, 4) for _ in range(NUM_TAKINGS)]
        num_above += rng.gauss(10, 4) > limit(values, least_spread=0.0)

    assert 0 < num_above < 12


def test_a_greedy_answer_that_leaves_where_it_was_close_is_no_change() -> None:
    """Two tokens within the noise of each other fall either way."""
    margins = [3.0] * 9 + [0.01] + [3.0] * 2
    reference = make_reference([greedy("abcdefghijkl", "yes", margins=margins)] * NUM_TAKINGS)

    close = compare(reference, greedy("abcdefghiXYZ", "yes", margins=margins))
    clear = compare(reference, greedy("abcXefghijkl", "yes", margins=margins))

    assert close.is_changed is False
    assert close.num_positions == 12
    assert clear.is_changed
    assert "differs at token 4, which led by 3 nats" in clear.why


def test_an_endpoint_that_parts_by_itself_widens_its_own_margin() -> None:
    """What its own takings did says what it may do again."""
    margins = [0.4] * 12
    takings = [greedy("abcdefghijkl", "0123456789", margins=margins)] * (NUM_TAKINGS - 1)
    reference = make_reference([*takings, greedy("abcdefghijXX", "0123456789", margins=margins)])

    said = compare(reference, greedy("abcdefghijkl", "01234567XX", margins=margins))

    assert reference.noise is not None
    assert reference.noise.margin_limit == pytest.approx(0.8)
    assert said.is_changed is False


def test_too_little_in_common_is_unclear() -> None:
    """Each answer parted where nobody can blame it: nothing is left to compare."""
    reference = make_reference([greedy("abcdefghijkl", margins=[0.0] * 12)] * NUM_TAKINGS)

    said = compare(reference, greedy("aXX", margins=[0.0] * 3))

    assert said.is_changed is None
    assert said.why == "only 1 of 12 positions can be compared"


def test_plain_texts_are_changed_when_most_of_the_stable_ones_are() -> None:
    """One other answer is chance; four of five are another model."""
    reference = make_reference([plain("a", "b", "c", "d", "e")] * NUM_TAKINGS)

    assert compare(reference, plain("a", "b", "c", "d", "x")).is_changed is False
    assert compare(reference, plain("a", "w", "x", "y", "z")).is_changed


def test_plain_texts_that_differ_by_themselves_are_unclear() -> None:
    """It is said plainly that nobody can tell."""
    takings = [plain(*(f"{i}{number % 2}" for i in range(5))) for number in range(NUM_TAKINGS)]

    said = compare(make_reference(takings), plain("a", "b", "c", "d", "e"))

    assert said.is_changed is None
    assert said.why.startswith("only 0 of 5 answers came alike each time")


def test_answers_that_say_nothing_are_no_proof_of_anything() -> None:
    """A model that thinks first says nothing in 12 tokens: every other one was the same as it."""
    reference = make_reference([plain(*("",) * 6)] * NUM_TAKINGS)

    silent, spoken = compare(reference, plain(*("",) * 6)), compare(reference, plain(*"abcdef"))

    assert silent.is_changed is None
    assert silent.why.startswith("only 0 of 6 answers came alike each time and said something")
    assert spoken.is_changed


def test_methods_do_not_mix() -> None:
    """A caller's mistake, and no verdict."""
    with pytest.raises(ValueError, match="greedy taking cannot meet a scored reference"):
        compare(make_reference(several(0.0)), greedy("a"))


@pytest.mark.parametrize(
    "takings",
    [
        several(0.01),
        [greedy("abc", "", *("abc",) * 4)] * NUM_TAKINGS,
        [plain("a", *("b",) * 5)] * NUM_TAKINGS,
    ],
    ids=["scored", "greedy", "text"],
)
def test_a_reference_survives_its_json(takings: list) -> None:  # type: ignore[type-arg]
    """To a millionth of a nat."""
    reference = make_reference(takings)

    again = from_json(to_json(reference))

    assert again is not None
    assert again.noise == reference.noise
    assert [probe.tokens for probe in again.probes] == [p.tokens for p in reference.probes]
    for probe, before in zip(again.probes, reference.probes, strict=True):
        assert probe.means == pytest.approx(before.means, abs=1e-6)
        assert probe.margins == pytest.approx(before.margins, abs=1e-6)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"probes_id": "another"}', "null"])
def test_a_reference_of_other_probes_is_of_no_use(text: str) -> None:
    """A later failsoft asks other things: a new one is taken."""
    assert from_json(text) is None
