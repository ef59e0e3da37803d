"""Alembic's revisions of the store, run by `failsoft.store.migrate`."""
