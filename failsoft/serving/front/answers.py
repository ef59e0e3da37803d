"""POST /v1/chat/completions and /v1/completions: one call through the ladder, answered.

Nothing is sent before the first content is there, so every fault up to then is a real
HTTP status. After it a fault is one typed error event, without ``[DONE]``, and the
connection closes. A caller who leaves is noticed at once, whatever the call waits for,
and all that is behind it is cancelled. Units: seconds.
"""

import asyncio
import time
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from failsoft.config.http import (
    AGE_HEADER,
    ATTEMPTS_HEADER,
    REPLAY_HEADER,
    RUNG_HEADER,
    STALE_HEADER,
    VERSION_HEADER,
)
from failsoft.engine.http.body import receive_json
from failsoft.engine.http.guard import caller_of
from failsoft.errors import (
    EngineError,
    FailsoftError,
    FallbackError,
    FrontStoppedError,
    InvalidCallError,
)
from failsoft.fallback.call import Kind, new_call_id
from failsoft.fallback.chunk import chunk_bytes
from failsoft.fallback.compact_json import compact_json
from failsoft.fallback.reply import Origin
from failsoft.fallback.request_face import CallOptions
from failsoft.serving.front.faults import RETRY_AFTER_S, fault_of_error
from failsoft.serving.front.front import Front
from failsoft.serving.front.open_calls import OpenCall
from failsoft.serving.front.options import choose_ladder, read_options, wants_stream
from failsoft.serving.front.protocol import FrontProtocol, connection_of

UNREAD_S = 1.0
"""Past its deadline a stream whose caller reads nothing is dropped after this long."""

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_DONE = b"data: [DONE]\n\n"


class Ask(NamedTuple):
    """One checked request."""

    kind: Kind
    body: dict[str, Any]
    options: CallOptions
    deadline_s: float


class AnswerRoute:
    """The route of one kind of call; an ASGI application that nothing stands around.

    Args:
        front: What answers.
        kind: What is asked.
    """

    def __init__(self, front: Front, kind: Kind) -> None:
        self._front = front
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        connection = connection_of(scope)
        call_id = new_call_id(int(time.time() * 1000))
        call = self._front.calls.enter(connection.abort)
        answer = _Answer(self._front, call, connection, send, call_id)
        try:
            ask = await _read(self._front, self._kind, scope, receive, call_id)
            connection.watch(call.leave)
            await answer.send(ask)
            call.finish()
        except (FallbackError, EngineError) as exc:
            await answer.fail(exc)
        except ClientDisconnect:
            return  # before its body was whole
        except asyncio.CancelledError:
            if not call.takes_blame():
                raise
            if call.end == "stopped":
                await answer.fail(FrontStoppedError(retry_after_s=RETRY_AFTER_S))
        except Exception:
            await answer.fail(FallbackError("internal error; the front's log has the traceback"))
            raise
        finally:
            connection.unwatch()
            self._front.calls.leave(call)


async def _read(front: Front, kind: Kind, scope: Scope, receive: Receive, call_id: str) -> Ask:
    """Return the checked request.

    Raises:
        FallbackError: It is refused, and nobody was asked.
        InvalidRequestError: Its body cannot be read.
        BodyTooSlowError: Its body took too long to arrive.
        ClientDisconnect: Its caller left while sending it.
    """
    if front.is_draining:
        raise FrontStoppedError(retry_after_s=RETRY_AFTER_S)
    options = read_options(scope["headers"], caller=caller_of(scope))
    config = front.config
    body = await receive_json(
        receive, max_bytes=config.max_body_bytes, limit_s=config.body_timeout_s
    )
    ladder = choose_ladder(body, front.ladders)
    options["ladder"], options["call_id"] = ladder, call_id
    front.recorder.note_call(call_id, ladder)
    deadline_s = options.get("deadline_s") or front.ladders[ladder].config.deadline_s
    return Ask(kind, body, options, deadline_s)


class _Answer:
    """One answer on its way out.

    Args:
        front: What answers.
        call: The call, which its caller or the front's end may interrupt.
        connection: Its caller's.
        send: ASGI's.
        call_id: The call's.
    """

    def __init__(
        self, front: Front, call: OpenCall, connection: FrontProtocol, send: Send, call_id: str
    ) -> None:
        self._front = front
        self._call = call
        self._connection = connection
        self._send = send
        self._call_id = call_id
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

    async def fail(self, error: FailsoftError) -> None:
        """Say that the call failed: by a status, or in the stream that has begun."""
        self._call.finish()
        fault = fault_of_error(error, call_id=self._call_id)
        if self._is_begun:
            self._connection.close_after()
            await self._send(_part(fault.event, is_last=True))
            return
        if isinstance(error, InvalidCallError | FrontStoppedError | EngineError):
            self._front.metrics.count_refused(fault.code or "refused")
        raw = fault.json
        head = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(raw)),
            *((k.encode(), v.encode()) for k, v in (fault.headers or {}).items()),
        ]
        await self._send(_start(fault.status, head))
        await self._send(_part(raw, is_last=True))

    async def _send_whole(self, ask: Ask) -> None:
        reply = await self._front.client.ask(ask.body, kind=ask.kind, **ask.options)
        self._call.finish()  # whoever stops the front now finds it answered, never half of it
        raw = compact_json(reply.body).encode()
        head = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(raw)),
            *self._origin_headers(reply.origin),
        ]
        await self._send(_start(200, head))
        await self._send(_part(raw, is_last=True))

    async def _send_stream(self, ask: Ask) -> None:
        stream = self._front.client.ask_stream(ask.body, kind=ask.kind, **ask.options)
        drop = asyncio.get_running_loop().call_later(ask.deadline_s + UNREAD_S, self._call.abort)
        try:
            chunks = await stream.next_chunks()
            assert stream.origin is not None
            await self._send(_start(200, [*_STREAM_HEADERS, *self._origin_headers(stream.origin)]))
            self._is_begun = True
            tail = b""
            while chunks is not None:
                events = b"".join([b"data: %b\n\n" % chunk_bytes(chunk) for chunk in chunks])
                if stream.is_read:
                    tail = events  # the end is here already: one write for both
                elif events:
                    await self._send(_part(events))
                chunks = await stream.next_chunks()
            await self._send(_part(tail + _DONE, is_last=True))
        finally:
            drop.cancel()
            await stream.aclose()

    def _origin_headers(self, origin: Origin) -> list[tuple[bytes, bytes]]:
        said = {
            "x-request-id": self._call_id,
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


def _start(status: int, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def _part(body: bytes, *, is_last: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": not is_last}
