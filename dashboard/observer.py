"""Looks at everything once and hands out one `Standing`; what cannot be seen is unknown.

The files of the running processes say where to ask; then the front, each engine and the
store are asked at the same moment. Knows nothing of pages or terminals.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from failsoft.config.settings import Settings
from failsoft.dashboard.picture import Seen, draw
from failsoft.dashboard.sources.engines import ask_engine, late_engine
from failsoft.dashboard.sources.front import ask_front
from failsoft.dashboard.sources.ledger import Ledger, LedgerReading
from failsoft.dashboard.sources.local_http import LocalHttp
from failsoft.dashboard.sources.together import together
from failsoft.dashboard.standing import Engine, Standing, Unknown
from failsoft.fallback.discovery import EngineFinder, RunningEngine
from failsoft.fallback.pins.file_on_disk import FileOnDisk
from failsoft.fingerprint_status import read_fingerprints
from failsoft.front_status import FrontStatus
from failsoft.pin_records import PinnedVersion
from failsoft.run_state import FrontState, SupervisorState, read_front, read_supervisor

ASK_S = 1.0
"""What one answer gets; on an idle machine each takes a few milliseconds."""
ALL_S = 1.5
"""What all of them get, who are asked at once."""

_FRONT, _STORE = "the front", "the store"
"""Not slots: a slot's name holds no space."""
_Reading = FrontStatus | LedgerReading | Engine


class Observer:
    """Looks at one failsoft home; any thread.

    Args:
        home: failsoft's folder.
        settings: What ladders and engines there should be; Unknown when the file is broken.
        settings_path: Where they come from; None when that is not known.
        clock: UTC epoch seconds.
    """

    def __init__(
        self,
        home: Path,
        *,
        settings: Settings | Unknown,
        settings_path: Path | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._home = home
        self._settings = settings
        self._settings_path = settings_path
        self._clock = clock
        self._http = LocalHttp(limit_s=ASK_S)
        self._finder = EngineFinder(home)
        self._on_disk = FileOnDisk()
        self._ledger: Ledger | Unknown = (
            settings if isinstance(settings, Unknown) else Ledger(settings.store, limit_s=ASK_S)
        )

    def look(self) -> Standing:
        """Ask everybody and return the picture; takes `ALL_S` at most, and a little."""
        return draw(self._see(int(self._clock() * 1000)))

    def close(self) -> None:
        """Let go of connections."""
        self._http.close()
        if not isinstance(self._ledger, Unknown):
            self._ledger.close()

    def _see(self, now_ms: int) -> Seen:
        supervisor, front_state = read_supervisor(self._home), read_front(self._home)
        places = {slot: self._finder.find(slot) for slot in self._slots(supervisor)}
        said = together(self._asks(front_state, places, now_ms), limit_s=ALL_S)
        front = said.pop(_FRONT, Unknown(reason="it does not run"))
        store = said.pop(_STORE)
        assert isinstance(front, FrontStatus | Unknown)
        assert isinstance(store, LedgerReading | Unknown)
        path = _path_of(supervisor, self._settings_path)
        return Seen(
            at_ms=now_ms,
            settings=self._settings,
            settings_path=path,
            supervisor=supervisor,
            front_state=front_state,
            front=front,
            engines={slot: _engine(slot, place, said[slot]) for slot, place in places.items()},
            store=store,
            fingerprints=read_fingerprints(self._home),
            file_pins=self._file_pins(path, store),
        )

    def _file_pins(
        self, path: str | None, store: LedgerReading | Unknown
    ) -> Mapping[str, PinnedVersion] | Unknown:
        """Return what the settings file pins; it is read only where a move may differ from it."""
        if isinstance(store, Unknown) or not any(pin.is_moved for pin in store.pins.values()):
            return {}
        if path is None:
            return Unknown(reason="nobody knows where the settings file is")
        said = self._on_disk.pins(Path(path))
        return Unknown(reason=said) if isinstance(said, str) else said

    def _asks(
        self, front: FrontState | None, places: Mapping[str, RunningEngine | str], now_ms: int
    ) -> dict[str, Callable[[], _Reading | Unknown]]:
        """Return what to ask: each engine by its slot, the store, and the front if there is one."""
        asks: dict[str, Callable[[], _Reading | Unknown]] = {
            slot: partial(ask_engine, slot, place, self._http) for slot, place in places.items()
        }
        asks[_STORE] = partial(self._read_store, now_ms)
        if front is not None:
            asks[_FRONT] = partial(ask_front, front, self._http)
        return asks

    def _slots(self, supervisor: SupervisorState | None) -> list[str]:
        """Return every slot that has, or should have, an engine."""
        slots: dict[str, None] = {}
        if not isinstance(self._settings, Unknown):
            pins = (endpoint.pin for endpoint in self._settings.endpoints.values())
            slots.update(dict.fromkeys(pin for pin in pins if pin is not None))
        children = supervisor.children if supervisor is not None else ()
        slots.update(dict.fromkeys(child.slot for child in children if child.slot is not None))
        return list(slots)

    def _read_store(self, now_ms: int) -> LedgerReading | Unknown:
        if isinstance(self._ledger, Unknown) or isinstance(self._settings, Unknown):
            return Unknown(reason="nobody knows where it is: the settings cannot be read")
        ladders = {name: ladder.rungs for name, ladder in self._settings.ladders.items()}
        return self._ledger.read(ladders, now_ms=now_ms)


def _engine(slot: str, place: RunningEngine | str, said: _Reading | Unknown) -> Engine:
    if isinstance(said, Unknown):
        return late_engine(slot, place, said)
    assert isinstance(said, Engine)
    return said


def _path_of(supervisor: SupervisorState | None, path: Path | None) -> str | None:
    if supervisor is not None:
        return supervisor.settings  # the file that a user edits; processes read a copy of it
    return None if path is None else str(path)
