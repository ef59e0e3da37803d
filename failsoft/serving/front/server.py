"""The front's server: reload on SIGHUP, drain on SIGTERM, flush the store, exit.

First SIGTERM or SIGINT: not ready, new calls get 503, open ones may finish for
``drain_s``, what still runs then gets a typed error. A second signal does that at once;
one that comes once the calls are over does not even wait for the store. Units: seconds.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable

from failsoft.engine.http.stopping_server import FLUSH_S, StoppingServer, uvicorn_config
from failsoft.serving.front.app import build_app
from failsoft.serving.front.front import Front
from failsoft.serving.front.protocol import FrontProtocol


class FrontServer(StoppingServer):
    """Serves one front.

    Args:
        front: What answers; its client is closed at the end.
        on_hangup: What SIGHUP does.
        on_ready: Called once the socket listens.
        on_drain: Told how many calls are open when the first signal comes.
    """

    def __init__(
        self,
        front: Front,
        *,
        on_hangup: Callable[[int], None],
        on_ready: Callable[[], None],
        on_drain: Callable[[int], None],
    ) -> None:
        config = uvicorn_config(build_app(front), http=FrontProtocol)
        super().__init__(config, on_ready=on_ready)
        self.handlers[signal.SIGHUP] = on_hangup
        self._front = front
        self._on_drain = on_drain
        self._ending: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Take no more calls, let the open ones finish, then exit."""
        self._front.is_draining = True
        self._on_drain(self._front.num_open_calls)
        self._ending = asyncio.get_running_loop().create_task(self._drain())

    def stop_now(self) -> None:
        """End the open calls and exit."""
        if self.should_exit:  # they are over; whoever asks again does not want to wait
            os._exit(self.exit_code)
        if self._ending is not None:
            self._ending.cancel()
        self._ending = asyncio.get_running_loop().create_task(self._end())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, then write what the store has queued."""
        await super().shutdown(sockets)
        await self._front.client.aclose()

    async def _drain(self) -> None:
        await self._front.calls.wait_empty(self._front.config.drain_s)
        await self._end()

    async def _end(self) -> None:
        calls = self._front.calls
        calls.stop_all()
        if not await calls.wait_empty(FLUSH_S):
            calls.abort_all()  # they read nothing, not even the error
        self.exit()
