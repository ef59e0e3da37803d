"""What the reply cache keeps, and the protocol that the ladder codes against.

Frozen objects; nothing here acts. Stamps that end in ``_at_ms`` are UTC epoch milliseconds. No
field but `CachedReply.reply_json` may hold a user's text.
"""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedReply:
    """One complete reply, as the reply cache keeps it."""

    key: str
    """sha256 in hex over the effective request, tenant and version digest included."""
    tenant: str
    version_digest: str | None
    ladder: str
    created_at_ms: int
    """When the model finished it; its age counts from here."""
    reply_json: str = field(repr=False)
    """The reply as the ladder wants it back; the store does not look inside."""
    finish_reason: str = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedVersion:
    """Which version answered last for what the settings name: a pin's manifest, or a URL.

    So a ladder finds the kept replies of an engine that is down and cannot be asked.
    """

    source: str
    """sha256 in hex over what the settings say of it."""
    version_digest: str | None
    """None when its replies name none."""
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyStoreSize:
    """What the reply cache holds now."""

    num_replies: int
    num_bytes: int
    """Bytes of reply text, rows' own overhead not counted."""


class ReplyStore(Protocol):
    """The reply cache's rows; policy (what may be stored or served, and when) is the ladder's.

    Thread-safe. *get* and *purge* block on the database, so an event loop calls
    them on a thread and waits no longer than it can spare; *put* returns at once and
    never raises, and a *get* in the same process sees it at once.
    """

    def get(self, key: str) -> CachedReply | None:
        """Return the newest reply under *key*, however old, and count as a use of it.

        Raises:
            StoreError: The database could not be read: the cached rung failed, not the call.
        """

    def last_digest(self, source: str) -> str | None:
        """Return the digest that *source* had when a reply of it was last kept.

        Returns:
            None when none was kept, or that one named no digest.

        Raises:
            StoreError: The database could not be read.
        """

    def note_served(self, served: ServedVersion) -> None:
        """Queue which version answers; returns at once and never raises. The newest one counts."""

    def put(self, reply: CachedReply) -> None:
        """Queue *reply*; it replaces an older one under its key, never a newer one."""

    def purge(
        self,
        *,
        tenant: str | None = None,
        version: str | None = None,
        older_than_ms: int | None = None,
    ) -> int:
        """Delete the replies that match every filter given; return how many.

        Args:
            tenant: Only this tenant's.
            version: Only those that this version digest wrote.
            older_than_ms: Only those created before this UTC epoch millisecond.

        Raises:
            ValueError: No filter was given.
            StoreError: The database refused.
        """

    def size(self) -> ReplyStoreSize:
        """Return what is held.

        Raises:
            StoreError: The database could not be read.
        """
