"""The settings that the children run by: the file's under the moved pins, kept and told."""

from collections.abc import Callable, Iterable
from pathlib import Path

from failsoft.config.settings import Settings
from failsoft.serving.supervisor.accepted import keep_copy
from failsoft.serving.supervisor.keeper import Keeper
from failsoft.serving.supervisor.moves.standing import Standing
from failsoft.serving.supervisor.needs import engines_needed
from failsoft.serving.supervisor.roster import Change, Roster


class ChildrenSettings:
    """Keeps the children's copy in line with what stands; one event loop owns it.

    Args:
        standing: What is to run.
        roster: The engines, which follow it.
        readers: Returns who reads the copy again when told: front and ops.
        home: failsoft's folder.
        num_cores: Cores that engines share.
        on_trouble: Told in words when the copy cannot be written.
    """

    def __init__(
        self,
        standing: Standing,
        *,
        roster: Roster,
        readers: Callable[[], Iterable[Keeper]],
        home: Path,
        num_cores: int,
        on_trouble: Callable[[str], None],
    ) -> None:
        self._standing = standing
        self._roster = roster
        self._readers = readers
        self._home = home
        self._num_cores = num_cores
        self._on_trouble = on_trouble
        self._kept: Settings | None = None

    def keep(self) -> None:
        """Write what children read.

        Raises:
            OSError: It cannot be written; what was there stays.
            PinError: A pinned version's settings cannot be read.
        """
        settings = self._standing.settings()
        if settings != self._kept:
            keep_copy(settings, home=self._home)
            self._kept = settings

    def tell(self) -> Change:
        """Have front and ops read it again, and the engines be what it asks for."""
        for keeper in self._readers():
            keeper.reload()
        return self.follow()

    def follow(self) -> Change:
        """Have the engines be what it asks for."""
        needs = engines_needed(self._standing.settings(), num_cores=self._num_cores)
        return self._roster.follow(needs)

    def apply(self) -> None:
        """Have everything run by what stands now."""
        before = self._kept
        try:
            self.keep()
        except OSError as exc:
            self._on_trouble(f"what children run by cannot be written: {exc}")
        if self._kept != before:
            self.tell()
        else:
            self.follow()

    def take(self, settings: Settings) -> Change:
        """Go by new *settings* of the file, of which children have their copy already."""
        self._standing.file = settings
        self._kept = self._standing.settings()
        return self.tell()
