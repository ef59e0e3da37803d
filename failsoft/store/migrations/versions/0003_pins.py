"""Pins, their moves, and what tells versions apart."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_IS_OPEN = "ended_at_ms IS NULL"


def upgrade() -> None:
    """Make the tables of pins and moves, fingerprints, reported names and eval scores."""
    _make_pins()
    _make_evidence()


def _text(name: str, *, null: bool = False, key: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=null and not key, primary_key=key)


def _big(name: str, *, null: bool = False, key: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=null and not key, primary_key=key)


def _version(side: str, *, null: bool = False) -> list[sa.Column[str]]:
    return [
        _text(f"{side}_name", null=null),
        _text(f"{side}_settings_json", null=null),
        _text(f"{side}_digest", null=True),
    ]


def _make_pins() -> None:
    op.create_table(
        "pins",
        _text("slot", key=True),
        *_version("version"),
        sa.Column("is_moved", sa.Boolean, nullable=False),
        _text("move_id"),
        _big("since_ms"),
    )
    op.create_table(
        "pin_moves",
        _text("move_id", key=True),
        _text("slot"),
        _text("kind"),
        *_version("left", null=True),
        *_version("to"),
        _text("who"),
        _text("why"),
        _text("swap"),
        sa.Column("accept_unproven", sa.Boolean, nullable=False),
        _text("state"),
        _text("steps_json"),
        _big("ended_at_ms", null=True),
        _text("owner", null=True),
        _text("abort_by", null=True),
        _text("reason", null=True),
        _text("proof_json", null=True),
    )
    op.create_index("pin_moves_by_slot", "pin_moves", ["slot", "move_id"])
    op.create_index(
        "pin_moves_open",
        "pin_moves",
        ["slot"],
        unique=True,
        sqlite_where=sa.text(_IS_OPEN),
        postgresql_where=sa.text(_IS_OPEN),
    )


def _make_evidence() -> None:
    op.create_table(
        "fingerprints",
        _text("subject", key=True),
        _big("taken_at_ms"),
        sa.Column("schema", sa.Integer, nullable=False),
        _text("reference_json"),
    )
    op.create_table(
        "reported",
        _text("endpoint", key=True),
        _text("model", key=True),
        _text("fingerprint", key=True),
        _big("first_seen_ms"),
        _big("last_seen_ms"),
    )
    op.create_table(
        "eval_scores",
        _text("version_digest", key=True),
        _text("eval_set", key=True),
        _big("at_ms", key=True),
        sa.Column("score", sa.Double, nullable=False),
        sa.Column("num_samples", sa.Integer, nullable=False),
    )
