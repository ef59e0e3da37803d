"""One front over the two fault servers, for all tests that do not stop it."""

from collections.abc import Iterator

import pytest

from tests.fallback.fault_server import FaultServer
from tests.serving.front.rig import FrontProcess, front, toml


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
