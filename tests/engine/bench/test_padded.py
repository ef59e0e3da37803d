"""The padded opponent: real ``generate`` on a tiny model, and how much of it fits in memory."""

from types import SimpleNamespace
from typing import Any

import pytest

from failsoft.engine.bench import padded
from failsoft.engine.bench.slots import Work
from failsoft.engine.bench.workload import Item
from tests.engine.architectures import make_model

ITEMS = [
    Item(prompt_ids=(5, 6, 7), output_len=2),
    Item(prompt_ids=(9,) * 8, output_len=5),
    Item(prompt_ids=(4,), output_len=1),
]


def test_a_batch_runs_to_its_longest_output_and_all_replies_leave_then() -> None:
    """Whoever is done decodes on for nobody."""
    model = make_model("llama", {})
    run = padded._Run(num_slots=3)

    run.batch(model, ITEMS, first=0, on_progress=lambda _tokens, _ended: None)

    assert len({one.e2e_s for one in run.served}) == 1
    assert [one.ttft_s for one in run.served] == [one.e2e_s for one in run.served]
    assert [step.num_tokens for step in run.steps] == [3 * 8, 3, 3, 3, 3]
    assert run.num_tokens == 2 + 5 + 1
    kept = {span.request for span in run.board.spans() if span.work is Work.KEPT}
    assert kept == {0, 2}


def test_bytes_of_a_token_are_those_of_the_models_own_cache() -> None:
    """4 layers, 2 KV heads of 8, keys and values, float32."""
    assert padded._kv_bytes_per_token(make_model("llama", {})) == 4 * 2 * 8 * 2 * 4


@pytest.mark.parametrize(("free", "size"), [(10**12, 3), (70_000, 2), (1, 1), (None, 3)])
def test_a_batch_is_as_large_as_memory_allows(
    monkeypatch: pytest.MonkeyPatch, free: int | None, size: int
) -> None:
    """One at least; all where nobody knows."""
    config: Any = SimpleNamespace(
        hidden_size=32, intermediate_size=48, num_attention_heads=4, vocab_size=97
    )
    config.get_text_config = lambda: config
    monkeypatch.setattr(padded, "available_bytes", lambda: free)

    assert padded.batch_size(ITEMS, config, 512, 4) == size
