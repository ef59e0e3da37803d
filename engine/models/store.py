"""The store: model files kept under the digest of their bytes, in the user's cache folder.

```text
<root>/models/<digest>/manifest.json      what is stored, written last
<root>/models/<digest>/files/…            the bytes
<root>/conversions/<digest>-<dtype>-v<n>/ what GGUF files were converted to
<root>/sources/<sha256 of source>.json    which digest a source line gave
<root>/dtypes/…  locks/…  scratch/…
```

Everything under a digest appears by one rename, complete, and never changes.
Any thread or process may use one store at the same time. Knows nothing of torch.
"""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from failsoft.config.home import home_folder
from failsoft.engine.models.disk import file_lock, publish_folder, scratch_folder, write_file
from failsoft.engine.models.model_files import GGUF_NAME, TOKENIZER_FILES, read_json
from failsoft.engine.models.progress import notice
from failsoft.engine.models.version import FileDigest, canonical_json, files_digest
from failsoft.errors import ModelFileError


def default_root() -> Path:
    """Return the store's folder, which is failsoft's own."""
    return home_folder(os.environ)


class StoredFile(NamedTuple):
    """One file: its name inside its folder, the sha256 of its bytes, and their number."""

    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A model whose files are all in the store."""

    digest: str
    folder: Path
    """Holds the files under their names."""
    files: tuple[StoredFile, ...]
    licence: str | None
    """As the model's file says; None when it says nothing."""
    added_at: str
    """ISO 8601, UTC."""

    @property
    def is_gguf(self) -> bool:
        """Whether it is a lone GGUF file, to be converted before it loads."""
        return self.files[0].path == GGUF_NAME

    @property
    def size_bytes(self) -> int:
        """All files together."""
        return sum(file.size_bytes for file in self.files)

    @property
    def model_files(self) -> tuple[FileDigest, ...]:
        """The digests of all but the tokenizer's files."""
        return tuple(
            FileDigest(f.path, f.sha256) for f in self.files if f.path not in TOKENIZER_FILES
        )

    @property
    def tokenizer_digest(self) -> str:
        """Digest of the files the tokenizer is read from: a GGUF file's own for GGUF."""
        own = tuple(FileDigest(f.path, f.sha256) for f in self.files if f.path in TOKENIZER_FILES)
        return files_digest(own or self.model_files)

    def check_manifest(self) -> None:
        """Raise when the noted digests do not add up to the model's own.

        Raises:
            ModelFileError: Somebody changed the manifest: files that match it prove nothing.
        """
        noted = tuple(FileDigest(f.path, f.sha256) for f in sorted(self.files))
        actual = files_digest(noted) if noted else None
        if actual != self.digest:
            path = str(self.folder.parent / "manifest.json")
            raise ModelFileError(path=path, expected=self.digest, actual=actual)


