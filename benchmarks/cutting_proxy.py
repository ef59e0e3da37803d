"""A TCP proxy on loopback that passes bytes on, and cuts a reply when it is told to."""

import asyncio
import contextlib
from typing import Self

_BEFORE_CUT_S = 0.2
"""A reset throws away what the other side has not read yet."""


class CuttingProxy:
    """Passes bytes on to one port; cuts the reply's side after some of them when told to."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self.events_to_cut: int | None = None
        """Server-sent events to let pass before the cut; None cuts nothing."""
        self.num_requests = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
            upward = asyncio.create_task(self._up(reader, up_writer))
            try:
                await self._down(up_reader, writer)
            finally:
                upward.cancel()
                up_writer.close()
        writer.close()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(65536):
                self.num_requests += piece.count(b"/chat/completions HTTP/1.1")
                writer.write(piece)

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
            if self.events_to_cut is None:
                continue
            self.events_to_cut -= piece.count(b"data: ")
            if self.events_to_cut <= 0:
                await asyncio.sleep(_BEFORE_CUT_S)
                writer.transport.abort()
                return
