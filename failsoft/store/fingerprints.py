"""What each version on each machine, or endpoint elsewhere, is compared with; thread-safe.

Knows nothing of what a reference holds: its JSON is `failsoft.fallback.fingerprint`'s.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from failsoft.store.database import Database
from failsoft.store.schema import fingerprints

_KEEP = sa.text(
    "INSERT INTO fingerprints (subject, taken_at_ms, schema, reference_json) "
    "VALUES (:subject, :taken_at_ms, :schema, :reference_json) "
    "ON CONFLICT (subject) DO NOTHING"
)
_REPLACE = sa.text(
    "INSERT INTO fingerprints (subject, taken_at_ms, schema, reference_json) "
    "VALUES (:subject, :taken_at_ms, :schema, :reference_json) "
    "ON CONFLICT (subject) DO UPDATE SET taken_at_ms = excluded.taken_at_ms, "
    "schema = excluded.schema, reference_json = excluded.reference_json"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReference:
    """One subject's reference."""

    taken_at_ms: int
    """UTC epoch milliseconds."""
    schema: int
    """Of the JSON."""
    reference_json: str


class FingerprintStore:
    """Keeps one reference for each subject; every method raises StoreError when refused.

    Args:
        database: Where the rows are.
        clock: UTC epoch seconds.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def find(self, subject: str) -> KeptReference | None:
        """Return the reference of *subject*; None when none is kept."""
        columns = (
            fingerprints.c.taken_at_ms,
            fingerprints.c.schema,
            fingerprints.c.reference_json,
        )
        with self._database.read() as connection:
            found = connection.execute(sa.select(*columns).where(fingerprints.c.subject == subject))
            row = found.mappings().first()
        return None if row is None else KeptReference(**row)

    def keep(self, subject: str, reference_json: str, *, schema: int) -> bool:
        """Keep a first reference of *subject*; False when another was there already, and stays."""
        return self._insert(_KEEP, subject, reference_json, schema)

    def replace(self, subject: str, reference_json: str, *, schema: int) -> None:
        """Keep a reference of *subject* in place of any other."""
        self._insert(_REPLACE, subject, reference_json, schema)

    def forget(self, subject: str) -> bool:
        """Delete the reference of *subject*; False when none was there."""
        with self._database.write() as connection:
            is_its = fingerprints.c.subject == subject
            return connection.execute(sa.delete(fingerprints).where(is_its)).rowcount == 1

    def _insert(
        self, statement: sa.TextClause, subject: str, reference_json: str, schema: int
    ) -> bool:
        values = {
            "subject": subject,
            "taken_at_ms": int(self._clock() * 1000),
            "schema": schema,
            "reference_json": reference_json,
        }
        with self._database.write() as connection:
            return connection.execute(statement, values).rowcount == 1
