"""Reads every stored byte again and compares it with the digest noted when it was stored."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from failsoft.engine.models.convert import RECORD_NAME
from failsoft.engine.models.disk import sha256_file
from failsoft.engine.models.model_files import read_json
from failsoft.engine.models.progress import Advance, byte_progress
from failsoft.engine.models.store import ModelStore, StoredFile
from failsoft.engine.models.version import FileDigest, files_digest


class FileCheck(NamedTuple):
    """What became of one stored file."""

    path: str
    """Below the store's folder."""
    expected: str
    """Noted sha256 in hex."""
    actual: str | None
    """Measured sha256 in hex; None when the file is missing."""

    @property
    def is_good(self) -> bool:
        """Whether the bytes are the noted ones."""
        return self.expected == self.actual


def verify_model(
    digest: str, *, store: ModelStore, conversions: Iterable[Path] | None = None
) -> list[FileCheck]:
    """Return a check for each file of the model stored under *digest* and of its conversions.

    The list starts with the model itself: its files' noted digests must give *digest*.

    Args:
        digest: Of the model.
        store: Where it is.
        conversions: Folders of the conversions to read; None reads all there are.
    """
    folder = store.root / "models" / digest
    if conversions is None:
        conversions = store.conversions(digest)
    groups = [(folder / "files", _noted(folder / "manifest.json"))]
    groups += [(path, _noted(path / RECORD_NAME)) for path in conversions]
    noted = tuple(FileDigest(f.path, f.sha256) for f in groups[0][1])
    whole = FileCheck(
        f"models/{digest}/manifest.json", digest, files_digest(noted) if noted else None
    )
    total = sum(file.size_bytes for _, files in groups for file in files)
    with byte_progress(f"verifying {digest[:12]}", total) as step:
        checks = [_check(path, file, store, step) for path, files in groups for file in files]
    return [whole, *checks]


def _noted(path: Path) -> tuple[StoredFile, ...]:
    record: dict[str, Any] = read_json(path)
    return tuple(StoredFile(**file) for file in record.get("files", ()))


def _check(folder: Path, file: StoredFile, store: ModelStore, step: Advance) -> FileCheck:
    path = folder / file.path
    actual = sha256_file(path, step) if path.is_file() else None
    return FileCheck(str(path.relative_to(store.root)), file.sha256, actual)
