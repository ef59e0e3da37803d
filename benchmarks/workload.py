"""Workload files: prompts as token ids, with exact output lengths.

They come with failsoft (engine/bench/workloads), so that ``failsoft bench`` has them too.
"""

from failsoft.engine.bench.workload import Item as Item
from failsoft.engine.bench.workload import Workload as Workload
from failsoft.engine.bench.workload import load_workload as load_workload
