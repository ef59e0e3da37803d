"""Idempotency keys: the same key and body give the same reply, and the work is done once.

The key is claimed before any work. A call that failed did no work to play back, so
its key is free again; a crash leaves a lease that runs out. Scope: tenant and
kind of call. Units: seconds.
"""

import asyncio
import hashlib
import json
import logging
from concurrent.futures import Future

from failsoft.errors import IdempotencyConflictError, IdempotencyRunningError, StoreError
from failsoft.fallback.cache_key import fingerprint
from failsoft.fallback.call import Call
from failsoft.fallback.outside_json import parse_json
from failsoft.fallback.reply import Reply, Usage
from failsoft.fallback.store_threads import StoreThreads
from failsoft.idempotency_records import IdempotencyEntry, IdempotencyState, IdempotencyStore

LEASE_SLACK_S = 10.0
"""Past its deadline a call cannot run on; the slack covers the write of its reply."""
RETRY_AFTER_S = 1.0
MAX_CLAIM_S = 2.5
"""A store that is locked says so itself after 2 s; one that hangs never does."""
MAX_CLAIM_RATIO = 0.5
"""Of the deadline: the rest is the call's, which is worth more than its key."""

_log = logging.getLogger("failsoft.fallback")


class Claim:
    """A claimed key; say once how the call ended.

    Args:
        store: Where the key is.
        entry: Its STARTED entry.
        threads: What asks the store.
    """

    def __init__(
        self, store: IdempotencyStore, entry: IdempotencyEntry, threads: StoreThreads
    ) -> None:
        self._store = store
        self._entry = entry
        self._threads = threads

    async def finish(self, reply: Reply, *, timeout_s: float) -> None:
        """Keep *reply* for the next call with this key; a slow write goes on by itself."""
        written = asyncio.wrap_future(self.finish_beside(reply))
        await asyncio.wait({written}, timeout=timeout_s)

    def finish_beside(self, reply: Reply) -> Future[None]:
        """Keep *reply* while the caller goes on."""
        text = json.dumps(
            {
                "body": reply.body,
                "rung": reply.rung,
                "rung_index": reply.rung_index,
                "version": reply.version,
            },
            separators=(",", ":"),
        )
        return self._threads.start(
            lambda: self._store.finish(self._entry, text),
            "a reply could not be kept under its idempotency key",
        )

    def release(self) -> None:
        """Free the key beside the call: there is nothing to play back."""
        self._threads.start(
            lambda: self._store.release(self._entry),
            "an idempotency key could not be freed; its lease will run out",
        )


async def claim(store: IdempotencyStore, call: Call, threads: StoreThreads) -> Claim | Reply | None:
    """Claim the call's key.

    A claim that comes after its caller left, or went on without it, is freed again.

    Returns:
        A claim to finish or release; the earlier reply when the key was used before; None when
        the call has no key, or the store cannot be asked: a call is worth more than its key.

    Raises:
        IdempotencyConflictError: The key was used with another body.
        IdempotencyRunningError: Its first call still runs.
    """
    request = call.request
    if request.idempotency_key is None:
        return None
    named = f"{request.kind}\0{request.idempotency_key}".encode("utf-8", "surrogatepass")
    scoped = hashlib.sha256(named).hexdigest()
    body_print = fingerprint(request.body, kind=request.kind, ladder=request.ladder)
    lease_s = max(call.deadline.remaining_s, 0.0) + LEASE_SLACK_S
    try:
        entry = await threads.ask(
            lambda: store.begin(scoped, request.tenant, body_print, lease_s=lease_s),
            timeout_s=min(MAX_CLAIM_S, MAX_CLAIM_RATIO * max(call.deadline.remaining_s, 0.001)),
            on_late=lambda late: _free(store, late),
        )
    except (StoreError, TimeoutError):
        _log.warning("the idempotency store cannot be asked; a call goes on without its key")
        return None
    if entry.state is IdempotencyState.STARTED:
        return Claim(store, entry, threads)
    if entry.state is IdempotencyState.CONFLICT:
        raise IdempotencyConflictError
    if entry.state is IdempotencyState.RUNNING:
        raise IdempotencyRunningError(retry_after_s=RETRY_AFTER_S)
    if entry.reply_json is None:
        return None
    try:
        return _replay(call, entry.reply_json)
    except (ValueError, KeyError, TypeError):
        _log.warning("a reply kept under an idempotency key cannot be read; it is asked anew")
        return None


def _free(store: IdempotencyStore, entry: IdempotencyEntry) -> None:
    if entry.state is IdempotencyState.STARTED:
        store.release(entry)


def _replay(call: Call, text: str) -> Reply:
    kept = parse_json(text)
    body = kept["body"]
    if not body["choices"]:
        raise ValueError("a reply without choices")
    return Reply(
        call_id=call.call_id,
        rung=kept["rung"],
        rung_index=kept["rung_index"],
        version=kept["version"],
        model=body.get("model"),
        body=body,
        attempts=(),
        usage=Usage.reported(body.get("usage")),
        cost=0.0,
        is_replay=True,
    )
