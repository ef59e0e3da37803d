"""The last steps an engine took, kept in a ring and exportable as JSON lines.

A cost model of the engine (seconds from rows, tokens and KV positions) is
fitted on these records; nothing here measures anything itself.
"""

import json
from collections import deque
from dataclasses import asdict

from failsoft.records import StepRecord


class StepLog:
    """A ring of StepRecords; appending drops the oldest beyond *capacity*.

    One thread appends; any thread may read a snapshot.
    """

    def __init__(self, *, capacity: int = 4096) -> None:
        self._ring: deque[StepRecord] = deque(maxlen=capacity)

    def append(self, record: StepRecord) -> None:
        """Keep *record*."""
        self._ring.append(record)

    def snapshot(self) -> tuple[StepRecord, ...]:
        """Return what the ring holds, oldest first."""
        return tuple(self._ring.copy())

    def to_json_lines(self) -> str:
        """Return one JSON object a line, oldest first, fields as in StepRecord."""
        return "".join(json.dumps(asdict(record)) + "\n" for record in self.snapshot())
