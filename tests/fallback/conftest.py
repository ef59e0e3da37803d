"""Two fault servers for the whole session; each test plans them anew."""

from collections.abc import Iterator

import pytest

from tests.fallback.fault_server import FaultServer


@pytest.fixture(scope="session")
def _servers() -> Iterator[tuple[FaultServer, FaultServer]]:
    with FaultServer("A") as first, FaultServer("B") as second:
        yield first, second


@pytest.fixture
def server_a(_servers: tuple[FaultServer, FaultServer]) -> FaultServer:
    """The first rung's server."""
    _servers[0].plan()
    return _servers[0]


@pytest.fixture
def server_b(_servers: tuple[FaultServer, FaultServer]) -> FaultServer:
    """The second rung's server."""
    _servers[1].plan()
    return _servers[1]
