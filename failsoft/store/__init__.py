"""What happened, kept in SQLite or PostgreSQL: calls, attempts, replies and events.

`Store` is the way in; records go in and come out, rows stay here.
"""

from failsoft.store.reader import StoreReader, StoreStats
from failsoft.store.store import Store
from failsoft.store.tally import WriterStats

__all__ = ["Store", "StoreReader", "StoreStats", "WriterStats"]
