"""A rollback that is asked for while a move has switched and is not over is kept with that move."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add its column; moves of before have none."""
    op.add_column("pin_moves", sa.Column("rollback_json", sa.Text, nullable=True))
