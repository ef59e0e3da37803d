"""How pins, moves and proofs are said, in a terminal and on pages alike. Pure.

Stamps are UTC epoch milliseconds.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from failsoft.pin_records import MoveKind, MoveState, PinMove, PinnedVersion, WantedRollback

DIGEST_CHARS = 12

_KINDS = {
    MoveKind.FILE: "settings file",
    MoveKind.SET: "set",
    MoveKind.ROLLBACK: "rollback",
    MoveKind.AUTOMATIC: "automatic rollback",
    MoveKind.FOLLOW_FILE: "follows the settings file again",
}


def digest_head(digest: str | None) -> str:
    """Return what people see of a digest.

    >>> digest_head("ab12" * 16), digest_head(None)
    ('ab12ab12ab12', 'digest not known yet')
    """
    return "digest not known yet" if digest is None else digest[:DIGEST_CHARS]


def version_words(version: PinnedVersion | None) -> str:
    """Return a version's name and the head of its digest."""
    if version is None:
        return "nothing"
    return f"{version.name} ({digest_head(version.digest)})"


def kind_words(kind: MoveKind) -> str:
    """Return who wanted a move, in words."""
    return _KINDS[kind]


def took_s(move: PinMove, *, now_ms: int) -> float:
    """Return the seconds from asking to the end, or to *now_ms*."""
    end_ms = now_ms if move.ended_at_ms is None else move.ended_at_ms
    return max(0.0, (end_ms - move.asked_at_ms) / 1000)


def state_s(move: PinMove, *, now_ms: int) -> float:
    """Return the seconds that *move* has been in its state."""
    return max(0.0, (now_ms - move.steps[-1].at_ms) / 1000)


def progress_words(move: PinMove, *, now_ms: int) -> str:
    """Return a move under way in one line."""
    wish = f"; {move.abort_by} wants it taken back" if move.abort_by is not None else ""
    if move.rollback is not None:
        wish += f"; {rollback_words(move.rollback)}"
    return (
        f"{kind_words(move.kind)} to {version_words(move.to)}: {move.state.value} for "
        f"{state_s(move, now_ms=now_ms):.1f} s, asked {took_s(move, now_ms=now_ms):.1f} s ago by "
        f"{move.who}: {move.why}{wish}"
    )


def rollback_words(wanted: WantedRollback) -> str:
    """Return who wants a move that has switched rolled back, where to, and why."""
    ask = wanted.ask
    return f"{ask.who} rolls it back to {version_words(ask.to)}: {ask.why}"


def end_words(move: PinMove) -> str:
    """Return how a move ended, as the end of a line."""
    if move.ended_at_ms is None:
        return move.state.value
    took = f"{move.state.value} after {took_s(move, now_ms=move.ended_at_ms):.1f} s"
    return took if move.reason is None else f"{took}: {move.reason}"


def proof_words(move: PinMove) -> list[str]:
    """Return what shows that a move's target really runs, a line for each thing."""
    if move.kind is MoveKind.FILE:
        return ["none: the settings file names it, no move brought it"]
    proof = read_proof(move)
    return list(_proof_lines(proof)) if proof else ["none is kept"]


def read_proof(move: PinMove) -> dict[str, Any] | None:
    """Return what is kept as proof of *move*; None where there is nothing."""
    try:
        proof = json.loads(move.proof_json or "null")
    except ValueError:
        return None
    return proof if isinstance(proof, dict) else None


def _proof_lines(proof: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(evidence := proof.get("evidence"), dict):
        accepted = ", and was taken all the same" if evidence.get("accepted") else ""
        yield f"evidence: {evidence.get('words')}{accepted}"
    if isinstance(digest := proof.get("digest"), str):
        yield f"process {proof.get('pid')} reported version {digest_head(digest)} of itself"
    if isinstance(smoke := proof.get("smoke"), list) and smoke:
        ends = ", ".join(_reply_words(reply) for reply in smoke)
        yield f"smoke replies under that version: {ends}"
    if isinstance(found := proof.get("fingerprint"), dict):
        yield f"fingerprint: {found.get('words') or json.dumps(found)}"
    if isinstance(seconds := proof.get("seconds"), dict):
        yield "seconds: " + ", ".join(f"{state} {spent:.1f}" for state, spent in seconds.items())


def _reply_words(reply: Mapping[str, Any]) -> str:
    return f"{reply.get('num_chars')} characters ({reply.get('finish_reason')})"


def what_runs_now(move: PinMove) -> str:
    """Return which version an ended move left the slot with."""
    if move.state is MoveState.CONFIRMED:
        return version_words(move.to)
    return "what it ran before" if move.left is None else f"{version_words(move.left)} as before"
