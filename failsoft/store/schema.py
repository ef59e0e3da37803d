"""The store's tables. Stamps are UTC epoch milliseconds, durations seconds.

No foreign keys: an attempt may be written before its call, and each may be
dropped alone when the disk is full.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)

HEAD = "0004"
"""The revision this code reads and writes; the last one in ``migrations/versions``."""

IS_FAILURE = (
    "outcome NOT IN ('ok', 'cancelled', 'bad_request', 'breaker_open', "
    "'skipped_budget', 'skipped_deadline', 'skipped_context', 'skipped_capability', "
    "'cache_miss', 'cache_expired', 'cache_not_allowed')"
)
"""SQL: an attempt that its endpoint failed. SQLite takes `attempts_by_failure` only for a query
that holds the very words the index was made with (revision 0002 keeps its own copy)."""

metadata = MetaData()

calls = Table(
    "calls",
    metadata,
    Column("call_id", Text, primary_key=True),
    Column("ladder", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("started_at_ms", BigInteger, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("served_rung", Integer),
    Column("served_endpoint", Text),
    Column("version_digest", Text),
    Column("num_attempts", Integer, nullable=False),
    Column("ttft_s", Double),
    Column("e2e_s", Double, nullable=False),
    Column("is_stream", Boolean, nullable=False),
    Column("is_complete", Boolean, nullable=False),
    Column("age_s", Double),
    Column("is_stale", Boolean, nullable=False),
    Column("cost", Double),
    Column("num_prompt_tokens", BigInteger),
    Column("num_cached_tokens", BigInteger),
    Column("num_output_tokens", BigInteger),
    Column("error_kind", Text),
    # Covers the counts by rung, and still finds calls by their start alone.
    Index("calls_by_start", "started_at_ms", "ladder", "outcome", "served_endpoint"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("call_id", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("rung", Integer, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("started_at_ms", BigInteger, nullable=False),
    Column("was_sent", Boolean, nullable=False),
    Column("total_s", Double, nullable=False),
    Column("connect_s", Double),
    Column("ttft_s", Double),
    Column("http_status", Integer),
    Column("version_digest", Text),
    Column("reported_model", Text),
    Column("reported_fingerprint", Text),
    Column("num_prompt_tokens", BigInteger),
    Column("num_cached_tokens", BigInteger),
    Column("num_output_tokens", BigInteger),
    Column("cost", Double),
    Column("error_message", Text),
    Index("attempts_by_start", "started_at_ms"),
    # Failures only: the last one is found at once however many attempts went well since.
    Index(
        "attempts_by_failure",
        "endpoint",
        "started_at_ms",
        sqlite_where=text(IS_FAILURE),
        postgresql_where=text(IS_FAILURE),
    ),
)

texts = Table(
    "texts",
    metadata,
    Column("call_id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("request_json", Text, nullable=False),
    Column("reply_json", Text),
    Index("texts_by_time", "at_ms"),
    Index("texts_by_tenant", "tenant"),
)

replies = Table(
    "replies",
    metadata,
    Column("key", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("version_digest", Text),
    Column("ladder", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("used_at_ms", BigInteger, nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("finish_reason", Text, nullable=False),
    Column("reply_json", Text, nullable=False),
    # Covers the size query, and gives the eviction its order.
    Index("replies_by_use", "used_at_ms", "num_bytes"),
    Index("replies_by_creation", "created_at_ms"),
    Index("replies_by_tenant", "tenant"),
    Index("replies_by_version", "version_digest"),
)

served = Table(
    "served",
    metadata,
    Column("source", Text, primary_key=True),
    Column("version_digest", Text),
    Column("at_ms", BigInteger, nullable=False),
    Index("served_by_time", "at_ms"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("key_hash", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("owner", Text),
    # A running key's lease end, or the last moment a finished key plays back.
    Column("until_ms", BigInteger, nullable=False),
    Column("finished_at_ms", BigInteger),
    Column("reply_json", Text),
    Index("idempotency_by_end", "until_ms"),
    Index("idempotency_by_tenant", "tenant"),
)

events = Table(
    "events",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail_json", Text, nullable=False),
    Index("events_by_time", "at_ms"),
)

IS_OPEN = "ended_at_ms IS NULL"
"""SQL: a move that is not over; a slot has one at most."""

pins = Table(
    "pins",
    metadata,
    Column("slot", Text, primary_key=True),
    Column("version_name", Text, nullable=False),
    Column("version_settings_json", Text, nullable=False),
    Column("version_digest", Text),
    Column("is_moved", Boolean, nullable=False),
    Column("move_id", Text, nullable=False),
    Column("since_ms", BigInteger, nullable=False),
)

pin_moves = Table(
    "pin_moves",
    metadata,
    Column("move_id", Text, primary_key=True),
    Column("slot", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("left_name", Text),
    Column("left_settings_json", Text),
    Column("left_digest", Text),
    Column("to_name", Text, nullable=False),
    Column("to_settings_json", Text, nullable=False),
    Column("to_digest", Text),
    Column("who", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("swap", Text, nullable=False),
    Column("accept_unproven", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("steps_json", Text, nullable=False),
    Column("ended_at_ms", BigInteger),
    Column("owner", Text),
    Column("abort_by", Text),
    Column("reason", Text),
    Column("proof_json", Text),
    Column("rollback_json", Text),
    Index("pin_moves_by_slot", "slot", "move_id"),
    Index(
        "pin_moves_open",
        "slot",
        unique=True,
        sqlite_where=text(IS_OPEN),
        postgresql_where=text(IS_OPEN),
    ),
)

fingerprints = Table(
    "fingerprints",
    metadata,
    Column("subject", Text, primary_key=True),
    Column("taken_at_ms", BigInteger, nullable=False),
    Column("schema", Integer, nullable=False),
    Column("reference_json", Text, nullable=False),
)

reported = Table(
    "reported",
    metadata,
    Column("endpoint", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("fingerprint", Text, primary_key=True),
    Column("first_seen_ms", BigInteger, nullable=False),
    Column("last_seen_ms", BigInteger, nullable=False),
)

eval_scores = Table(
    "eval_scores",
    metadata,
    Column("version_digest", Text, primary_key=True),
    Column("eval_set", Text, primary_key=True),
    Column("at_ms", BigInteger, primary_key=True),
    Column("score", Double, nullable=False),
    Column("num_samples", Integer, nullable=False),
)
