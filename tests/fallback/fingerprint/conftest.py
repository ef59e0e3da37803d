"""An empty store of references."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from failsoft.config.settings import StoreConfig
from failsoft.store import Store
from failsoft.store.fingerprints import FingerprintStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FingerprintStore]:
    """Return an empty store of references."""
    with Store(StoreConfig(url=f"sqlite:///{tmp_path}/failsoft.db")) as opened:
        yield opened.fingerprints
