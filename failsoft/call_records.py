"""What the ladder hands to the store, and the protocols it codes against.

Frozen objects; nothing here acts, reads a clock or imports a part. Stamps that
end in ``_at_ms`` are UTC epoch milliseconds, durations end in ``_s``. None is
"not known" or "never got there", never zero. No field but `CallText`'s may hold a user's text.
Kept replies and idempotency keys have records of their own (`failsoft.reply_records`,
`failsoft.idempotency_records`).
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
