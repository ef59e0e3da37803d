"""A home in which everything runs and all is well; a test breaks what it is about."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from failsoft.dashboard.observer import Observer
from tests.dashboard.home import Home, child
from tests.dashboard.stand_in import StandIn, engine, front


@dataclass
class Running:
    """A home with its stand-ins."""

    home: Home
    front: StandIn
    primary: StandIn
    small: StandIn
    observer: Observer


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return a home in which nothing runs."""
    return Home(tmp_path)


@pytest.fixture
def running(home: Home) -> Iterator[Running]:
    """Return a home in which everything runs."""
    with ExitStack() as stack:
        told, primary, small = (
            stack.enter_context(server) for server in (front(), engine(), engine())
        )
        home.publish_front(told)
        home.publish_engine("primary", primary)
        home.publish_engine("small", small)
        home.publish_supervisor(*map(child, ("primary", "small", "front", "ops")))
        home.record()
        observer = home.observer()
        stack.callback(observer.close)
        yield Running(home, told, primary, small, observer)
