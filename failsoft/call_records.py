"""What the ladder hands to the store, and the protocols it codes against.

Frozen objects; nothing here acts, reads a clock or imports a part. Stamps that
end in ``_at_ms`` are UTC epoch milliseconds, durations end in ``_s``. None is
"not known" or "never got there", never zero. No field but `CallText`,
`CachedReply.reply_json` and an idempotency reply may hold a user's text.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class CallOutcome(StrEnum):
    """How one call ended for its caller."""

    OK = "ok"
    """A complete reply, from whichever rung."""
    INCOMPLETE = "incomplete"
    """Cut after its first content delta; the caller got a part and a typed error."""
    FAILED = "failed"
    """No rung could answer."""
    DEADLINE = "deadline"
    """The call's own deadline passed first."""
    REJECTED = "rejected"
    """The caller's fault, or its idempotency key is in use: no rung would have helped."""
    CANCELLED = "cancelled"
    """The caller left."""


class AttemptOutcome(StrEnum):
    """How one attempt on one rung ended, or why the rung was passed over."""

    OK = "ok"
    CONNECT_FAILED = "connect_failed"
    RESET = "reset"
    """The connection closed before the reply began."""
    TIMEOUT_CONNECT = "timeout_connect"
    TIMEOUT_FIRST_TOKEN = "timeout_first_token"  # noqa: S105 - a clock's name
    TIMEOUT_GAP = "timeout_gap"
    TIMEOUT_TOTAL = "timeout_total"
    DEADLINE = "deadline"
    """The call's deadline ended it, not one of the attempt's own clocks."""
    HTTP_STATUS = "http_status"
    """A status that is none of the kinds below."""
    BAD_REQUEST = "bad_request"
    """The endpoint calls it the caller's fault (400, 413, 422)."""
    AUTH = "auth"
    """401, 402 or 403: our key, not the caller's fault."""
    THROTTLED = "throttled"
    """429 or Retry-After: the endpoint's rate limit."""
    QUOTA = "quota"
    """The quota is spent; waiting does not help."""
    QUEUE_FULL = "queue_full"
    """Our engine shed it at the door."""
    BAD_REPLY = "bad_reply"
    """A 2xx that is not a reply: garbage, empty, an error body."""
    CUT = "cut"
    """The reply broke off before its finish reason."""
    CANCELLED = "cancelled"
    """The caller left while it ran."""
    BREAKER_OPEN = "breaker_open"
    SKIPPED_BUDGET = "skipped_budget"
    """The retry budget refused it."""
    SKIPPED_DEADLINE = "skipped_deadline"
    """Too little of the deadline was left to try."""
    SKIPPED_CONTEXT = "skipped_context"
    """The request is longer than the endpoint's context."""
    SKIPPED_CAPABILITY = "skipped_capability"
    """The endpoint lacks what the request needs (tools, JSON schema)."""
    CACHE_MISS = "cache_miss"
    CACHE_EXPIRED = "cache_expired"
    """An entry was there, older than every window allows."""
    CACHE_NOT_ALLOWED = "cache_not_allowed"
    """Tools, an opt-out or the position's rule forbids a cached reply."""
    STORE_FAILED = "store_failed"
    """The reply store could not be read."""
    ERROR = "error"
    """Anything else; *error_message* says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call through a ladder, as its caller met it."""

    call_id: str
    """Unique over all processes; recording the same one twice keeps the first.

    Ids that start with the time keep their index in few pages: twice the rows a second.
    """
    ladder: str
    tenant: str
    """Set by the server; empty when there is only one."""
    started_at_ms: int
    outcome: CallOutcome
    served_rung: int | None
    """Index of the rung that answered, from 0; None when none did."""
    served_endpoint: str | None
    """Its endpoint's name, or ``"cache"``."""
    version_digest: str | None
    """Digest of the version that wrote the reply; None for an endpoint that names none."""
    num_attempts: int
    """Attempts that were sent, over all rungs."""
    ttft_s: float | None
    """Call to first content delta; equals *e2e_s* for a reply that was not streamed."""
    e2e_s: float
    is_stream: bool
    is_complete: bool
    """Whether the caller has a finish reason and every delta before it."""
    age_s: float | None = None
    """A cached reply's age; None for a live one."""
    is_stale: bool = False
    cost: float | None = None
    """Sum over attempts, in the currency of the prices; None when a price or a count is missing."""
    num_prompt_tokens: int | None = None
    num_cached_tokens: int | None = None
    """Prompt tokens that the endpoint took from its own prefix cache."""
    num_output_tokens: int | None = None
    error_kind: str | None = None
    """An exception's or failure class's name; never a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One row of the ledger: one attempt on one rung, sent or passed over."""

    call_id: str
    attempt: int
    """Index within the call, from 0, passed-over rungs included; unique in its call."""
    rung: int
    """Index of the rung, from 0."""
    endpoint: str
    outcome: AttemptOutcome
    started_at_ms: int
    was_sent: bool
    """Whether the whole request left for the endpoint: what its own count of requests counts."""
    total_s: float
    connect_s: float | None = None
    """None when an open connection was used again."""
    ttft_s: float | None = None
    http_status: int | None = None
    version_digest: str | None = None
    reported_model: str | None = None
    """What the endpoint's own ``model`` field said."""
    reported_fingerprint: str | None = None
    """What the endpoint's own ``system_fingerprint`` said."""
    num_prompt_tokens: int | None = None
    num_cached_tokens: int | None = None
    num_output_tokens: int | None = None
    """Real tokens, also of a reply that was cut."""
    cost: float | None = None
    """At the served version's price; None when a price or a count is missing."""
    error_message: str | None = None
    """Short, and never a user's text; cut at 500 characters when it is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallText:
    """One call's own words; stored only under ``[store] keep_text = "all"``."""

    call_id: str
    tenant: str
    at_ms: int
    request_json: str = field(repr=False)
    reply_json: str | None = field(repr=False)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """Something that happened to a part: a breaker opened, a pin moved, records were dropped."""

    kind: str
    """Dotted, from general to special: ``"breaker.opened"``, ``"store.recovered"``."""
    at_ms: int
    subject: str
    """The endpoint, ladder, slot or part it happened to."""
    detail_json: str = "{}"
    """A JSON object; never a user's text."""


class Recorder(Protocol):
    """Takes records off a call's path: every method returns at once and never raises.

    Any thread, any event loop, any forked child may call them. A record that
    cannot be kept is dropped and counted, by kind.
    """

    def record_call(self, record: CallRecord, /) -> None:
        """Queue one call row."""

    def record_attempt(self, record: AttemptRecord, /) -> None:
        """Queue one ledger row; it may come before or after its call's row."""

    def record_event(self, record: EventRecord, /) -> None:
        """Queue one event row."""

    def record_text(self, record: CallText, /) -> None:
        """Queue a call's words; nothing is kept unless ``keep_text = "all"``."""


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
