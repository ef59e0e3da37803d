"""The store's word: how calls ended, what failed last, what happened, what was dropped.

Knows nothing of verdicts. It only reads: a database that is not there is not made, one of
another revision is not touched. Stamps are UTC epoch milliseconds.
"""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from failsoft.call_records import AttemptRecord, CallOutcome, EventRecord
from failsoft.config.settings import StoreConfig
from failsoft.dashboard.standing import LastReply, Traffic, Unknown, UnknownWindow, Window
from failsoft.errors import ConfigError, StoreError
from failsoft.pin_records import Pin, PinMove
from failsoft.store.database import Database
from failsoft.store.migrate import current_revision
from failsoft.store.pin_reader import PinReader
from failsoft.store.reader import StoreReader
from failsoft.store.schema import HEAD
from failsoft.store.traffic import CallEnd, LadderTraffic, TrafficReader

WINDOWS_S = (300, 3_600, 86_400)
RECENT_S = 60
NUM_RECENT = 200
"""Newest calls looked at, per ladder."""
OTHER_RUNGS = "other rungs"
"""Replies of rungs that the ladder no longer has; no endpoint's name holds a space."""
NUM_EVENTS = 300
"""Newest events looked at: enough to find when a rung fell behind a flood of probes."""

_KEPT_TIMES = 30
"""A count is kept for so many times what it took, so that counting takes a thirtieth of the
time at most: a busy day's half second is 15 s old, a quiet one's millisecond is always fresh."""
_LEAST_S = 0.05
"""What a query gets when the time is over: five minutes of calls can be counted in it."""
_BROKEN = (CallOutcome.FAILED, CallOutcome.INCOMPLETE, CallOutcome.DEADLINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerReading:
    """What the store says."""

    traffic: Mapping[str, Traffic]
    """By ladder; one without calls has windows of zero calls."""
    recent: Mapping[str, tuple[CallEnd, ...]]
    """By ladder: calls that began in the last `RECENT_S`, newest first."""
    last_failures: Mapping[str, AttemptRecord]
    """By endpoint."""
    events: tuple[EventRecord, ...]
    """Newest first."""
    dropped_24h: Mapping[str, int]
    """By kind; what all processes together could not keep."""
    pins: Mapping[str, Pin]
    """By slot."""
    holding_moves: Mapping[str, PinMove]
    """What put each slot's pin where it is."""
    open_moves: tuple[PinMove, ...]
    """Those under way."""


class _Kept(NamedTuple):
    """A window that was counted a moment ago, or could not be."""

    window: Window | UnknownWindow
    until_s: float
    """Monotonic seconds."""


class Ledger:
    """One store, opened at the first look; any thread.

    Args:
        config: Which database.
        limit_s: Seconds that one query may take, and all that depend on the store's size together.
    """

    def __init__(self, config: StoreConfig, *, limit_s: float) -> None:
        self._config = config
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._database: Database | None = None
        self._kept: dict[tuple[str, tuple[str, ...], int], _Kept] = {}

    def read(self, ladders: Mapping[str, Sequence[str]], *, now_ms: int) -> LedgerReading | Unknown:
        """Return what the store says of *ladders* (name to endpoints), or why it says nothing.

        One reads at a time: while a database hangs, those who come later must not pile up.
        """
        if not self._lock.acquire(timeout=self._limit_s):
            return Unknown(reason="it has not answered an earlier look yet")
        try:
            database = self._open()
            if isinstance(database, Unknown):
                return database
            return self._read(database, ladders, now_ms)
        except (StoreError, ConfigError) as exc:
            return Unknown(reason=str(exc))
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close its connections; the next look opens new ones."""
        database, self._database = self._database, None
        if database is not None:
            database.dispose()

    def _open(self) -> Database | Unknown:
        if self._database is not None:
            return self._database
        path = self._config.url.removeprefix("sqlite:///")
        if self._config.is_sqlite and not os.path.exists(path):
            return Unknown(reason=f"there is no store at {path} yet: no call was recorded")
        database = Database(self._config, environ=os.environ)
        if (revision := current_revision(database)) != HEAD:
            database.dispose()
            return Unknown(reason=_other_revision(database.shown_url, revision))
        self._database = database
        return database

    def _read(
        self, database: Database, ladders: Mapping[str, Sequence[str]], now_ms: int
    ) -> LedgerReading:
        """Ask what costs nothing first: a busy day that cannot be counted hides no incident."""
        until_s = time.monotonic() + self._limit_s
        reader = StoreReader(database)
        traffic = TrafficReader(database, limit_s=self._limit_s)
        day_ms = now_ms - WINDOWS_S[-1] * 1000
        recent_ms = now_ms - RECENT_S * 1000
        endpoints = dict.fromkeys(name for names in ladders.values() for name in names)
        recent = {
            name: tuple(traffic.newest(name, since_ms=recent_ms, limit=NUM_RECENT))
            for name in ladders
        }
        last_failures = traffic.last_failures(list(endpoints))
        pins = PinReader(database)
        events, dropped = tuple(reader.events(limit=NUM_EVENTS)), reader.dropped(since_ms=day_ms)
        late = _Late(database, until_s)
        windows = {
            (name, seconds): self._window(late, name, tuple(rungs), seconds=seconds, now_ms=now_ms)
            for seconds in WINDOWS_S
            for name, rungs in ladders.items()
        }
        return LedgerReading(
            traffic={
                name: Traffic(
                    windows=tuple(windows[name, seconds] for seconds in WINDOWS_S),
                    last_reply=late.last_reply(name, since_ms=day_ms),
                )
                for name in ladders
            },
            recent=recent,
            last_failures=last_failures,
            events=events,
            dropped_24h=dropped,
            pins=pins.pins(),
            holding_moves=pins.holding_moves(),
            open_moves=tuple(pins.open_moves()),
        )

    def _window(
        self, late: "_Late", ladder: str, rungs: tuple[str, ...], *, seconds: int, now_ms: int
    ) -> Window | UnknownWindow:
        key = (ladder, rungs, seconds)
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() < kept.until_s:
            return kept.window
        begun_s = time.monotonic()
        window: Window | UnknownWindow
        try:
            found = late.reader().counts(ladder, rungs, since_ms=now_ms - seconds * 1000)
            window = window_of(found, seconds)
        except StoreError as exc:
            if seconds == WINDOWS_S[0]:
                raise  # what cannot even count five minutes is broken
            window = UnknownWindow(window_s=seconds, reason=str(exc))
        took_s = time.monotonic() - begun_s
        self._kept[key] = _Kept(window, until_s=begun_s + took_s * _KEPT_TIMES)
        return window


class _Late(NamedTuple):
    """Queries that may take long on a big store, all of them together until *until_s*."""

    database: Database
    until_s: float
    """Monotonic seconds."""

    def reader(self) -> TrafficReader:
        """Return a reader whose query has what is left of the time, and hardly any after it."""
        left_s = round(max(_LEAST_S, self.until_s - time.monotonic()), 2)
        return TrafficReader(self.database, limit_s=left_s)

    def last_reply(self, ladder: str, *, since_ms: int) -> LastReply | Unknown | None:
        """Return *ladder*'s newest complete reply; a ladder without one is looked through whole."""
        try:
            end = self.reader().last_reply(ladder, since_ms=since_ms)
        except StoreError as exc:
            return Unknown(reason=str(exc))
        return None if end is None else LastReply(rung=end.endpoint or "?", at_ms=end.started_at_ms)


def is_broken(end: CallEnd) -> bool:
    """Whether a caller who stayed got no whole reply, and it was not the caller's fault."""
    return end.outcome in _BROKEN


def window_of(found: LadderTraffic, window_s: int) -> Window:
    """Return one ladder's counts of one window."""
    others = {OTHER_RUNGS: found.num_other_replies} if found.num_other_replies else {}
    return Window(
        window_s=window_s,
        replies={**found.replies, **others},
        num_failed=sum(found.outcomes[outcome] for outcome in _BROKEN),
        num_rejected=found.outcomes[CallOutcome.REJECTED],
        num_cancelled=found.outcomes[CallOutcome.CANCELLED],
    )


def _other_revision(url: str, revision: str | None) -> str:
    if revision is None:
        return f"the store {url} is empty: no call was recorded"
    return f"the store {url} is at revision {revision}, not {HEAD}: run `failsoft db upgrade`"
