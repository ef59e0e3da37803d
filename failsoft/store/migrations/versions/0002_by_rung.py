"""Indexes for the counts by rung: one covers them, one holds failed attempts only."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_IS_FAILURE = (
    "outcome NOT IN ('ok', 'cancelled', 'bad_request', 'breaker_open', "
    "'skipped_budget', 'skipped_deadline', 'skipped_context', 'skipped_capability', "
    "'cache_miss', 'cache_expired', 'cache_not_allowed')"
)


def upgrade() -> None:
    """Widen the index over calls, and add the one over failures."""
    op.drop_index("calls_by_start", "calls")
    op.create_index(
        "calls_by_start", "calls", ["started_at_ms", "ladder", "outcome", "served_endpoint"]
    )
    op.create_index(
        "attempts_by_failure",
        "attempts",
        ["endpoint", "started_at_ms"],
        sqlite_where=sa.text(_IS_FAILURE),
        postgresql_where=sa.text(_IS_FAILURE),
    )