class ModelStore:
    """All stored models, under one folder.

    Args:
        root: The folder; None takes ``default_root()``. It is made when first written.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = default_root() if root is None else root.absolute()

    def __repr__(self) -> str:
        return f"ModelStore({str(self.root)!r})"

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Hold the store's lock *name* alone for the length of a block, or wait for it."""
        return file_lock(
            self.root / "locks" / f"{name}.lock",
            on_wait=lambda: notice("waiting for another process that works on the same model"),
        )

    def scratch(self) -> AbstractContextManager[Path]:
        """Make an empty folder for the length of a block, on the store's file system."""
        return scratch_folder(self.root / "scratch")

    def model(self, digest: str) -> StoredModel | None:
        """Return the model stored under *digest*, or None.

        Raises:
            ModelFileError: A file is missing or has another size; ``verify`` also reads the bytes.
        """
        folder = self.root / "models" / digest
        manifest: dict[str, Any] = read_json(folder / "manifest.json")
        if not manifest:
            return None
        files = tuple(StoredFile(**file) for file in manifest["files"])
        check_sizes(folder / "files", files)
        return StoredModel(
            digest=digest,
            folder=folder / "files",
            files=files,
            licence=manifest["licence"],
            added_at=manifest["added_at"],
        )

    def digests(self) -> list[str]:
        """Return the digests of every stored model, sorted."""
        folder = self.root / "models"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def add(self, built: Path, *, files: tuple[StoredFile, ...], **facts: str | None) -> str:
        """Move the folder *built*, whose ``files`` folder is complete, into the store.

        What is stored under the same digest stays, unless it is damaged.

        Args:
            built: A scratch folder's child.
            files: What it holds; hashed already.
            facts: ``licence`` and ``added_at``.

        Returns:
            The digest it is stored under.
        """
        ordered = tuple(sorted(files))
        digest = files_digest(tuple(FileDigest(f.path, f.sha256) for f in ordered))
        manifest = {"files": [file._asdict() for file in ordered], **facts}
        (built / "manifest.json").write_bytes(canonical_json(manifest))
        final = self.root / "models" / digest
        if final.exists() and not _is_intact(final / "files", ordered):
            with self.scratch() as graveyard:
                final.rename(graveyard / digest)
        publish_folder(built, final)
        return digest

    def source(self, source: str) -> dict[str, Any]:
        """Return what is known of a source line: ``digest``, ``stamp``; empty when nothing."""
        return read_json(self._source_path(source))

    def sources_of(self, digest: str) -> list[str]:
        """Return the source lines that gave *digest*, sorted."""
        records = [read_json(path) for path in self.root.glob("sources/*.json")]
        return sorted(str(r["source"]) for r in records if r.get("digest") == digest)

    def note_source(self, source: str, *, digest: str, stamp: list[list[int]] | None) -> None:
        """Record that *source* gave *digest*; *stamp* tells a changed ``file:`` source."""
        record = {"source": source, "digest": digest, "stamp": stamp}
        self.write(self._source_path(source), canonical_json(record))

    def write(self, path: Path, data: bytes) -> None:
        """Write a small file of the store in one step."""
        with self.scratch() as scratch:
            write_file(path, data, scratch=scratch)

    def conversions(self, digest: str) -> list[Path]:
        """Return the folders that the model was converted into, sorted."""
        return sorted(self.root.glob(f"conversions/{digest}-*"))

    def remove(self, digest: str) -> None:
        """Delete a model, its conversions and all that was noted of it.

        A process that has it loaded keeps its own open files.
        """
        with self.lock(f"model-{digest}"), self.scratch() as graveyard:
            for path in self.root.glob("sources/*.json"):
                if read_json(path).get("digest") == digest:
                    path.unlink()
            for path in self.root.glob(f"dtypes/{digest}-*.json"):
                path.unlink()
            for path in [*self.conversions(digest), self.root / "models" / digest]:
                if path.exists():  # a rename takes all of it away at once
                    path.rename(graveyard / path.name)

    def _source_path(self, source: str) -> Path:
        return self.root / "sources" / f"{hashlib.sha256(source.encode()).hexdigest()}.json"


def _is_intact(folder: Path, files: tuple[StoredFile, ...]) -> bool:
    try:
        check_bytes(folder, files)
    except ModelFileError:
        return False
    return True


def check_bytes(folder: Path, files: tuple[StoredFile, ...]) -> None:
    """Raise when the bytes of a file in *folder* are not those noted; reads all of them.

    Files are hashed side by side, since hashing lets go of the interpreter.

    Raises:
        ModelFileError: It names the first such file.
    """
    check_sizes(folder, files)
    with ThreadPoolExecutor() as pool:
        measured = pool.map(lambda file: _sha256(folder / file.path), files)
        for file, actual in zip(files, measured, strict=True):
            if actual != file.sha256:
                path = str(folder / file.path)
                raise ModelFileError(path=path, expected=file.sha256, actual=actual)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_sizes(folder: Path, files: tuple[StoredFile, ...]) -> None:
    """Raise when a file of *folder* is missing or has another size than was noted.

    Raises:
        ModelFileError: It names the file.
    """
    for file in files:
        path = folder / file.path
        if not path.exists():
            raise ModelFileError(path=str(path), expected=file.sha256, actual=None)
        if path.stat().st_size != file.size_bytes:
            raise ModelFileError(path=str(path), expected=file.sha256, actual=_sha256(path))
