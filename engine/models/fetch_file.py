"""Copies a ``file:`` source, a GGUF file or a folder of safetensors, and hashes it on the way."""

import hashlib
from pathlib import Path

from failsoft.config.sources import PICKLE_REASON, FileSource
from failsoft.engine.models.disk import copy_hashed
from failsoft.engine.models.model_files import GGUF_NAME, has_pickles, is_model_file
from failsoft.engine.models.progress import byte_progress
from failsoft.errors import ModelSourceError, UnsupportedModelError


def source_stamp(source: FileSource) -> list[list[int]] | None:
    """Return size, change time and inode of each file; None when there is nothing.

    Any write to a file changes its stamp, so that an edited source is read again.
    """
    try:
        stats = [path.stat() for path in _files(source).values()]
    except (ModelSourceError, UnsupportedModelError, OSError):
        return None
    return [[stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino] for stat in stats]


def fetch_file(source: FileSource, folder: Path) -> dict[str, str]:
    """Copy the source's files into *folder*; return the sha256 of each by its name there.

    Raises:
        ModelSourceError: There is nothing at the path, or it cannot be read.
        UnsupportedModelError: It is neither GGUF nor a folder with safetensors.
    """
    hashes: dict[str, str] = {}
    files = _files(source)
    try:
        total = sum(path.stat().st_size for path in files.values())
        with byte_progress(f"copying {source.path.name}", total) as step:
            for name, path in files.items():
                hasher = hashlib.sha256()
                with path.open("rb") as reader, (folder / name).open("wb") as writer:
                    copy_hashed(reader, writer, hasher, step)
                hashes[name] = hasher.hexdigest()
    except OSError as exc:
        raise ModelSourceError(
            f"{source}: {exc.strerror}: {exc.filename}; check the disk and the path's permissions",
            source=str(source),
        ) from exc
    return hashes


def _files(source: FileSource) -> dict[str, Path]:
    if source.path.is_dir():
        return _folder_files(source)
    if not source.path.exists():
        raise ModelSourceError(
            f"{source}: there is nothing at this path; check file:PATH", source=str(source)
        )
    if source.path.suffix.lower() != ".gguf":
        raise UnsupportedModelError(
            model=str(source),
            reason="a lone file must be GGUF; name the folder that holds config.json instead",
        )
    return {GGUF_NAME: source.path}


def _folder_files(source: FileSource) -> dict[str, Path]:
    names = sorted(path.name for path in source.path.iterdir() if path.is_file())
    wanted = [name for name in names if is_model_file(name)]
    if has_pickles(names) and not any(name.endswith(".safetensors") for name in wanted):
        raise UnsupportedModelError(model=str(source), reason=PICKLE_REASON)
    return {name: source.path / name for name in wanted}
