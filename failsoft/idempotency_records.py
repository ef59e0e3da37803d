"""Who owns an idempotency key: the records, and the protocol that the ladder codes against.

Frozen objects; nothing here acts. No field but ``reply_json`` may hold a user's text.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class IdempotencyState(StrEnum):
    """What the store knows of an idempotency key."""

    STARTED = "started"
    """The key is new, or its owner's lease ran out: the caller owns it now and does the work."""
    RUNNING = "running"
    """Another caller owns it: HTTP 409 with Retry-After, or wait."""
    DONE = "done"
    """Finished before: play *reply_json* back."""
    CONFLICT = "conflict"
    """The key was used with another body: HTTP 422."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyEntry:
    """The answer to `IdempotencyStore.begin`; hand it back to finish or release the key."""

    state: IdempotencyState
    key: str = field(repr=False)
    tenant: str
    fingerprint: str
    """The caller's own body fingerprint."""
    owner: str | None = None
    """Lease token; set only when *state* is STARTED."""
    lease_until_ms: int | None = None
    """When a RUNNING or STARTED owner's lease ends."""
    reply_json: str | None = field(default=None, repr=False)
    """Set when *state* is DONE; None there too under ``keep_text = "none"``."""


class IdempotencyStore(Protocol):
    """Who owns an idempotency key, over all processes that share the store.

    Thread-safe. Every method waits for other writers at most about two seconds, and
    for a database that hangs as long as that: an event loop calls it on a thread and
    waits no longer than it can spare.
    """

    def begin(self, key: str, tenant: str, fingerprint: str, *, lease_s: float) -> IdempotencyEntry:
        """Claim *key* if it is absent or its lease ran out; atomic.

        Args:
            key: The caller's key, 1..255 characters; only its hash is stored.
            tenant: Keys of two tenants never meet.
            fingerprint: Hash of the body; the same key with another one is a CONFLICT.
            lease_s: After this long without *finish* another caller may claim the key, > 0.

        Raises:
            ValueError: *key* or *lease_s* is out of range.
            StoreError: The database refused; nothing was claimed.
        """

    def finish(self, entry: IdempotencyEntry, reply_json: str) -> bool:
        """Keep the reply under a STARTED entry; False when its lease was lost to another.

        Raises:
            ValueError: *entry* is not a STARTED one.
            StoreError: The database refused; the lease will run out by itself.
        """

    def release(self, entry: IdempotencyEntry) -> None:
        """Forget a STARTED entry (shed, refused or failed: no work to play back).

        Raises:
            ValueError: *entry* is not a STARTED one.
            StoreError: The database refused; the lease will run out by itself.
        """
