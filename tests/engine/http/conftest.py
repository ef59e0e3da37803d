"""A server shared by the tests that do not change it."""

from collections.abc import Iterator

import pytest

from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import Rig, answer, running

GREETING = "Hello wörld 🎉, it is 4."


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """Answers every request with GREETING."""
    with running(FakeEngine(lambda request: answer(GREETING))) as started:
        yield started
