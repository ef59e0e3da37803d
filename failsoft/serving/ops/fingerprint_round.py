"""One look at every endpoint's fingerprint: what is said, and what becomes an event.

One endpoint after the other, so that never more than one is asked. An endpoint that is down,
or too busy to answer in time, is no change. One that alternates between models, or lies at a
limit, would be news at each look: so a day has `MAX_TOLD` events of one endpoint, and the last
says that it is. A reference costs an endpoint elsewhere eight checks: one that breaks them off
is left alone for a while that doubles, and none is taken of what is not told. Stamps are UTC
epoch milliseconds.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from failsoft.call_records import EventRecord
from failsoft.config.settings import Settings
from failsoft.errors import FingerprintError, FirstLookError, StoreError
from failsoft.fallback.discovery import EngineFinder
from failsoft.fallback.fingerprint import references
from failsoft.fallback.fingerprint.check import check, renew_reference
from failsoft.fingerprint_status import (
    FingerprintStanding,
    Verdict,
    read_fingerprints,
    write_fingerprints,
)
from failsoft.serving.ops.found import Found, found_by
from failsoft.serving.ops.reference_wait import backed_off, carried, ended, must_wait
from failsoft.serving.ops.watched import Unseen, Watched, watch
from failsoft.store import Store

CHANGED = "fingerprint.changed"
UNCLEAR = "fingerprint.unclear"
MAX_TOLD = 6
_DAY_MS = 86_400_000
_EVENTS: Mapping[Verdict, str] = {"changed": CHANGED, "unclear": UNCLEAR}
_log = logging.getLogger(__name__)


class FingerprintRound:
    """Looks at all endpoints of one settings file.

    Args:
        settings: The endpoints.
        home: failsoft's folder.
        environ: Where API keys are.
        clock: UTC epoch seconds.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        home: Path,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._home = home
        self._environ = environ
        self._clock = clock
        self._finder = EngineFinder(home)
        self._unwritten: dict[str, FingerprintStanding] | None = None
        """What the file lacks; None when it has everything."""

    async def run(self, store: Store) -> dict[str, FingerprintStanding]:
        """Check every endpoint once; record events, publish and return where each stands.

        Raises:
            StoreError: The store cannot be read.
        """
        unwritten = self._unwritten
        before = read_fingerprints(self._home) if unwritten is None else unwritten
        standings: dict[str, FingerprintStanding] = {}
        for one in watch(self._settings, self._finder, self._environ):
            standing = await self._look_safely(one, before.get(one.endpoint), store)
            standings[one.endpoint] = standing
            self._publish({**before, **standings})
        self._publish(standings)
        return standings

    def _publish(self, standings: dict[str, FingerprintStanding]) -> None:
        """Write *standings*; on a full disk they are remembered, so that no wait is lost."""
        try:
            write_fingerprints(self._home, standings)
        except OSError as exc:
            if self._unwritten is None:
                _log.warning("what fingerprints say cannot be written: %s", exc)
            self._unwritten = standings
        else:
            self._unwritten = None

    async def _look_safely(
        self, one: Watched | Unseen, before: FingerprintStanding | None, store: Store
    ) -> FingerprintStanding:
        try:
            return await self._look(one, before, store)
        except StoreError:
            raise
        except Exception as exc:  # noqa: BLE001 - a bug of ours must not cost the others their look
            _log.exception("a bug ended the look at endpoint %s", one.endpoint)
            return self._unseen(one.endpoint, f"a bug in failsoft: {type(exc).__name__}", before)

    async def _look(
        self, one: Watched | Unseen, before: FingerprintStanding | None, store: Store
    ) -> FingerprintStanding:
        if isinstance(one, Unseen):
            return self._unseen(one.endpoint, one.why, before)
        if before is not None and await self._waits_for_a_reference(one, before, store):
            return before
        is_lost = False
        try:
            proof = await check(
                one.asked,
                subject=one.subject,
                digest=one.digest,
                store=store.fingerprints,
                was_unclear=_was_unclear(one, before),
            )
            found = found_by(proof)
        except FirstLookError as exc:
            return self._failed_reference(one, exc, before, store)
        except FingerprintError as exc:
            if exc.is_down:
                return self._unseen(one.endpoint, str(exc), before)
            found = Found(verdict="unclear", why=str(exc))
            is_lost = True
        standing = self._judged(one, found, before, store)
        # A proxy's page while a server is replaced would make the new weights the reference.
        is_lasting = found.verdict == "unclear" and _was_unclear(one, before)
        if one.digest is None and (is_lasting or found.verdict == "changed"):
            is_blind = is_lasting and not is_lost
            return await self._follow(one, standing, store, is_blind=is_blind)
        return standing

    def _judged(
        self, one: Watched, found: Found, before: FingerprintStanding | None, store: Store
    ) -> FingerprintStanding:
        """Return where *one* stands by what was found; what is news is recorded."""
        is_news = before is None or (before.verdict, before.subject) != (found.verdict, one.subject)
        told = _told_lately(before, now_ms=self._now_ms())
        if before is not None and found.verdict in _EVENTS:
            # It was compared with what it had become, or is to be now: this is another change.
            is_news |= before.is_followed or len(told) < MAX_TOLD <= len(before.told_at_ms)
        standing = self._standing(one, found, None if is_news else before)
        standing = replace(standing, told_at_ms=told)
        if found.verdict in _EVENTS:
            standing = carried(standing, before)
            if is_news:
                standing = self._record(standing, store)
        return standing

    async def _follow(
        self, one: Watched, standing: FingerprintStanding, store: Store, *, is_blind: bool
    ) -> FingerprintStanding:
        """Take what an endpoint elsewhere is now as what it is compared with from now on.

        So also one that cannot be asked as before, at two looks in a row: it is asked in the best
        way that is left. A version of ours keeps its reference: its digest says what it must be.
        Where no reference can be taken, the standing remains, which is told already, and a later
        round tries again. One that alternates is left at what it is, once it is told no more: a
        reference at each look would cost eleven times what a check does. One that can be asked
        and compared with nothing had its reference taken at a bad time, while replicas were
        replaced: it gets another, less and less often, for the next may be no better.
        """
        is_untold = len(standing.told_at_ms) >= MAX_TOLD
        if is_untold or must_wait(standing, now_ms=self._now_ms()):
            return standing
        try:
            await renew_reference(one.asked, subject=one.subject, store=store.fingerprints)
        except FirstLookError:
            return backed_off(standing, now_ms=self._now_ms())
        except FingerprintError:
            return standing
        if is_blind:
            return backed_off(standing, now_ms=self._now_ms())
        return ended(replace(standing, is_followed=True))

    async def _waits_for_a_reference(
        self, one: Watched, before: FingerprintStanding, store: Store
    ) -> bool:
        if before.subject != one.subject or not must_wait(before, now_ms=self._now_ms()):
            return False
        found = await asyncio.to_thread(references.find, store.fingerprints, one.subject)
        return found is None

    def _failed_reference(
        self, one: Watched, exc: FirstLookError, before: FingerprintStanding | None, store: Store
    ) -> FingerprintStanding:
        if exc.is_down:
            its_own = before if before is not None and before.subject == one.subject else None
            unseen = self._unseen(one.endpoint, str(exc), its_own)
            standing = replace(unseen, subject=one.subject)
        else:
            standing = self._judged(one, Found(verdict="unclear", why=str(exc)), before, store)
        # An engine of ours costs nobody anything: the next round tries again.
        return standing if one.digest else backed_off(standing, now_ms=self._now_ms())

    def _standing(
        self, one: Watched, found: Found, before: FingerprintStanding | None
    ) -> FingerprintStanding:
        now_ms = self._now_ms()
        return FingerprintStanding(
            endpoint=one.endpoint,
            subject=one.subject,
            verdict=found.verdict,
            why=found.why,
            verdict_at_ms=now_ms,
            since_ms=now_ms if before is None else before.since_ms,
            trouble=None,
            checked_at_ms=now_ms,
            took_s=found.took_s,
            mean=found.mean,
            mean_limit=found.mean_limit,
        )

    def _unseen(
        self, endpoint: str, why: str, before: FingerprintStanding | None
    ) -> FingerprintStanding:
        now_ms = self._now_ms()
        if before is not None:
            return replace(before, trouble=why, checked_at_ms=now_ms)
        return FingerprintStanding(
            endpoint=endpoint,
            subject=None,
            verdict=None,
            why=None,
            verdict_at_ms=None,
            since_ms=None,
            trouble=why,
            checked_at_ms=now_ms,
        )

    def _record(self, standing: FingerprintStanding, store: Store) -> FingerprintStanding:
        """Record the event of *standing* unless the day has had enough; return it as told."""
        assert standing.verdict is not None
        told = (*standing.told_at_ms, standing.checked_at_ms)
        if len(told) > MAX_TOLD:
            return standing
        detail = {
            "subject": standing.subject,
            "why": standing.why,
            "mean": standing.mean,
            "mean_limit": standing.mean_limit,
            "is_last": len(told) == MAX_TOLD,
        }
        store.recorder.record_event(
            EventRecord(
                kind=_EVENTS[standing.verdict],
                at_ms=standing.checked_at_ms,
                subject=standing.endpoint,
                detail_json=json.dumps(detail),
            )
        )
        return replace(standing, told_at_ms=told)

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def _told_lately(before: FingerprintStanding | None, *, now_ms: int) -> tuple[int, ...]:
    """Return when the last day's events were; a clock set back makes no day longer than any is."""
    told = () if before is None else before.told_at_ms
    return tuple(at_ms for at_ms in told if abs(now_ms - at_ms) < _DAY_MS)


def _was_unclear(one: Watched, before: FingerprintStanding | None) -> bool:
    """Return whether nobody could tell at the last look either, of what counts still."""
    return (
        before is not None
        and (before.verdict, before.subject) == ("unclear", one.subject)
        and not before.is_followed
    )
