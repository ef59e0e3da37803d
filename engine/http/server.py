"""Run the application: listen, say ready, and stop without cutting answers.

First SIGTERM or SIGINT: not ready, new requests get 503, running ones may finish
for ``drain_s``, what still runs then ends in an error event. A second signal
stops at once. Exit code 0 after SIGTERM, 130 after SIGINT.
"""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn

from failsoft.config.http import HttpConfig
from failsoft.engine.http.app import build_app
from failsoft.engine.http.served import ServerState
from failsoft.engine.http.sockets import base_url as base_url
from failsoft.engine.http.sockets import bind as bind
from failsoft.errors import EngineStoppedError

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_FLUSH_S = 1
"""After the drain, how long an answer may take to leave: a caller that reads needs none."""

_CLOSE_S = 5.0

_KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections (httpx 5 s), so that they close first and
never send a request into a connection that is just being closed."""


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


class EngineServer(uvicorn.Server):
    """uvicorn with our own way to stop; uvicorn raises the signal again when done."""

    def __init__(
        self,
        state: ServerState,
        *,
        drain_s: float,
        on_ready: Callable[[], None] = lambda: None,
        on_drain: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__(_uvicorn_config(state, state.config))
        self.exit_code = 0
        self._state = state
        self._drain_s = drain_s
        self._on_ready = on_ready
        self._on_drain = on_drain

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then tell who waits for it."""
        self._state.mailbox.open(asyncio.get_running_loop())
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals on the loop while serving; off the main thread there are none."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Refuse new requests, drain the engine, then exit. Call on the event loop.

        An engine that hangs is left behind, and its answers end in an error event.
        """
        self._state.is_draining = True
        self._on_drain(len(self._state.open_answers))
        self._exit_after(lambda: self._state.engine.drain(self._drain_s))
        asyncio.get_running_loop().call_later(self._drain_s + _FLUSH_S, self._give_up)

    def stop_now(self) -> None:
        """Close the engine, which ends its streams in an error event, and exit.

        Call on the event loop. An engine that hangs is left behind.
        """
        self._exit_after(self._state.engine.close)
        asyncio.get_running_loop().call_later(_FLUSH_S, self._give_up)

    def _exit_after(self, act: Callable[[], object]) -> None:
        """Exit once *act*, which blocks, is done on a thread of its own."""
        loop = asyncio.get_running_loop()

        def run() -> None:
            act()
            with contextlib.suppress(RuntimeError):  # the loop is closed: we exited already
                loop.call_soon_threadsafe(self._exit)

        threading.Thread(target=run, name="failsoft-stop", daemon=True).start()

    def _give_up(self) -> None:
        """Exit though the engine is in the middle of a forward: its callers hear it from here."""
        for answer in tuple(self._state.open_answers):
            answer.stop(EngineStoppedError("the engine was stopped; ask another one"))
        self._exit()

    def _exit(self) -> None:
        self.should_exit = True

    def _on_signal(self, number: int) -> None:
        if self._state.is_draining:
            self.stop_now()
            return
        self.exit_code = 130 if number == signal.SIGINT else 0
        self.stop()


def _uvicorn_config(state: ServerState, config: HttpConfig) -> uvicorn.Config:
    return uvicorn.Config(
        build_app(state),
        host=config.host,
        port=config.port,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_FLUSH_S,
    )
