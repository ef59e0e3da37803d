"""Databases as older failsofts made them."""

from importlib.resources import files

import sqlalchemy as sa
from alembic import command
from alembic.config import Config


def upgrade_to(connection: sa.Connection, revision: str) -> None:
    """Bring the database to *revision*, which need not be the last."""
    config = Config()
    config.set_main_option("script_location", str(files("failsoft.store") / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
