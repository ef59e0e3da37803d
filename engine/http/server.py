"""Run the engine's application: listen, say ready, and stop without cutting answers.

First SIGTERM or SIGINT: not ready, new requests get 503, running ones may finish
for ``drain_s``, what still runs then ends in an error event. A second signal
stops at once. Exit code 0 after SIGTERM, 130 after SIGINT.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable

from failsoft.engine.http.app import build_app
from failsoft.engine.http.listen import base_url as base_url
from failsoft.engine.http.listen import bind as bind
from failsoft.engine.http.served import ServerState
from failsoft.engine.http.stopping_server import FLUSH_S, StoppingServer, uvicorn_config
from failsoft.errors import EngineStoppedError

_CLOSE_S = 5.0


def serve(
    state: ServerState,
    sock: socket.socket,
    *,
    drain_s: float,
    on_ready: Callable[[], None],
    on_drain: Callable[[int], None] = lambda _: None,
) -> int:
    """Serve until a signal, then drain and close the engine.

    Call on the main thread: signals arrive there only.

    Args:
        state: What to serve; its engine is closed at the end.
        sock: From `bind`; closed at the end.
        drain_s: Seconds that running requests get to finish.
        on_ready: Called once the socket listens.
        on_drain: Told how many answers are open when the first signal comes.

    Returns:
        The process's exit code.
    """
    server = EngineServer(state, drain_s=drain_s, on_ready=on_ready, on_drain=on_drain)
    try:
        server.run(sockets=[sock])
    finally:
        closing = threading.Thread(target=state.engine.close, daemon=True)
        closing.start()
        closing.join(_CLOSE_S)  # an engine that hangs must not keep the process
        sock.close()
    return server.exit_code


class EngineServer(StoppingServer):
    """The engine's server: to drain it is to drain the engine."""

    def __init__(
        self,
        state: ServerState,
        *,
        drain_s: float,
        on_ready: Callable[[], None] = lambda: None,
        on_drain: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__(uvicorn_config(build_app(state), http="h11"), on_ready=on_ready)
        self._state = state
        self._drain_s = drain_s
        self._on_drain = on_drain

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then tell who waits for it."""
        self._state.mailbox.open(asyncio.get_running_loop())
        await super().startup(sockets)

    def stop(self) -> None:
        """Refuse new requests, drain the engine, then exit. Call on the event loop.

        An engine that hangs is left behind, and its answers end in an error event.
        """
        self._state.is_draining = True
        self._on_drain(len(self._state.open_answers))
        self._exit_after(lambda: self._state.engine.drain(self._drain_s))
        asyncio.get_running_loop().call_later(self._drain_s + FLUSH_S, self._give_up)

    def stop_now(self) -> None:
        """Close the engine, which ends its streams in an error event, and exit.

        Call on the event loop. An engine that hangs is left behind.
        """
        self._exit_after(self._state.engine.close)
        asyncio.get_running_loop().call_later(FLUSH_S, self._give_up)

    def _exit_after(self, act: Callable[[], object]) -> None:
        """Exit once *act*, which blocks, is done on a thread of its own."""
        loop = asyncio.get_running_loop()

        def run() -> None:
            act()
            with contextlib.suppress(RuntimeError):  # the loop is closed: we exited already
                loop.call_soon_threadsafe(self.exit)

        threading.Thread(target=run, name="failsoft-stop", daemon=True).start()

    def _give_up(self) -> None:
        """Exit though the engine is in the middle of a forward: its callers hear it from here."""
        for answer in tuple(self._state.open_answers):
            answer.stop(EngineStoppedError("the engine was stopped; ask another one"))
        self.exit()
