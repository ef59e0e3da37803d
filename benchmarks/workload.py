"""Workload files: prompts as token ids, with exact output lengths."""

import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "workloads"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One request of a workload."""

    prompt_ids: tuple[int, ...]
    output_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests that arrive at once, and how many may run together."""

    name: str
    model: str
    max_running: int
    items: tuple[Item, ...]

    @property
    def num_output_tokens(self) -> int:
        """Tokens to generate in all."""
        return sum(item.output_len for item in self.items)

    def first(self, count: int) -> "Workload":
        """Return the first *count* requests as a workload of their own."""
        return Workload(
            name=f"{self.name}[:{count}]",
            model=self.model,
            max_running=self.max_running,
            items=self.items[:count],
        )


def load_workload(name: str) -> Workload:
    """Return a workload of ``benchmarks/workloads`` by its file's stem."""
    document = json.loads((FOLDER / f"{name}.json").read_text())
    return Workload(
        name=name,
        model=document["model"],
        max_running=document["max_running"],
        items=tuple(
            Item(prompt_ids=tuple(entry["prompt_ids"]), output_len=entry["output_len"])
            for entry in document["requests"]
        ),
    )
