"""Where the pins are that a command is about: the home, its settings, its store.

The store is that of the `failsoft up` which runs here, whatever the file was edited to since.
"""

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from failsoft.config.home import home_folder
from failsoft.config.schema import check_settings, load_settings, settings_file
from failsoft.config.settings import Settings, StoreConfig
from failsoft.errors import PinError
from failsoft.pin_records import PinMove
from failsoft.run_state import SupervisorState, accepted_settings, read_supervisor

if TYPE_CHECKING:
    from failsoft.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class PinPlace:
    """One home and what its settings say."""

    home: Path
    path: Path
    """The settings file."""
    settings: Settings
    """What the file says, paths absolute."""
    trouble: str | None
    """Why the file cannot be read, so that *settings* is what runs; None where it can."""
    running: Settings | None
    """What `failsoft up` runs by; None where none runs."""
    supervisor: SupervisorState | None

    @property
    def store_config(self) -> StoreConfig:
        """Where the pins are kept."""
        return (self.running or self.settings).store

    @property
    def nobody_runs(self) -> str:
        """That none runs here, as words that begin an error: most likely it runs elsewhere."""
        return (
            f"no `failsoft up` runs on {self.home} (one that another user started, or with another "
            "FAILSOFT_HOME, is not seen from here)"
        )

    def may_carry_out(self, move: PinMove) -> bool:
        """Return whether *move* is for the `failsoft up` of this folder, or nobody's yet."""
        from failsoft.serving.supervisor.moves.owner import is_same_owner, owner_name

        own, is_local = owner_name(self.home), self.store_config.is_sqlite
        return move.owner is None or is_same_owner(move.owner, own, is_local=is_local)

    def leaves_alone(self, move: PinMove) -> bool:
        """Return whether *move* waits for the `failsoft up` of this folder, which does not run."""
        return self.supervisor is None and self.may_carry_out(move)

    def used_slots(self) -> list[str]:
        """Return the slots that engines serve."""
        from failsoft.serving.supervisor.needs import engines_needed

        needs = engines_needed(self.running or self.settings, num_cores=1)
        return [need.slot for need in needs]

    def require_supervisor(self, slot: str) -> SupervisorState:
        """Return what carries moves out.

        Raises:
            PinError: None runs here.
        """
        if self.supervisor is None:
            raise PinError(
                f"{self.nobody_runs}, so nothing can move pin {slot}; start one only where none "
                "runs, then ask again",
                slot=slot,
            )
        return self.supervisor

    @contextmanager
    def open_store(self) -> Iterator["Store"]:
        """Yield the open store.

        Raises:
            StoreError: It cannot be opened.
            ConfigError: Its password's variable is not set.
        """
        from failsoft.store.store import Store

        with Store(self.store_config, environ=os.environ) as store:
            yield store


def find_place(config: Path | None) -> PinPlace:
    """Return where a command's pins are.

    A file that was not named may be broken while its `failsoft up` runs on: whoever rolls back
    must not have to mend it first.

    Args:
        config: The settings file that was named; None takes that of what runs here, else the
            one that `failsoft up` would take.

    Raises:
        ConfigError: The file cannot be read, and nothing runs by it or it was named.
    """
    home = home_folder(os.environ)
    supervisor = read_supervisor(home)
    running = _accepted(home) if supervisor is not None else None
    path = config or (Path(supervisor.settings) if supervisor is not None else settings_file(None))
    settings, problems = check_settings(path)
    trouble = None
    if settings is None:
        if config is not None or running is None:
            raise problems[0]
        settings, trouble = running, str(problems[0])
    return PinPlace(
        home=home,
        path=path,
        settings=_absolute(settings, path),
        trouble=trouble,
        running=running,
        supervisor=supervisor,
    )


def _accepted(home: Path) -> Settings | None:
    path = accepted_settings(home)
    return load_settings(path) if path.exists() else None


def _absolute(settings: Settings, path: Path) -> Settings:
    from failsoft.serving.supervisor.accepted import with_absolute_paths

    return with_absolute_paths(settings, base=path.absolute().parent)


def check_orphaned(place: PinPlace, move: PinMove | None) -> None:
    """Refuse to call *move* orphaned while what carries it out may be the one that runs here.

    Raises:
        PinError: It may.
    """
    if move is None or place.supervisor is None:
        return
    if place.may_carry_out(move):
        raise PinError(
            f"pin {move.slot}: the `failsoft up` of this folder runs (pid "
            f"{place.supervisor.pid}) and sees to this move: leave out --orphaned",
            slot=move.slot,
        )


def operator() -> str:
    """Return who runs this command, as the history names it."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no name for this user id
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
