"""POST /v1/chat/completions and /v1/completions: one call through the ladder, answered.

Nothing is sent before the first content is there, so every fault up to then is a real
HTTP status. After it a fault is one typed error event, without ``[DONE]``, and the
connection closes. A caller who leaves is noticed at once, whatever the call waits for,
and all that is behind it is cancelled. Units: seconds.
"""

import asyncio
import json
import time
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from failsoft.config.http import (
    AGE_HEADER,
    ATTEMPTS_HEADER,
    REPLAY_HEADER,
    RUNG_HEADER,
    STALE_HEADER,
    VERSION_HEADER,
)
from failsoft.engine.http.body import read_json
from failsoft.engine.http.disconnect import tell_when_gone
from failsoft.engine.http.guard import caller_of
from failsoft.errors import FallbackError, FrontStoppedError, InvalidCallError
from failsoft.fallback.call import Kind, new_call_id
from failsoft.fallback.chunk import Chunk, chunk_bytes
from failsoft.fallback.reply import Origin
from failsoft.fallback.request_face import CallOptions
from failsoft.serving.front.faults import RETRY_AFTER_S, error_event, fault_of_call
from failsoft.serving.front.front import Front
from failsoft.serving.front.open_calls import OpenCall
from failsoft.serving.front.options import choose_ladder, read_options, wants_stream
from failsoft.serving.front.protocol import connection_of

UNREAD_S = 2.0
"""Past its deadline a stream whose caller reads nothing is dropped after this long."""

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_DONE = b"data: [DONE]\n\n"


class Ask(NamedTuple):
    """One checked request."""

    call_id: str
    body: dict[str, Any]
    options: CallOptions
    deadline_s: float


class AnswerRoute:
    """The route of one kind of call; an ASGI application.

    Args:
        kind: What is asked.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        front: Front = scope["app"].state.front
        call_id = new_call_id(int(time.time() * 1000))
        with front.calls.open(connection_of(scope).abort) as call:
            answer = _Answer(front, self._kind, call, scope, send)
            try:
                ask = await _read(front, call_id, Request(scope, receive))
                async with tell_when_gone(receive, call.leave):
                    await answer.send(ask)
                    call.finish()
            except FallbackError as exc:
                await answer.fail(exc, call_id)
            except asyncio.CancelledError:
                if not call.takes_blame():
                    raise
                if call.end == "stopped":
                    await answer.fail(FrontStoppedError(retry_after_s=RETRY_AFTER_S), call_id)


async def _read(front: Front, call_id: str, request: Request) -> Ask:
    """Return the checked request.

    Raises:
        FallbackError: It is refused, and nobody was asked.
        InvalidRequestError: Its body cannot be read.
    """
    if front.is_draining:
        raise FrontStoppedError(retry_after_s=RETRY_AFTER_S)
    options = read_options(request.scope["headers"], caller=caller_of(request.scope))
    body = await read_json(request, max_bytes=front.config.max_body_bytes)
    ladder = choose_ladder(body, front.ladders)
    options["ladder"], options["call_id"] = ladder, call_id
    front.recorder.note_call(call_id, ladder)
    deadline_s = options.get("deadline_s") or front.ladders[ladder].config.deadline_s
    return Ask(call_id, body, options, deadline_s)


class _Answer:
    """One answer on its way out."""

    def __init__(self, front: Front, kind: Kind, call: OpenCall, scope: Scope, send: Send) -> None:
        self._front = front
        self._kind: Kind = kind
        self._call = call
        self._scope = scope
        self._send = send
        self._is_begun = False

    async def send(self, ask: Ask) -> None:
        """Ask the ladder and send what it says.

        Raises:
            FallbackError: It could not answer, or the stream broke.
        """
        if wants_stream(ask.body):
            await self._send_stream(ask)
        else:
            await self._send_whole(ask)

    async def fail(self, error: FallbackError, call_id: str) -> None:
        """Say that the call failed: by a status, or in the stream that has begun."""
        self._call.finish()
        if self._is_begun:
            connection_of(self._scope).close_after()
            await self._send(_part(error_event(error, call_id=call_id), is_last=True))
            return
        fault = fault_of_call(error, call_id=call_id)
        if isinstance(error, InvalidCallError | FrontStoppedError):
            self._front.metrics.count_refused(fault.code or "refused")
        await fault.response()(self._scope, _nothing_more, self._send)

    async def _send_whole(self, ask: Ask) -> None:
        reply = await self._front.client.ask(ask.body, kind=self._kind, **ask.options)
        raw = json.dumps(reply.body, separators=(",", ":")).encode()
        head = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(raw)),
            *_origin_headers(reply.origin, ask.call_id),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": head})
        await self._send(_part(raw, is_last=True))

    async def _send_stream(self, ask: Ask) -> None:
        stream = self._front.client.ask_stream(ask.body, kind=self._kind, **ask.options)
        drop = asyncio.get_running_loop().call_later(ask.deadline_s + UNREAD_S, self._call.abort)
        try:
            chunks = await stream.next_chunks()
            assert stream.origin is not None
            await self._begin(stream.origin, ask.call_id)
            while chunks is not None:
                if chunks:
                    await self._send(_part(_events(chunks)))
                chunks = await stream.next_chunks()
            await self._send(_part(_DONE, is_last=True))
        finally:
            drop.cancel()
            await stream.aclose()

    async def _begin(self, origin: Origin, call_id: str) -> None:
        self._is_begun = True
        head = [*_STREAM_HEADERS, *_origin_headers(origin, call_id)]
        await self._send({"type": "http.response.start", "status": 200, "headers": head})


def _origin_headers(origin: Origin, call_id: str) -> list[tuple[bytes, bytes]]:
    said = {
        "x-request-id": call_id,
        RUNG_HEADER: origin.rung,
        ATTEMPTS_HEADER: str(origin.num_sent),
    }
    if origin.version is not None:
        said[VERSION_HEADER] = origin.version
    if origin.age_s is not None:
        said[AGE_HEADER] = f"{origin.age_s:.3f}"
    if origin.is_stale:
        said[STALE_HEADER] = "true"
    if origin.is_replay:
        said[REPLAY_HEADER] = "true"
    return [(name.encode(), value.encode()) for name, value in said.items()]


def _events(chunks: list[Chunk]) -> bytes:
    if len(chunks) == 1:
        return b"data: %b\n\n" % chunk_bytes(chunks[0])
    return b"".join([b"data: %b\n\n" % chunk_bytes(chunk) for chunk in chunks])


def _part(body: bytes, *, is_last: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": not is_last}


async def _nothing_more() -> dict[str, Any]:
    return {"type": "http.disconnect"}
