"""Reply cache, idempotency keys and records in memory: for tests, and for no store at all.

One process only; gone with it. Thread-safe. Sizes are bounded by count.
"""

import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from failsoft.call_records import AttemptRecord, CallRecord, CallText, EventRecord
from failsoft.idempotency_records import IdempotencyEntry, IdempotencyState
from failsoft.reply_records import CachedReply, ReplyStoreSize, ServedVersion

MAX_REPLIES = 4096
MAX_KEYS = 4096
MAX_RECORDS = 100_000


class MemoryReplyStore:
    """A `ReplyStore` that forgets the replies used longest ago."""

    def __init__(self) -> None:
        self._replies: OrderedDict[str, CachedReply] = OrderedDict()
        self._served: dict[str, ServedVersion] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> CachedReply | None:
        """Return the reply under *key*, however old; None when there is none."""
        with self._lock:
            reply = self._replies.get(key)
            if reply is not None:
                self._replies.move_to_end(key)
            return reply

    def last_digest(self, source: str) -> str | None:
        """Return the digest that *source* had last; None without one."""
        with self._lock:
            served = self._served.get(source)
        return None if served is None else served.version_digest

    def note_served(self, served: ServedVersion) -> None:
        """Keep which version answers."""
        with self._lock:
            known = self._served.get(served.source)
            if known is None or known.at_ms <= served.at_ms:
                self._served[served.source] = served

    def put(self, reply: CachedReply) -> None:
        """Keep *reply* unless a newer one is there."""
        with self._lock:
            old = self._replies.get(reply.key)
            if old is not None and old.created_at_ms > reply.created_at_ms:
                return
            self._replies[reply.key] = reply
            self._replies.move_to_end(reply.key)
            while len(self._replies) > MAX_REPLIES:
                self._replies.popitem(last=False)

    def purge(
        self,
        *,
        tenant: str | None = None,
        version: str | None = None,
        older_than_ms: int | None = None,
    ) -> int:
        """Delete the replies that match every filter given; return how many.

        Raises:
            ValueError: No filter was given.
        """
        if tenant is None and version is None and older_than_ms is None:
            raise ValueError("give at least one of tenant, version and older_than_ms")
        with self._lock:
            gone = [
                key
                for key, reply in self._replies.items()
                if (tenant is None or reply.tenant == tenant)
                and (version is None or reply.version_digest == version)
                and (older_than_ms is None or reply.created_at_ms < older_than_ms)
            ]
            for key in gone:
                del self._replies[key]
            return len(gone)

    def size(self) -> ReplyStoreSize:
        """Return what is held."""
        with self._lock:
            texts = [len(reply.reply_json.encode()) for reply in self._replies.values()]
        return ReplyStoreSize(num_replies=len(texts), num_bytes=sum(texts))


class MemoryIdempotencyStore:
    """An `IdempotencyStore` for one process.

    Args:
        wall: Seconds since the epoch.
    """

    def __init__(self, *, wall: Callable[[], float] = time.time) -> None:
        self._entries: OrderedDict[tuple[str, str], IdempotencyEntry] = OrderedDict()
        self._wall = wall
        self._lock = threading.Lock()

    def begin(self, key: str, tenant: str, fingerprint: str, *, lease_s: float) -> IdempotencyEntry:
        """Claim *key* if it is absent or its lease ran out; see `IdempotencyStore.begin`.

        Raises:
            ValueError: *key* or *lease_s* is out of range.
        """
        if not 1 <= len(key) <= 255 or lease_s <= 0:
            raise ValueError("key must have 1..255 characters and lease_s must be above 0")
        now_ms = int(self._wall() * 1000)
        with self._lock:
            known = self._entries.get((tenant, key))
            if known is not None and not _is_lost(known, now_ms):
                if known.fingerprint != fingerprint:
                    return replace(known, state=IdempotencyState.CONFLICT, owner=None)
                is_done = known.state is IdempotencyState.DONE
                state = IdempotencyState.DONE if is_done else IdempotencyState.RUNNING
                return replace(known, state=state, owner=None)
            entry = IdempotencyEntry(
                state=IdempotencyState.STARTED,
                key=key,
                tenant=tenant,
                fingerprint=fingerprint,
                owner=uuid.uuid4().hex,
                lease_until_ms=now_ms + int(lease_s * 1000),
            )
            self._entries[tenant, key] = entry
            while len(self._entries) > MAX_KEYS:
                self._entries.popitem(last=False)
            return entry

    def finish(self, entry: IdempotencyEntry, reply_json: str) -> bool:
        """Keep the reply under a STARTED entry; False when its lease was lost to another."""
        with self._lock:
            if not self._owns(entry):
                return False
            self._entries[entry.tenant, entry.key] = replace(
                entry, state=IdempotencyState.DONE, owner=None, reply_json=reply_json
            )
            return True

    def release(self, entry: IdempotencyEntry) -> None:
        """Forget a STARTED entry."""
        with self._lock:
            if self._owns(entry):
                del self._entries[entry.tenant, entry.key]

    def _owns(self, entry: IdempotencyEntry) -> bool:
        if entry.state is not IdempotencyState.STARTED:
            raise ValueError(f"an entry in state {entry.state} is not owned")
        known = self._entries.get((entry.tenant, entry.key))
        return known is not None and known.owner == entry.owner


def _is_lost(entry: IdempotencyEntry, now_ms: int) -> bool:
    is_running = entry.state is IdempotencyState.STARTED
    return is_running and entry.lease_until_ms is not None and entry.lease_until_ms <= now_ms


@dataclass(frozen=True, slots=True)
class Records:
    """What was recorded, in order."""

    calls: deque[CallRecord]
    attempts: deque[AttemptRecord]
    events: deque[EventRecord]
    texts: deque[CallText]


class MemoryRecorder:
    """A `Recorder` that keeps the latest records in memory."""

    def __init__(self) -> None:
        self.records = Records(
            deque(maxlen=MAX_RECORDS),
            deque(maxlen=MAX_RECORDS),
            deque(maxlen=MAX_RECORDS),
            deque(maxlen=MAX_RECORDS),
        )

    def record_call(self, record: CallRecord, /) -> None:
        """Keep one call."""
        self.records.calls.append(record)

    def record_attempt(self, record: AttemptRecord, /) -> None:
        """Keep one attempt."""
        self.records.attempts.append(record)

    def record_event(self, record: EventRecord, /) -> None:
        """Keep one event."""
        self.records.events.append(record)

    def record_text(self, record: CallText, /) -> None:
        """Keep a call's words."""
        self.records.texts.append(record)
