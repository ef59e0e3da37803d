"""Which `failsoft up` carries a move out, as the store names it: ``HOST:HOME``."""

import socket
from pathlib import Path


def owner_name(home: Path) -> str:
    """Return the name of the `failsoft up` of *home* on this machine."""
    return f"{socket.gethostname()}:{home}"


def is_same_owner(owner: str, own: str, *, is_local: bool) -> bool:
    """Return whether *owner* was a `failsoft up` of the folder that *own* names.

    Args:
        owner: Of a move.
        own: `owner_name` of the folder in question.
        is_local: Whether the store is a file here. Its moves are this machine's, whose name
            changes where it is a container; on a shared store many machines have such a folder.
    """
    return owner == own or (is_local and owner.partition(":")[2] == own.partition(":")[2])
