"""Servers shared by the tests that do not change them."""

from collections.abc import Iterator

import pytest

from tests.engine.fake_engine import FakeEngine
from tests.engine.http.real_rig import RealRig, running_real
from tests.engine.http.rig import Rig, answer, running

GREETING = "Hello wörld 🎉, it is 4."


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """Answers every request with GREETING."""
    with running(FakeEngine(lambda request: answer(GREETING))) as started:
        yield started


@pytest.fixture(scope="session")
def real() -> Iterator[RealRig]:
    """The real engine with a tiny random model."""
    with running_real() as started:
        yield started
