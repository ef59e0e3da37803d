"""Run as a program: the server's own ``serve`` over the fake engine, for signal tests.

Arguments: seconds a step takes, seconds the drain may take, and ``hang`` for an engine
that never comes back from a forward. Prints the URL when ready.
"""

import sys
import threading

from failsoft.engine.http.server import base_url, bind, serve
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import ids_of, make_served, make_state


class HangingEngine(FakeEngine):
    """Stopping it waits for a forward that never ends."""

    def drain(self, timeout_s: float) -> bool:
        self.is_frozen = True
        threading.Event().wait(timeout_s)
        self.close()
        return False

    def close(self) -> None:
        threading.Event().wait()


def main() -> int:
    """Serve an answer of a hundred tokens until a signal."""
    step_s, drain_s = map(float, sys.argv[1:3])
    kind = HangingEngine if sys.argv[3:] == ["hang"] else FakeEngine
    engine = kind(lambda request: ids_of("x" * 100), step_s=step_s)
    sock = bind("127.0.0.1", 0)
    return serve(
        make_state(engine, make_served()),
        sock,
        drain_s=drain_s,
        on_ready=lambda: print(base_url(sock), flush=True),  # noqa: T201 the test reads it
    )


if __name__ == "__main__":
    sys.exit(main())
