"""Every way a fault server answers: raw bytes on a socket."""

import asyncio
import json
from typing import Any

Fault = dict[str, Any]


STALL_S = 3600.0
SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
REASONS = {200: "OK", 400: "Bad Request", 429: "Too Many Requests", 503: "Service Unavailable"}


class Wire:
    """One request's side of a connection."""

    def __init__(self, writer: asyncio.StreamWriter, name: str) -> None:
        self._writer = writer
        self._name = name
        self.is_reusable = True

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def piece(self, data: bytes) -> None:
        """Send one piece of a chunked body."""
        await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def event(self, body: object) -> None:
        await self.piece(f"data: {json.dumps(body)}\n\n".encode())

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def plain(
        self, status: int, body: bytes, kind: str = "application/json", headers: Any = ()
    ) -> None:
        """Send a whole reply."""
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Whatever')}", f"content-type: {kind}"]
        lines += [f"{name}: {value}" for name, value in dict(headers).items()]
        lines.append(f"content-length: {len(body)}")
        await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def reset(self) -> None:
        """Close with RST."""
        self.is_reusable = False
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(1, 13, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # SO_LINGER, 0 s
        self._writer.transport.abort()

    def close(self) -> None:
        self.is_reusable = False
        self._writer.close()

    def chunk(self, delta: object, finish: str | None = None, **extra: object) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {
            "id": "c1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": f"model-{self._name}",
            "choices": [choice],
            **extra,
        }

    async def stall(self) -> None:
        await asyncio.sleep(STALL_S)


def words(name: str, fault: Fault) -> list[str]:
    """The tokens of a reply; they name their server."""
    return [f"{name}{i} " for i in range(fault.get("tokens", 3))]


def usage(fault: Fault) -> dict[str, Any]:
    """The usage of a whole reply."""
    n = fault.get("tokens", 3)
    return {"prompt_tokens": 7, "completion_tokens": n, "total_tokens": 7 + n}


def extra_headers(fault: Fault) -> dict[str, str]:
    """The version that our engine's replies name."""
    return {"x-failsoft-version": fault["version"]} if "version" in fault else {}


async def send_tokens(wire: Wire, name: str, fault: Fault) -> None:
    """Send the head, the role and the tokens."""
    await asyncio.sleep(fault.get("delay_s", 0))
    lines = "".join(f"{key}: {value}\r\n" for key, value in extra_headers(fault).items())
    await wire.raw(SSE_HEAD.removesuffix(b"\r\n") + lines.encode() + b"\r\n")
    await wire.event(wire.chunk({"role": "assistant", "content": ""}))
    await asyncio.sleep(fault.get("first_s", 0))
    for text in words(name, fault):
        await wire.event(wire.chunk({"content": text}))
        if fault.get("gap_s"):
            await asyncio.sleep(fault["gap_s"])


async def ok(wire: Wire, name: str, fault: Fault) -> None:
    """A whole streamed reply."""
    await send_tokens(wire, name, fault)
    await wire.event(wire.chunk({}, fault.get("finish", "stop")))
    await wire.event({**wire.chunk({}), "choices": [], "usage": usage(fault)})
    await wire.piece(b"data: [DONE]\n\n")
    await wire.end()


async def ok_whole(wire: Wire, name: str, fault: Fault) -> None:
    """A whole JSON reply, whatever ``stream`` says."""
    await asyncio.sleep(fault.get("delay_s", 0))
    message = {"role": "assistant", "content": "".join(words(name, fault))}
    body = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": f"model-{name}",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage(fault),
    }
    await wire.plain(200, json.dumps(body).encode(), headers=extra_headers(fault))


async def ok_tools(wire: Wire, name: str, fault: Fault) -> None:
    """A reply that calls a tool, its arguments in two pieces."""
    await wire.raw(SSE_HEAD)
    first = {"index": 0, "id": "t1", "type": "function"}
    await wire.event(
        wire.chunk({"tool_calls": [{**first, "function": {"name": "f", "arguments": '{"a"'}}]})
    )
    await wire.event(wire.chunk({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}))
    await wire.event(wire.chunk({}, "tool_calls"))
    await wire.piece(b"data: [DONE]\n\n")
    await wire.end()


async def status(wire: Wire, name: str, fault: Fault) -> None:
    """An error status; its message quotes the prompt, as some servers do."""
    code = fault.get("status", 500)
    error = {"message": "SECRET-PROMPT-ECHO", "type": fault.get("type"), "code": fault.get("code")}
    await wire.plain(code, json.dumps({"error": error}).encode(), headers=fault.get("headers", {}))


async def reset(wire: Wire, name: str, fault: Fault) -> None:
    """Close with RST before any byte."""
    wire.reset()


async def close(wire: Wire, name: str, fault: Fault) -> None:
    """Close in order before any byte."""
    wire.close()


async def stall(wire: Wire, name: str, fault: Fault) -> None:
    """Say nothing from *at* on: ``silence``, ``headers``, ``role``, ``token`` or ``comments``."""
    at = fault.get("at", "silence")
    if at == "silence":
        await wire.stall()
    if at == "token":
        await send_tokens(wire, name, {**fault, "tokens": fault.get("tokens", 1)})
        await wire.stall()
    await wire.raw(SSE_HEAD)
    if at == "role":
        await wire.event(wire.chunk({"role": "assistant", "content": ""}))
    while at == "comments":
        await wire.piece(b": keep-alive\n\n")
        await asyncio.sleep(0.02)
    await wire.stall()


async def cut(wire: Wire, name: str, fault: Fault) -> None:
    """Break off after the tokens: ``eof``, ``done``, ``rst``, ``short``, ``json`` or ``event``."""
    await send_tokens(wire, name, fault)
    how = fault.get("how", "eof")
    await asyncio.sleep(fault.get("before_s", 0.02))  # its own packet, or a reset eats the tokens
    if how == "rst":
        wire.reset()
    elif how == "short":
        wire.close()
    elif how == "json":
        await wire.piece(b'data: {"choices": [{"index": 0, "del\n\n')
        await wire.end()
    elif how == "event":
        await wire.event({"error": {"message": "SECRET-PROMPT-ECHO", "type": "server_error"}})
        await wire.end()
    elif how == "done":
        await wire.piece(b"data: [DONE]\n\n")
        await wire.end()
    else:
        await wire.end()


async def events(wire: Wire, name: str, fault: Fault) -> None:
    """Send given raw events."""
    await wire.raw(SSE_HEAD)
    for data in fault["events"]:
        text = data if isinstance(data, str) else json.dumps(data)
        await wire.piece(f"data: {text}\n\n".encode())
    await wire.end()


async def plain(wire: Wire, name: str, fault: Fault) -> None:
    """Send a given body under a given type."""
    await wire.plain(
        fault.get("status", 200), fault.get("body", "").encode(), fault.get("type", "text/html")
    )


async def raw(wire: Wire, name: str, fault: Fault) -> None:
    """Send given bytes in place of HTTP and close."""
    await wire.raw(fault["bytes"].encode("latin-1"))
    wire.close()


async def huge_header(wire: Wire, name: str, fault: Fault) -> None:
    """A header of 2 MiB."""
    await wire.raw(b"HTTP/1.1 200 OK\r\nx-big: " + b"a" * (2 * 1024**2) + b"\r\n\r\n")
    wire.close()


ACTS = {
    act.__name__: act
    for act in (
        ok, ok_whole, ok_tools, status, reset, close, stall, cut, events, plain, raw, huge_header,
    )
}  # fmt: skip
