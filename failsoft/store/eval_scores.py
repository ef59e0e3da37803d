"""What eval runs said of versions, in SQL."""

from dataclasses import asdict

import sqlalchemy as sa

from failsoft.pin_records import EvalScore
from failsoft.store.database import Database
from failsoft.store.schema import eval_scores


class EvalScores:
    """The score of each eval run; thread-safe.

    Every method raises `StoreError` when the database refuses.

    Args:
        database: Where the rows are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, score: EvalScore) -> None:
        """Keep the score of one run."""
        with self._database.write() as connection:
            connection.execute(sa.insert(eval_scores).values(asdict(score)))

    def newest(self, version_digest: str) -> dict[str, EvalScore]:
        """Return the last score of a version on each eval set; empty when it has none."""
        rows = (
            sa.select(eval_scores)
            .where(eval_scores.c.version_digest == version_digest)
            .order_by(eval_scores.c.at_ms)
        )
        with self._database.read() as connection:
            scores = [EvalScore(**row) for row in connection.execute(rows).mappings()]
        return {score.eval_set: score for score in scores}
