"""Checks a running endpoint against the reference that the store keeps of it.

A check that finds a change, or whose answers parted too early to tell, is repeated at once, twice,
at other batch make-ups: what all three find is no wobble. Units: seconds. Store work runs on
threads of its own.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from failsoft.errors import FingerprintError, FirstLookError, StoreError
from failsoft.fallback.fingerprint import references
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
from failsoft.fallback.fingerprint.take import Asked, Taker, taker
from failsoft.store.fingerprints import FingerprintStore

AT_ONCE = 4
"""Probes under way together in a check: one batch, the cheapest."""
CONFIRM_AT_ONCE = (1, 2)
"""The same of its repeats."""
LIMIT_S = 60.0
"""What the first taking of a check gets. A reference, which is eight of them, gets twice as much,
and so does each repeat: it asks fewer at once, and what is found must not end as too slow."""


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
        FingerprintError: It does not answer in time, or reports another version; or this was the
            first look, and the store did not take the reference.
        StoreError: The store cannot be read.
    """
    asked = Asked(url=url, authorization=f"Bearer {token}" if token else None, is_ours=True)
    return await check(asked, subject=local_subject(digest), store=store, digest=digest)


async def check(
    asked: Asked,
    *,
    subject: str,
    store: FingerprintStore,
    digest: str | None = None,
    was_unclear: bool = False,
) -> FingerprintProof:
    """Check *asked* against the reference kept under *subject*; take that first if there is none.

    Args:
        asked: Whom.
        subject: `local_subject` of a version, or the source of an endpoint elsewhere.
        store: Keeps the references.
        digest: What each answer must report as its version; None lets it report anything.
        was_unclear: Whether nobody could tell at the last check either: one taking is enough to
            say so again.

    Raises:
        FirstLookError: There was no reference, and taking one was broken off or in vain: the
            store did not take it.
        FingerprintError: It does not answer in time, or reports another version.
        StoreError: The store cannot be read.
    """
    begun_s = time.monotonic()
    kept = await asyncio.to_thread(references.find, store, subject)
    async with taker(asked) as by:
        if kept is None:
            takings, reference = await _first_look(by)
            comparison = None
            _check_digest(takings, digest)
            await _keep(references.keep, store, subject, reference)
        else:
            takings, comparison = await _compare(kept, by, digest, was_unclear=was_unclear)
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
        FirstLookError: It was broken off, or the store did not take it; the old one stays.
        FingerprintError: It does not answer; the old one stays.
    """
    async with taker(asked) as by:
        _, reference = await _first_look(by)
    await _keep(references.replace, store, subject, reference)
    return reference.method


@asynccontextmanager
async def _limited(limit_s: float) -> AsyncIterator[None]:
    """End what takes longer as an endpoint that is busy, or hangs."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError as exc:
        late = f"not done within {limit_s:.0f} s: it is busy, or hangs"
        raise FingerprintError(late, is_down=True) from exc


async def _first_look(by: Taker) -> tuple[list[Taking], Reference]:
    """Return a new reference, and what it is made of; what breaks it off has cost something."""
    async with _limited(LIMIT_S):
        method = await by.method()
    try:
        async with _limited(2 * LIMIT_S):
            takings = await by.take_several(method)
        return takings, make_reference(takings)
    except FingerprintError as exc:
        raise FirstLookError(str(exc), status=exc.status, is_down=exc.is_down) from exc


async def _keep(
    put: Callable[[FingerprintStore, str, Reference], None],
    store: FingerprintStore,
    subject: str,
    reference: Reference,
) -> None:
    """Have *put* write *reference*; a store that only reads would have it taken at each round."""
    try:
        await asyncio.to_thread(put, store, subject, reference)
    except StoreError as exc:
        raise FirstLookError(f"its reference could not be kept: {exc}", is_down=True) from exc


async def _compare(
    reference: Reference, by: Taker, digest: str | None, *, was_unclear: bool
) -> tuple[list[Taking], Comparison]:
    """Compare up to three takings; return them, and what they say together."""
    takings: list[Taking] = []
    said: list[Comparison] = []
    for at_once in (AT_ONCE, *CONFIRM_AT_ONCE):
        async with _limited(2 * LIMIT_S if takings else LIMIT_S):
            takings.append(await by.take(reference.method, at_once=at_once))
        _check_digest(takings, digest)
        said.append(compare(reference, takings[-1]))
        if not said[-1].is_changed and (was_unclear or not said[-1].is_by_chance):
            return takings, said[-1]
    return takings, next((one for one in said if not one.is_changed), said[-1])


def _check_digest(takings: list[Taking], digest: str | None) -> None:
    said = takings[-1].reported.version_digest
    if digest is not None and said != digest:
        now = "no version" if said is None else f"version {said[:16]}"
        raise FingerprintError(f"the running process reports {now}, not {digest[:16]}")
