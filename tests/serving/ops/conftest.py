"""An endpoint elsewhere, and rounds that look at it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fallback.fingerprint.foreign import Foreign, only_chats
from tests.serving.ops.rounds import Rounds


@pytest.fixture
def foreign() -> Iterator[Foreign]:
    """Return an endpoint elsewhere that answers chats alone."""
    with Foreign(refuses=only_chats) as server:
        yield server


@pytest.fixture
def rounds(tmp_path: Path, foreign: Foreign) -> Rounds:
    """Return rounds that look at it."""
    return Rounds(tmp_path, foreign)
