"""Whether a version has shown that it may take a slot: by its evals, or by having held it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from failsoft.pin_records import EvalScore, MoveKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What speaks for the target of a move, or does not."""

    is_enough: bool
    words: str
    """What was found, as a sentence without its full stop."""
    is_accepted: bool = False
    """Whether it was not enough, and somebody took the target all the same."""


def judge_evidence(
    *,
    kind: MoveKind,
    target: Mapping[str, EvalScore],
    pinned: Mapping[str, EvalScore],
    was_confirmed: bool,
    accept_unproven: bool = False,
) -> Evidence:
    """Return whether a move of this *kind* may bring its target.

    An operator may go back to what held the slot before. Every other target needs an eval
    that is not worse than that of the version pinned now, on each eval set that both ran;
    where the pinned version ran none there is nothing to be worse than. An automatic move
    takes nothing but such an eval.

    >>> judge_evidence(kind=MoveKind.SET, target={}, pinned={}, was_confirmed=False).words
    'it has no eval and never held this slot'

    Args:
        kind: Who wants the move.
        target: The target's newest score on each eval set, by the set's name.
        pinned: The same of the version that the slot runs now.
        was_confirmed: Whether the target held this slot before.
        accept_unproven: Whether an operator takes the target whatever its evals say.
    """
    is_automatic = kind is MoveKind.AUTOMATIC
    if was_confirmed and not is_automatic:
        return Evidence(is_enough=True, words="it held this slot before")
    lack = _lack(target, pinned, was_confirmed=was_confirmed)
    if lack is None:
        return Evidence(is_enough=True, words=_praise(target, pinned))
    is_accepted = accept_unproven and not is_automatic
    return Evidence(is_enough=is_accepted, words=lack, is_accepted=is_accepted)


def _lack(
    target: Mapping[str, EvalScore], pinned: Mapping[str, EvalScore], *, was_confirmed: bool
) -> str | None:
    """Return in words what the evals lack; None when they are enough."""
    if not target:
        return "it has no eval" if was_confirmed else "it has no eval and never held this slot"
    common = sorted(target.keys() & pinned.keys())
    if pinned and not common:
        names = ", ".join(sorted(pinned))
        return f"it has no eval on a set that the pinned version ran ({names})"
    worse = [name for name in common if target[name].score < pinned[name].score]
    if worse:
        return f"its last eval is worse: {_compared(worse, target, pinned)}"
    return None


def _praise(target: Mapping[str, EvalScore], pinned: Mapping[str, EvalScore]) -> str:
    common = sorted(target.keys() & pinned.keys())
    if not common:
        scores = ", ".join(f"{name} {target[name].score:.3g}" for name in sorted(target))
        return f"it has an eval ({scores}), the pinned version has none"
    return f"its last eval is not worse: {_compared(common, target, pinned)}"


def _compared(
    names: list[str], target: Mapping[str, EvalScore], pinned: Mapping[str, EvalScore]
) -> str:
    return ", ".join(
        f"{name} {target[name].score:.3g} against {pinned[name].score:.3g}" for name in names
    )
