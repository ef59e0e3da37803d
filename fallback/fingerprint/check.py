"""Checks a running endpoint against the reference that the store keeps of it.

A check that finds a change is repeated at once, twice, at other batch make-ups: what all three
find is no wobble. Units: seconds. Store work runs on threads of its own.
"""

import asyncio
import time

from failsoft.errors import FingerprintError
from failsoft.fallback.fingerprint.compare import compare
from failsoft.fallback.fingerprint.machine import local_subject
from failsoft.fallback.fingerprint.noise import make_reference
from failsoft.fallback.fingerprint.records import (
    Comparison,
    FingerprintProof,
    Method,
    Reference,
    Taking,
)
from failsoft.fallback.fingerprint.stored import SCHEMA, from_json, to_json
from failsoft.fallback.fingerprint.take import Asked, Taker, taker
from failsoft.store.fingerprints import FingerprintStore

AT_ONCE = 4
"""Probes under way together in a check: one batch, the cheapest."""
CONFIRM_AT_ONCE = (1, 2)
"""The same of its repeats."""
LIMIT_S = 60.0
"""What a whole check gets; a reference, which is eight of them, gets twice as much."""


async def check_running(
    url: str, token: str | None, digest: str, store: FingerprintStore
) -> FingerprintProof:
    """Check an engine of ours that should run the version *digest*.

    Where no reference of that version on this machine is kept, one is taken and kept.

    Args:
        url: Base URL, ending in ``/v1``.
        token: Its key; None for an engine without one.
        digest: The version digest, 64 hex digits.
        store: Keeps the references.

    Raises:
        FingerprintError: It does not answer in time, or reports another version.
        StoreError: The store cannot be read or written.
    """
    asked = Asked(url=url, authorization=f"Bearer {token}" if token else None, is_ours=True)
    return await check(asked, subject=local_subject(digest), store=store, digest=digest)


async def check(
    asked: Asked, *, subject: str, store: FingerprintStore, digest: str | None = None
) -> FingerprintProof:
    """Check *asked* against the reference kept under *subject*; take that first if there is none.

    Args:
        asked: Whom.
        subject: `local_subject` of a version, or the source of an endpoint elsewhere.
        store: Keeps the references.
        digest: What each answer must report as its version; None lets it report anything.

    Raises:
        FingerprintError: It does not answer in time, or reports another version.
        StoreError: The store cannot be read or written.
    """
    begun_s = time.monotonic()
    kept = await asyncio.to_thread(_find, store, subject)
    try:
        async with asyncio.timeout(LIMIT_S if kept else 2 * LIMIT_S), taker(asked) as by:
            if kept is None:
                takings = await by.take_several(await by.method())
                comparison = None
            else:
                takings, comparison = await _compare(kept, by, digest)
    except TimeoutError as exc:
        late = f"not done within {time.monotonic() - begun_s:.0f} s: it is busy, or hangs"
        raise FingerprintError(late, is_down=True) from exc
    _check_digest(takings, digest)
    if kept is None:
        await asyncio.to_thread(keep_reference, store, subject, make_reference(takings))
    return FingerprintProof(
        subject=subject,
        is_new_reference=kept is None,
        comparison=comparison,
        reported=takings[-1].reported,
        num_takings=len(takings),
        took_s=time.monotonic() - begun_s,
    )


async def renew_reference(asked: Asked, *, subject: str, store: FingerprintStore) -> Method:
    """Take a new reference of *asked* in place of the one that is kept; return its method.

    Raises:
        FingerprintError: It does not answer in time; the old one stays.
        StoreError: The store cannot be written.
    """
    try:
        async with asyncio.timeout(2 * LIMIT_S), taker(asked) as by:
            reference = make_reference(await by.take_several(await by.method()))
    except TimeoutError as exc:
        raise FingerprintError("not done in time: it is busy, or hangs", is_down=True) from exc
    await asyncio.to_thread(store.replace, subject, to_json(reference), schema=SCHEMA)
    return reference.method


def keep_reference(store: FingerprintStore, subject: str, reference: Reference) -> None:
    """Keep *reference*, unless another process was first.

    Raises:
        StoreError: The store cannot be written.
    """
    store.keep(subject, to_json(reference), schema=SCHEMA)


def _find(store: FingerprintStore, subject: str) -> Reference | None:
    """Return the reference of *subject*; one that is of no use any more is forgotten."""
    kept = store.find(subject)
    if kept is None:
        return None
    reference = from_json(kept.reference_json) if kept.schema == SCHEMA else None
    if reference is None:
        store.forget(subject)
    return reference


async def _compare(
    reference: Reference, by: Taker, digest: str | None
) -> tuple[list[Taking], Comparison]:
    """Compare up to three takings; return them, and what they say together."""
    takings: list[Taking] = []
    for at_once in (AT_ONCE, *CONFIRM_AT_ONCE):
        takings.append(await by.take(reference.method, at_once=at_once))
        _check_digest(takings, digest)
        comparison = compare(reference, takings[-1])
        if not comparison.is_changed:
            break
    return takings, comparison


def _check_digest(takings: list[Taking], digest: str | None) -> None:
    said = takings[-1].reported.version_digest
    if digest is not None and said != digest:
        now = "no version" if said is None else f"version {said[:16]}"
        raise FingerprintError(f"the running process reports {now}, not {digest[:16]}")
