"""Fetches one commit of a Hugging Face repository through ``huggingface_hub``.

The hub's own client follows the user's token, mirror and proxy settings. Tested
against a stand-in for ``snapshot_download`` only: no test of this project reaches
the live hub.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from failsoft.config.sources import HfSource
from failsoft.engine.models.model_files import FOLDER_PATTERNS, SKIPPED_PATTERNS
from failsoft.engine.models.progress import spinner
from failsoft.errors import ModelSourceError


class SnapshotDownload(Protocol):
    """``huggingface_hub.snapshot_download``, as far as it is used."""

    def __call__(
        self,
        repo_id: str,
        *,
        revision: str,
        local_dir: str,
        allow_patterns: list[str],
        ignore_patterns: list[str],
    ) -> str:
        """Fetch the files of one revision into *local_dir*."""


def fetch_hf(source: HfSource, folder: Path, *, download: SnapshotDownload | None = None) -> None:
    """Put the model's files at the source's commit into *folder*.

    Args:
        source: Repository and commit.
        folder: An empty folder.
        download: Stands in for ``huggingface_hub.snapshot_download``.

    Raises:
        ModelSourceError: The hub cannot be reached or has no such commit.
    """
    if download is None:
        from huggingface_hub import snapshot_download

        download = snapshot_download
    try:
        with _quiet_client(), spinner(f"fetching {source.repo} from the hub"):
            download(
                source.repo,
                revision=source.commit,
                local_dir=str(folder),
                allow_patterns=list(FOLDER_PATTERNS),
                ignore_patterns=list(SKIPPED_PATTERNS),
            )
    except (OSError, ValueError, _http_error()) as exc:
        reason = (str(exc).strip() or type(exc).__name__).splitlines()[0]
        raise ModelSourceError(
            f"{source}: the hub did not give it ({reason}); no network to the hub? Else check the "
            "name and the commit, set HF_TOKEN if the repository is gated, or fetch it elsewhere "
            "and name it with file:PATH",
            source=str(source),
        ) from exc
    _drop_client_files(folder)


@contextmanager
def _quiet_client() -> Iterator[None]:
    """Keep the client's retries and bars off stderr: what fails in the end is raised."""
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    client = logging.getLogger("huggingface_hub")
    level, had_bars = client.level, not are_progress_bars_disabled()
    client.setLevel(logging.CRITICAL)
    disable_progress_bars()
    try:
        yield
    finally:
        client.setLevel(level)
        if had_bars:
            enable_progress_bars()


def _http_error() -> type[Exception]:
    from huggingface_hub.errors import HfHubHTTPError

    return HfHubHTTPError


def _drop_client_files(folder: Path) -> None:
    # The client keeps its own notes under local_dir; they are no part of the model.
    for path in sorted(folder.rglob("*"), reverse=True):
        if ".cache" in path.relative_to(folder).parts:
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()
