"""uvicorn with our own way to stop; what runs in it says how it drains.

First SIGTERM or SIGINT: `StoppingServer.stop`, which takes no more work and lets what
runs finish. A second one: `StoppingServer.stop_now`. Exit code 0 after SIGTERM, 130
after SIGINT. uvicorn itself would raise the signal again when done. Knows nothing of
engines or ladders. Units: seconds.
"""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Literal

import uvicorn
from starlette.types import ASGIApp

FLUSH_S = 1
"""After the drain, how long an answer may take to leave: a caller that reads needs none."""

_KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections (httpx 5 s), so that they close first and
never send a request into a connection that is just being closed."""


def uvicorn_config(
    app: ASGIApp, *, http: Literal["h11"] | type[asyncio.Protocol]
) -> uvicorn.Config:
    """Return how all our servers run: quiet, and nothing of their own in a reply.

    Args:
        app: What answers.
        http: uvicorn's own protocol, or one made of it.
    """
    return uvicorn.Config(
        app,
        http=http,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=FLUSH_S,
    )


class StoppingServer(uvicorn.Server):
    """A server that stops without cutting answers.

    Args:
        config: From `uvicorn_config`.
        on_ready: Called once the socket listens.
    """

    def __init__(self, config: uvicorn.Config, *, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.exit_code = 0
        self._on_ready = on_ready
        self._is_stopping = False
        self.handlers: dict[int, Callable[[int], None]] = dict.fromkeys(
            (signal.SIGTERM, signal.SIGINT), self._on_signal
        )
        """What each signal does, while serving."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then tell who waits for it."""
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
        for number, handler in self.handlers.items():
            loop.add_signal_handler(number, handler, number)
        try:
            yield
        finally:
            for number in self.handlers:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Take no more work, let what runs finish, then call `exit`. On the event loop."""
        raise NotImplementedError

    def stop_now(self) -> None:
        """End what runs, then call `exit`. On the event loop."""
        raise NotImplementedError

    def exit(self) -> None:
        """Leave the event loop as soon as every answer has left, or `FLUSH_S` later."""
        self.should_exit = True

    def _on_signal(self, number: int) -> None:
        if self._is_stopping:
            self.stop_now()
            return
        self._is_stopping = True
        self.exit_code = 130 if number == signal.SIGINT else 0
        self.stop()
