"""Whether the engine on trial has the weights that its version had before: its fingerprint.

The comparison runs on a thread with an event loop of its own: it brings an HTTP client with it,
and a move that is taken back must not wait for it.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from failsoft.errors import FingerprintError
from failsoft.fallback.discovery import RunningEngine
from failsoft.serving.supervisor.moves.desk import PinDesk
from failsoft.serving.supervisor.moves.trial import TrialError

if TYPE_CHECKING:
    from failsoft.fallback.fingerprint.records import FingerprintProof
    from failsoft.store.fingerprints import FingerprintStore


class Weights:
    """Compares fingerprints with those that the store keeps.

    Args:
        desk: Asks the store.
    """

    def __init__(self, desk: PinDesk) -> None:
        self._desk = desk

    async def __call__(
        self, engine: RunningEngine, digest: str, *, is_awaited: bool
    ) -> dict[str, object]:
        """Return what to keep as proof; the first time its own answers become the reference.

        An engine that is too busy to tell is not refused: it has reported its digest.

        Args:
            engine: The running process.
            digest: The version that it reports.
            is_awaited: Whether its slot has no engine until this is over. No first reference is
                taken then, which is eight takings: the ops process takes it afterwards.

        Raises:
            TrialError: Its weights are not those that this version had.
            StoreError: References cannot be read or written.
        """
        if is_awaited and not await self._desk.do(
            lambda store: is_known(digest, store.fingerprints)
        ):
            words = "not compared: it is the first of this version, and callers wait"
            return {"words": words, "is_changed": None}
        store = await self._desk.do(lambda store: store.fingerprints)
        try:
            found = await _beside(lambda: check_weights(engine, digest, store))
        except FingerprintError as exc:
            if not exc.is_down:
                raise TrialError(f"its fingerprint: {exc}") from exc
            return {"words": f"not compared: {exc}", "is_changed": None}
        if found.is_changed:
            assert found.comparison is not None, "only what was compared has changed"
            raise TrialError(
                f"its weights are not those that this version had: {found.comparison.why}; look "
                "with `failsoft versions verify`"
            )
        return _as_proof(found)


def is_known(digest: str, store: "FingerprintStore") -> bool:
    """Return whether *store* keeps a reference of the version *digest* on this machine.

    Raises:
        StoreError: References cannot be read.
    """
    from failsoft.fallback.fingerprint import references
    from failsoft.fallback.fingerprint.machine import local_subject

    return references.find(store, local_subject(digest)) is not None


def check_weights(
    engine: RunningEngine, digest: str, store: "FingerprintStore"
) -> "FingerprintProof":
    """Return how *engine* compares with what *store* keeps of its version; blocks.

    Raises:
        FingerprintError: It does not answer in time, or reports another version.
        StoreError: References cannot be read or written.
    """
    from failsoft.fallback.fingerprint.check import check_running

    return asyncio.run(check_running(engine.url, engine.token, digest, store))


async def _beside(work: Callable[[], "FingerprintProof"]) -> "FingerprintProof":
    """Return what *work* returns; a thread that nobody waits for any more ends by itself."""
    future: Future[FingerprintProof] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as exc:  # noqa: BLE001 - it is raised again where it is awaited
            future.set_exception(exc)

    threading.Thread(target=run, name="failsoft-fingerprint", daemon=True).start()
    return await asyncio.wrap_future(future)


def _as_proof(found: "FingerprintProof") -> dict[str, object]:
    comparison = found.comparison
    words = "kept as the first of this version" if comparison is None else comparison.why
    return {
        "words": words,
        "is_changed": found.is_changed,
        "is_new_reference": found.is_new_reference,
        "num_takings": found.num_takings,
    }
