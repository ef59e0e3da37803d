"""Runs that nobody ran: figures, pictures and sums are made from them."""

from failsoft.engine.bench.run import Facts, ModeRun, Served
from failsoft.engine.bench.slots import Span, Step, Work

FACTS = Facts(
    version="tiny",
    version_digest="ab" * 32,
    dtype="float32",
    compute_dtype="float32",
    device="cpu",
    num_threads=1,
    torch="2",
    transformers="5",
    kv_bytes_per_token=100,
    num_kv_blocks=10,
    block_size=4,
)


def served(num_prompt: int, num_output: int, *, ttft_s: float, e2e_s: float) -> Served:
    """Return what one caller met, its gaps all alike."""
    gaps = num_output - 1
    return Served(
        num_prompt_tokens=num_prompt,
        num_output_tokens=num_output,
        ttft_s=ttft_s,
        tpot_s=(e2e_s - ttft_s) / gaps if gaps else None,
        e2e_s=e2e_s,
    )


def span(slot: int, request: int, work: Work, from_s: float, to_s: float) -> Span:
    """Return a span."""
    return Span(slot=slot, request=request, work=work, from_s=from_s, to_s=to_s)


def step(seconds: float, *, num_rows: int, num_tokens: int, num_blocks: int = 1) -> Step:
    """Return a forward."""
    return Step(
        start_s=0.0,
        seconds=seconds,
        num_rows=num_rows,
        num_tokens=num_tokens,
        num_blocks=num_blocks,
    )


def make_run(
    *callers: Served,
    mode: str = "continuous",
    num_slots: int = 2,
    wall_s: float = 10.0,
    spans: tuple[Span, ...] = (),
    steps: tuple[Step, ...] = (),
) -> ModeRun:
    """Return a run."""
    return ModeRun(
        mode=mode,
        num_slots=num_slots,
        wall_s=wall_s,
        served=callers,
        spans=spans,
        steps=steps,
        preemptions=0,
        peak_rss_bytes=None,
        other_cpu_share=None,
        facts=FACTS,
    )
