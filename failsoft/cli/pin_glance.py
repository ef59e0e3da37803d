"""Where moved pins differ from a settings file, for commands that are about the file.

Only looks: a store that is not there is not made, one of another revision is not touched, and
one that cannot be read is no problem of the file's.
"""

from collections.abc import Mapping
from pathlib import Path

from failsoft.config.settings import Settings
from failsoft.errors import FailsoftError


def moved_away(settings: Settings, path: Path, environ: Mapping[str, str]) -> list[str]:
    """Return a line for each slot whose pin a move took away from what the file says.

    Args:
        settings: The file's.
        path: The file: its versions' paths count from its folder.
        environ: Where the store's password is.
    """
    store = settings.store
    if store.is_sqlite and not Path(store.url.removeprefix("sqlite:///")).exists():
        return []
    try:
        return _differences(settings, path, environ)
    except FailsoftError as exc:
        return [f"whether moves changed pins cannot be told: {exc}"]


def _differences(settings: Settings, path: Path, environ: Mapping[str, str]) -> list[str]:
    from failsoft.fallback.pins.history import moves_behind, pin_differences
    from failsoft.serving.supervisor.accepted import with_absolute_paths
    from failsoft.store.database import Database
    from failsoft.store.migrate import current_revision
    from failsoft.store.pin_reader import PinReader
    from failsoft.store.schema import HEAD

    database = Database(settings.store, environ=environ)
    try:
        if current_revision(database) != HEAD:
            return []  # of before there were pins; or a later one's, which its own failsoft reads
        store = PinReader(database)
        pins = store.pins()
        moved = [slot for slot, pin in pins.items() if pin.is_moved]
        history = [move for slot in moved for move in store.history(slot)]
    finally:
        database.dispose()
    absolute = with_absolute_paths(settings, base=path.absolute().parent)
    return pin_differences(absolute, pins, moves_behind(pins, history))
