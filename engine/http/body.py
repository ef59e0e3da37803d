"""Read one request's JSON body: bounded, valid, and refused with a reason otherwise."""

import asyncio
import codecs
import json
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from failsoft.config.http import HttpConfig
from failsoft.errors import BodyTooSlowError, InvalidRequestError

MAX_DEPTH = 100
"""Lists and objects inside one another at most; Python's own parser allows about a thousand,
and what works on the body afterwards has less room on its stack."""

_GZIP = b"\x1f\x8b"


async def read_json(request: Request, *, config: HttpConfig) -> dict[str, Any]:
    """Return the body as a JSON object.

    Raises:
        InvalidRequestError: It is longer than ``config.max_body_bytes`` (code
            ``request_too_large``), not UTF-8, not JSON (``NaN`` is not), nested deeper than
            MAX_DEPTH, or not an object.
        BodyTooSlowError: It took longer than ``config.body_timeout_s``.
        starlette.requests.ClientDisconnect: The client left while sending it.
    """
    max_bytes, limit_s = config.max_body_bytes, config.body_timeout_s
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    return await receive_json(request.receive, max_bytes=max_bytes, limit_s=limit_s)


async def receive_json(receive: Receive, *, max_bytes: int, limit_s: float) -> dict[str, Any]:
    """Return the body that *receive* brings within *limit_s*; see `read_json`."""
    try:
        async with asyncio.timeout(limit_s):
            raw = await _receive(receive, max_bytes=max_bytes)
    except TimeoutError:
        raise BodyTooSlowError(limit_s=limit_s) from None
    return parse_json(raw)


async def _receive(receive: Receive, *, max_bytes: int) -> bytes:
    chunks = bytearray()
    more_body = True
    while more_body:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks += message.get("body", b"")
        more_body = message.get("more_body", False)
        if len(chunks) > max_bytes:
            raise _too_large(max_bytes)
    return bytes(chunks)


def parse_json(raw: bytes) -> dict[str, Any]:
    """Return *raw* as a JSON object whose strings are all valid Unicode.

    Raises:
        InvalidRequestError: See `read_json`.
    """
    raw = raw.removeprefix(codecs.BOM_UTF8)  # RFC 8259 lets a parser pass it over
    try:
        if raw.startswith(_GZIP):
            raise ValueError("it is compressed; send it as it is, without Content-Encoding")
        body = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        if b"\\ud" in raw.lower():  # json.loads lets half a surrogate pair through
            json.dumps(body, ensure_ascii=False).encode("utf-8")
        if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:  # else it cannot be deeper
            _check_depth(body)
    except (ValueError, RecursionError) as exc:
        raise InvalidRequestError(
            f"the body is not valid JSON in UTF-8: {_explain(exc)}", param=None, code="invalid_json"
        ) from exc
    if not isinstance(body, dict):
        raise InvalidRequestError(
            f"the body must be a JSON object, got {type(body).__name__}",
            param=None,
            code="invalid_json",
        )
    return body


def _check_depth(body: object) -> None:
    """Raise RecursionError if *body* is nested deeper than MAX_DEPTH."""
    level = [body]
    for _ in range(MAX_DEPTH):
        nested = [each for each in level if isinstance(each, dict | list)]
        level = [
            member
            for each in nested
            for member in (each.values() if isinstance(each, dict) else each)
        ]
    if any(isinstance(each, dict | list) for each in level):
        raise RecursionError


def _too_large(max_bytes: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"the body is larger than {max_bytes} bytes; send a shorter prompt",
        param=None,
        code="request_too_large",
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _explain(exc: Exception) -> str:
    """Say where it is wrong without quoting it: prompt text belongs in no message."""
    if isinstance(exc, json.JSONDecodeError):
        return f"{exc.msg} at line {exc.lineno} column {exc.colno}"
    if isinstance(exc, RecursionError):
        return f"nested deeper than {MAX_DEPTH} levels"
    if isinstance(exc, UnicodeDecodeError):
        return f"byte {exc.start} is not UTF-8"
    if isinstance(exc, UnicodeEncodeError):
        return "half of a surrogate pair stands alone"
    return str(exc)
