"""What one mode's run was like, as it crosses from the process that ran it; no torch.

Stamps of spans and steps are seconds since all requests arrived.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from failsoft.engine.bench.slots import Span, Step, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What the caller of one request met; seconds since everything arrived."""

    num_prompt_tokens: int
    num_output_tokens: int
    ttft_s: float
    tpot_s: float | None
    """None below two tokens, and where the reply came in one piece."""
    e2e_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a mode's process knows of itself."""

    version: str
    version_digest: str
    dtype: str
    compute_dtype: str
    device: str
    num_threads: int
    torch: str
    transformers: str
    kv_bytes_per_token: int
    num_kv_blocks: int
    block_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRun:
    """One workload under one schedule."""

    mode: str
    num_slots: int
    wall_s: float
    """From the arrival of all to the end of the last reply."""
    served: tuple[Served, ...]
    spans: tuple[Span, ...]
    steps: tuple[Step, ...]
    preemptions: int
    peak_rss_bytes: int | None
    """Of the mode's own process, from the end of its warm-up; None where it is not known."""
    other_cpu_share: float | None
    """Of all cores, used by other processes meanwhile; None where it is not known."""
    facts: Facts

    def to_document(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "ModeRun":
        """Return what `to_document` gave."""
        fields = dict(document)
        fields["served"] = tuple(Served(**one) for one in fields["served"])
        fields["spans"] = tuple(
            Span(**{**span, "work": Work(span["work"])}) for span in fields["spans"]
        )
        fields["steps"] = tuple(Step(**step) for step in fields["steps"])
        fields["facts"] = Facts(**fields["facts"])
        return cls(**fields)
