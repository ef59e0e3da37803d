"""Asks an endpoint for its fingerprint, never through a ladder, a breaker or the reply cache.

Units: seconds. One `Taker` belongs to one event loop.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2

from failsoft.config.http import is_loopback
from failsoft.errors import FingerprintError
from failsoft.fallback.endpoint import reported_digest
from failsoft.fallback.fingerprint import wire
from failsoft.fallback.fingerprint.records import Answer, Method, Reported, Taking

CONNECT_S = 5.0
"""What a connection gets; how long answers may take is the caller's to say."""
MAX_REPLY_BYTES = 1_048_576
"""Twenty times what the longest probe needs: an endpoint elsewhere may send anything."""


class MakeUp(NamedTuple):
    """What a batch is made of while takings are made."""

    num_takings: int
    """Made at the same time."""
    at_once: int
    """Probes of each that are under way together."""
    num_companions: int
    """Other requests that keep an engine of ours decoding meanwhile."""


MAKE_UPS = (
    MakeUp(1, 1, 0),
    MakeUp(1, 2, 0),
    MakeUp(1, 4, 0),
    MakeUp(2, 4, 0),
    MakeUp(1, 2, 4),
    MakeUp(2, 4, 12),
)
"""Of a reference: one to eight probes at once, alone and beside others."""

_REFUSALS = frozenset({400, 404, 405, 415, 422, 501})
"""An endpoint that has no such route or field; another method may do."""
_METHODS = (Method.SCORED, Method.GREEDY, Method.TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An endpoint to take fingerprints of."""

    url: str
    """Base URL, usually ending in ``/v1``."""
    model: str | None = None
    """What it calls the model; None where it serves one alone."""
    authorization: str | None = field(default=None, repr=False)
    is_ours: bool = False
    """Whether it is failsoft's engine, which takes priorities and salts."""


class Taker:
    """Takes fingerprints of one endpoint; use `taker`.

    Args:
        asked: Whom to ask.
        client: How.
    """

    def __init__(self, asked: Asked, client: httpx2.AsyncClient) -> None:
        self._asked = asked
        self._client = client

    async def method(self) -> Method:
        """Return the best way in which it can be asked.

        Raises:
            FingerprintError: It answers to none, or not now.
        """
        for method in _METHODS:
            try:
                await self._ask(method, 0)
            except FingerprintError as exc:
                is_last = method is _METHODS[-1]
                if (
                    is_last
                    or exc.is_down
                    or (exc.status is not None and exc.status not in _REFUSALS)
                ):
                    raise
            else:
                return method
        raise AssertionError("the last method returned or raised")

    async def take(self, method: Method, *, at_once: int) -> Taking:
        """Ask every probe once.

        Args:
            method: How.
            at_once: Requests under way together at most, at least 1.

        Raises:
            FingerprintError: One was not answered, or two were answered by two versions.
        """
        room = asyncio.Semaphore(at_once)

        async def one(probe: int) -> tuple[Answer, Reported]:
            async with room:
                return await self._ask(method, probe)

        begun_s = time.monotonic()
        said = await _together([one(probe) for probe in range(wire.num_probes(method))])
        reported = said[-1][1]
        if any(other.version_digest != reported.version_digest for _, other in said):
            raise FingerprintError("the version changed under it; take it again", is_down=True)
        return Taking(
            method=method,
            answers=tuple(answer for answer, _ in said),
            reported=reported,
            took_s=time.monotonic() - begun_s,
        )

    async def take_several(self, method: Method) -> list[Taking]:
        """Return the takings of a reference, made at every one of `MAKE_UPS`.

        Raises:
            FingerprintError: As for `take`.
        """
        takings: list[Taking] = []
        for num_takings, at_once, num_companions in MAKE_UPS:
            async with self._companions(num_companions if self._asked.is_ours else 0):
                takings += await _together(
                    [self.take(method, at_once=at_once) for _ in range(num_takings)]
                )
        return takings

    @asynccontextmanager
    async def _companions(self, number: int) -> AsyncIterator[None]:
        """Keep *number* requests decoding until the block ends."""

        async def run(first: int) -> None:
            for turn in count(first):
                await self._post("/completions", wire.companion(turn, model=self._asked.model))

        tasks = [asyncio.create_task(run(first)) for first in range(number)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            # A companion that failed did not matter: the probes would have failed too.
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, method: Method, probe: int) -> tuple[Answer, Reported]:
        asked = self._asked
        body = wire.body(method, probe, model=asked.model, is_ours=asked.is_ours)
        reply, headers = await self._post(wire.route(method), body)
        return wire.read(method, reply), _reported(reply, headers)

    async def _post(self, path: str, body: dict[str, Any]) -> tuple[Any, Mapping[str, str]]:
        try:
            async with self._client.stream(
                "POST", f"{self._asked.url.rstrip('/')}{path}", json=body
            ) as response:
                raw = await _limited_body(response)
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            why = f"no answer ({type(exc).__name__})"
            raise FingerprintError(why, is_down=True) from exc
        status = response.status_code
        if status != 200:
            is_down = status in (408, 429) or status >= 500
            raise FingerprintError(
                f"HTTP {status} to {path}", status=status, is_down=is_down and status != 501
            )
        if len(raw) > MAX_REPLY_BYTES:
            raise FingerprintError(f"over {MAX_REPLY_BYTES:,} bytes came from {path}")
        try:
            return json.loads(raw), response.headers
        except (ValueError, RecursionError) as exc:
            raise FingerprintError(f"no JSON came from {path}") from exc


async def _limited_body(response: httpx2.Response) -> bytes:
    """Return the body, or a little more than `MAX_REPLY_BYTES` of it."""
    raw = bytearray()
    async for piece in response.aiter_bytes():
        raw += piece
        if len(raw) > MAX_REPLY_BYTES:
            break
    return bytes(raw)


@asynccontextmanager
async def taker(asked: Asked) -> AsyncIterator[Taker]:
    """Yield what takes fingerprints of *asked*; its connections close at the end."""
    headers = {"authorization": asked.authorization} if asked.authorization else {}
    is_local = is_loopback(urlsplit(asked.url).hostname or "")
    async with httpx2.AsyncClient(
        headers=headers,
        timeout=httpx2.Timeout(None, connect=CONNECT_S),
        trust_env=not is_local,
        follow_redirects=False,
    ) as client:
        yield Taker(asked, client)


async def _together(works: list[Any]) -> list[Any]:
    """Return what all *works* return; the first that fails ends the others, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except* FingerprintError as several:
        raise several.exceptions[0] from None
    return [task.result() for task in tasks]


def _reported(reply: Any, headers: Mapping[str, str]) -> Reported:
    def text(name: str) -> str | None:
        said = reply.get(name)
        return said[: wire.MAX_NAME] if isinstance(said, str) and said else None

    return Reported(
        model=text("model"),
        system_fingerprint=text("system_fingerprint"),
        version_digest=reported_digest(headers),
    )
