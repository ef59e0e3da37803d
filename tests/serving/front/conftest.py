"""Two fault servers and one front over them for all tests that do not stop it."""

from collections.abc import Iterator

import pytest

from tests.fallback.fault_server import FaultServer
from tests.serving.front.rig import FrontProcess, front, toml


@pytest.fixture(scope="package")
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


@pytest.fixture(scope="package")
def _shared(
    _servers: tuple[FaultServer, FaultServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FrontProcess]:
    with front(tmp_path_factory.mktemp("front"), toml(*_servers)) as process:
        yield process


@pytest.fixture
def shared(_shared: FrontProcess, server_a: FaultServer, server_b: FaultServer) -> FrontProcess:
    """A front over both servers and the cache, which every test plans anew."""
    return _shared
