"""Settings of every test run, and two fault servers for whoever calls through a ladder.

The servers live for the whole session; each test plans them anew.
"""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.fallback.fault_server import FaultServer

# Tiny models gain nothing from a second thread, and OpenMP threads that wait for one
# another slow each other down many times over when anything else uses the CPU.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A run in the background may ignore Ctrl-C and a closed terminal, as `nohup` has it. Every process
# that the tests start would inherit that, and one that is interrupted would never end.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


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
