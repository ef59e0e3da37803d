"""What Alembic runs around the revisions; the connection comes from `failsoft.store.migrate`."""

from alembic import context


def run() -> None:
    """Run the revisions inside the caller's transaction."""
    connection = context.config.attributes["connection"]
    # SQLite alters a table by copying it, which batch mode writes out.
    context.configure(connection=connection, render_as_batch=True)
    context.run_migrations()


if __name__ == "env_py":  # Alembic's name for it: a plain import must not migrate
    run()
