"""A new taking against a reference: changed, the same, or nobody can tell. Pure."""

from failsoft.fallback.fingerprint.distance import distances, shared_length
from failsoft.fallback.fingerprint.records import (
    Answer,
    Comparison,
    Method,
    Noise,
    ProbeReference,
    Reference,
    Taking,
)

MIN_POSITIONS = 8
"""Positions below which a mean says nothing."""
MAX_MEAN_LIMIT = 1.0
"""An endpoint whose own repeats lie this far apart hides any change, in nats: an unrelated model's
answers lie about 2 away."""
MIN_STABLE_TEXTS = 3
"""Under `Method.TEXT`: answers that always came alike, below which nobody can tell."""


def compare(reference: Reference, taking: Taking) -> Comparison:
    """Return what *taking* says of the endpoint that *reference* is of.

    Raises:
        ValueError: The two were taken by different methods.
    """
    if taking.method is not reference.method:
        raise ValueError(f"a {taking.method} taking cannot meet a {reference.method} reference")
    if reference.method is Method.TEXT:
        return _compare_texts(reference, taking)
    noise = reference.noise
    assert noise is not None
    if noise.mean_limit > MAX_MEAN_LIMIT:
        why = f"its own repeats lie {noise.mean:.3g} nats apart, too far to see a change"
        return Comparison(is_changed=None, why=why)
    parted = _parted(reference, taking, noise)
    if parted is not None:
        return Comparison(is_changed=True, why=parted)
    return _compare_numbers(reference, taking, noise)


def _parted(reference: Reference, taking: Taking, noise: Noise) -> str | None:
    """Say where an answer left the reference too clearly for chance; None when none did."""
    for number, (probe, answer) in enumerate(
        zip(reference.probes, taking.answers, strict=True), start=1
    ):
        position = shared_length(probe.tokens, answer.tokens)
        if position == len(probe.tokens) and not _is_longer(reference.method, probe, answer):
            continue
        if reference.method is Method.SCORED:
            return f"text {number} comes as other tokens: another tokenizer"
        margin = probe.margins[position] if position < len(probe.margins) else 0.0
        if margin > noise.margin_limit:
            return (
                f"answer {number} differs at token {position + 1}, which led by {margin:.3g} nats "
                f"(noise explains up to {noise.margin_limit:.3g})"
            )
    return None


def _is_longer(method: Method, probe: ProbeReference, answer: Answer) -> bool:
    """Return whether a scored text has more tokens; a greedy answer's reference may be cut."""
    return method is Method.SCORED and len(answer.tokens) > len(probe.tokens)


def _compare_numbers(reference: Reference, taking: Taking, noise: Noise) -> Comparison:
    distance = distances(reference.probes, taking.answers)
    num_positions = 0 if distance is None else distance.num_positions
    if (
        distance is None
        or 2 * num_positions < reference.num_positions
        or (num_positions < MIN_POSITIONS)
    ):
        return _compare_the_few(reference, taking, num_positions)
    is_changed = distance.mean > noise.mean_limit or distance.worst > noise.worst_limit
    return Comparison(
        is_changed=is_changed,
        why=f"{distance.mean:.3g} nats away on average (limit {noise.mean_limit:.3g}), "
        f"{distance.worst:.3g} at the worst (limit {noise.worst_limit:.3g})",
        mean=distance.mean,
        worst=distance.worst,
        noise=noise,
        num_positions=num_positions,
    )


def _compare_the_few(reference: Reference, taking: Taking, num_positions: int) -> Comparison:
    """Judge by the texts alone: where no margins are told, another model parts at once."""
    texts = _compare_texts(reference, taking)
    if texts.is_changed:
        return texts
    why = f"only {num_positions} of {reference.num_positions} positions can be compared"
    return Comparison(
        is_changed=None, why=why, num_positions=num_positions, is_by_chance=num_positions > 0
    )


def _compare_texts(reference: Reference, taking: Taking) -> Comparison:
    """Compare the answers that always came alike; most of them must differ for a change.

    Where nothing was said then and nothing is said now (a model that thinks first has no room
    for more) another model may say nothing as well.
    """
    stable = [
        probe.tokens == answer.tokens
        for probe, answer in zip(reference.probes, taking.answers, strict=True)
        if probe.is_stable and (any(probe.tokens) or any(answer.tokens))
    ]
    if len(stable) < MIN_STABLE_TEXTS:
        num_all = len(reference.probes)
        why = f"only {len(stable)} of {num_all} answers came alike each time and said something"
        return Comparison(is_changed=None, why=f"{why}, too few to see a change")
    num_other = stable.count(False)
    return Comparison(
        is_changed=2 * num_other > len(stable),
        why=f"{num_other} of {len(stable)} answers that always came alike differ (text alone)",
        num_positions=len(stable),
    )
