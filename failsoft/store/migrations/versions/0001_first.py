"""Calls, attempts, texts, replies, served versions, idempotency keys and events."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _text(name: str, *, null: bool = False, key: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=null and not key, primary_key=key)


def _big(name: str, *, null: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=null)


def _int(name: str, *, null: bool = False, key: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=null and not key, primary_key=key)


def _real(name: str, *, null: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Double, nullable=null)


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False)


def _tokens() -> list[sa.Column[int]]:
    names = ("num_prompt_tokens", "num_cached_tokens", "num_output_tokens")
    return [_big(name, null=True) for name in names]


def upgrade() -> None:
    """Make every table and index."""
    _make_ledger()
    _make_texts()
    _make_idempotency()
    _make_events()


def _make_ledger() -> None:
    op.create_table(
        "calls",
        _text("call_id", key=True),
        _text("ladder"),
        _text("tenant"),
        _big("started_at_ms"),
        _text("outcome"),
        _int("served_rung", null=True),
        _text("served_endpoint", null=True),
        _text("version_digest", null=True),
        _int("num_attempts"),
        _real("ttft_s", null=True),
        _real("e2e_s"),
        _flag("is_stream"),
        _flag("is_complete"),
        _real("age_s", null=True),
        _flag("is_stale"),
        _real("cost", null=True),
        *_tokens(),
        _text("error_kind", null=True),
    )
    op.create_index("calls_by_start", "calls", ["started_at_ms"])
    op.create_table(
        "attempts",
        _text("call_id", key=True),
        _int("attempt", key=True),
        _int("rung"),
        _text("endpoint"),
        _text("outcome"),
        _big("started_at_ms"),
        _flag("was_sent"),
        _real("total_s"),
        _real("connect_s", null=True),
        _real("ttft_s", null=True),
        _int("http_status", null=True),
        _text("version_digest", null=True),
        _text("reported_model", null=True),
        _text("reported_fingerprint", null=True),
        *_tokens(),
        _real("cost", null=True),
        _text("error_message", null=True),
    )
    op.create_index("attempts_by_start", "attempts", ["started_at_ms"])


def _make_texts() -> None:
    op.create_table(
        "texts",
        _text("call_id", key=True),
        _text("tenant"),
        _big("at_ms"),
        _text("request_json"),
        _text("reply_json", null=True),
    )
    op.create_index("texts_by_time", "texts", ["at_ms"])
    op.create_index("texts_by_tenant", "texts", ["tenant"])
    op.create_table(
        "replies",
        _text("key", key=True),
        _text("tenant"),
        _text("version_digest", null=True),
        _text("ladder"),
        _big("created_at_ms"),
        _big("used_at_ms"),
        _big("num_bytes"),
        _text("finish_reason"),
        _text("reply_json"),
    )
    op.create_index("replies_by_use", "replies", ["used_at_ms", "num_bytes"])
    op.create_index("replies_by_creation", "replies", ["created_at_ms"])
    op.create_index("replies_by_tenant", "replies", ["tenant"])
    op.create_index("replies_by_version", "replies", ["version_digest"])
    op.create_table(
        "served", _text("source", key=True), _text("version_digest", null=True), _big("at_ms")
    )
    op.create_index("served_by_time", "served", ["at_ms"])


def _make_idempotency() -> None:
    op.create_table(
        "idempotency",
        _text("key_hash", key=True),
        _text("tenant"),
        _text("fingerprint"),
        _text("owner", null=True),
        _big("until_ms"),
        _big("finished_at_ms", null=True),
        _text("reply_json", null=True),
    )
    op.create_index("idempotency_by_end", "idempotency", ["until_ms"])
    op.create_index("idempotency_by_tenant", "idempotency", ["tenant"])


def _make_events() -> None:
    op.create_table(
        "events",
        _text("event_id", key=True),
        _text("kind"),
        _big("at_ms"),
        _text("subject"),
        _text("detail_json"),
    )
    op.create_index("events_by_time", "events", ["at_ms"])
