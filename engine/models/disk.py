"""Changes to the disk that a SIGKILL or a power cut cannot leave half-done.

A thing is built in a scratch folder of the same file system, flushed, and moved
into place by one rename. Locks are ``flock``: the kernel lets go of them when
their holder dies, however it dies. Knows nothing of models.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from failsoft.engine.models.progress import Advance

CHUNK_BYTES = 1024**2


@contextmanager
def file_lock(path: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file at *path* alone, among threads and processes; waits for it.

    Args:
        path: The lock file; made if missing and never deleted, since a second
            process may be waiting on it.
        on_wait: Called once if somebody else holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is not None:
                on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def scratch_folder(root: Path) -> Iterator[Path]:
    """Make an empty folder under *root* for the length of the block, then delete it.

    Folders whose makers died are deleted first. A maker shows that it lives by
    holding a lock, not by a process id, which another container may also use.
    """
    root.mkdir(parents=True, exist_ok=True)
    folder = root / uuid.uuid4().hex
    owner = folder.with_suffix(".lock")
    gate = root / ".gate"  # between making a lock file and holding it, it looks abandoned
    with owner.open("ab") as file:
        with file_lock(gate):
            fcntl.flock(file, fcntl.LOCK_EX)
            owner.touch()
            folder.mkdir()
            _delete_abandoned(root)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            owner.unlink(missing_ok=True)


def _delete_abandoned(root: Path) -> None:
    for owner in root.glob("*.lock"):
        with suppress(FileNotFoundError), owner.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(owner.with_suffix(""), ignore_errors=True)
            # A dead maker's child may still be writing; its folder then goes next time.
            if not owner.with_suffix("").exists():
                owner.unlink(missing_ok=True)
    for folder in root.iterdir():
        if folder.is_dir() and not folder.with_suffix(".lock").exists():
            shutil.rmtree(folder, ignore_errors=True)


def publish_folder(built: Path, final: Path) -> None:
    """Flush *built* and move it to *final* in one step; an equal one there already stays.

    Both must be on one file system, and *final* named by its content.
    """
    for path in [*built.rglob("*"), built]:
        _flush(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        built.rename(final)
    except OSError as exc:
        if exc.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
    _flush(final.parent)


def write_file(path: Path, data: bytes, *, scratch: Path) -> None:
    """Write *data* to *path* in one step, by way of the folder *scratch*."""
    temporary = scratch / uuid.uuid4().hex
    temporary.write_bytes(data)
    _flush(temporary)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.replace(path)
    _flush(path.parent)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def copy_hashed(
    reader: IO[bytes], writer: IO[bytes], hasher: "hashlib._Hash", step: Advance
) -> None:
    """Copy all of *reader* into *writer* and *hasher*, telling *step* of each chunk."""
    while chunk := reader.read(CHUNK_BYTES):
        writer.write(chunk)
        hasher.update(chunk)
        step(len(chunk))


def sha256_file(path: Path, step: Advance) -> str:
    """Return the sha256 of the file at *path* in hex, telling *step* of each chunk."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            hasher.update(chunk)
            step(len(chunk))
    return hasher.hexdigest()
