"""The process behind a fault server's handle.

Run as a module it listens on an ephemeral loopback port, prints the port, and
then obeys JSON commands on stdin, one line each, answering each with one line.
It counts every request it read (or connection it took, when told to read
nothing) and notices when a peer closes before its reply was over.
"""

import asyncio
import json
import random
import sys
import time
from typing import Any

from tests.fallback.fault_acts import ACTS, STALL_S, Fault, Wire


def say(answer: dict[str, Any]) -> None:
    """Answer the handle with one line."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class Server:
    """The process' state."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._reads = True
        self._forget()
        self._plan: list[Fault] = []
        self._default: Fault = {"do": "ok"}
        self._mix: tuple[list[Fault], float, random.Random] | None = None

    def _forget(self) -> None:
        self._num_hits = 0
        self._num_connections = 0
        self._closed: list[float] = []
        self._requests: list[dict[str, Any]] = []
        self._faults: dict[str, int] = {}
        self._ids: list[str] = []

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        if order["command"] == "stats":
            return {
                "hits": self._num_hits,
                "connections": self._num_connections,
                "closed": self._closed,
                "requests": self._requests,
                "faults": self._faults,
                "ids": self._ids,
            }
        self._forget()
        self._default = order["default"]
        self._plan, self._mix = [], None
        if order["command"] == "plan":
            self._plan = order["faults"]
        else:
            self._mix = (order["faults"], order["ratio"], random.Random(order["seed"]))
        return {}

    def _next(self) -> Fault:
        if self._plan:
            return self._plan.pop(0)
        if self._mix is not None:
            faults, ratio, rng = self._mix
            if rng.random() < ratio:
                return rng.choice(faults)
        return self._default

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._num_connections += 1
        try:
            if self._plan and self._plan[0]["do"] == "no_read":
                self._plan.pop(0)
                await self._read_nothing(reader, writer)
                return
            while await self._serve_one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _read_nothing(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._num_hits += 1
        await self._watch(reader, asyncio.create_task(asyncio.sleep(STALL_S)), greedy=True)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        wire = Wire(writer, self.name)
        if head[0].startswith("GET"):
            models = {"data": [{"id": "m", "max_model_len": 2048}]}
            await wire.plain(200, json.dumps(models).encode())
            return True
        fault = self._next()
        self._num_hits += 1
        self._ids.append(headers.get("x-request-id", ""))
        label = fault["do"] + str(fault.get("at") or fault.get("how") or fault.get("status") or "")
        self._faults[label] = self._faults.get(label, 0) + 1
        if len(self._requests) < 100:
            self._requests.append({"headers": headers, "body": json.loads(body)})
        await self._watch(reader, asyncio.create_task(ACTS[fault["do"]](wire, self.name, fault)))
        return wire.is_reusable

    async def _watch(
        self, reader: asyncio.StreamReader, act: "asyncio.Task[None]", *, greedy: bool = False
    ) -> None:
        """Run *act*; stop it, and note the time, when the peer leaves first."""
        gone = asyncio.create_task(self._peer_left(reader, greedy=greedy))
        done, _ = await asyncio.wait({act, gone}, return_when=asyncio.FIRST_COMPLETED)
        if act not in done:
            self._closed.append(time.monotonic())
        for task in (act, gone):
            task.cancel()
        results = await asyncio.gather(act, gone, return_exceptions=True)
        if isinstance(results[0], OSError):
            self._closed.append(time.monotonic())  # it left while we wrote
            raise results[0]
        if isinstance(results[0], Exception):
            raise results[0]
        if act not in done:
            raise ConnectionResetError

    async def _peer_left(self, reader: asyncio.StreamReader, *, greedy: bool) -> None:
        # A peer sends nothing while it waits for its reply; at_eof alone never wakes up.
        while not reader.at_eof() and reader.exception() is None:
            if greedy:
                await reader.read(65536)
            await asyncio.sleep(0.005)


async def main(name: str) -> None:
    """Listen and obey until stdin ends."""
    server = Server(name)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=1024)
    say({"port": listener.sockets[0].getsockname()[1]})
    orders = asyncio.StreamReader(limit=2**24)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    while line := await orders.readline():
        say(server.obey(json.loads(line)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
