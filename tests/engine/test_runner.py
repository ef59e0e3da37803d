"""The model runner: what one row's bad numbers may and may not touch."""

import pytest
import torch

from failsoft.config.engine import EngineConfig
from failsoft.engine.kv_block import BlockPool
from failsoft.engine.prepare import prepare
from failsoft.engine.scheduler import Scheduler
from failsoft.records import FinishReason
from tests.engine.architectures import SERVED, VOCAB, make_model
from tests.engine.builders import Collector, make_loop, make_request, run_to_end

BAD_TOKEN = 50


@pytest.mark.filterwarnings("ignore")
def test_a_prompt_of_nan_cut_off_before_its_first_logits_harms_nobody() -> None:
    """Its blocks once went on as they were: three of the next six requests failed.

    A masked key costs a probability of zero, and zero times NaN is NaN.
    """
    model = make_model("llama", SERVED["llama"])
    config = EngineConfig(block_size=4, num_kv_blocks=6, max_step_tokens=16)
    ready = prepare(model, name="llama", vocab_size=VOCAB, max_model_len=512, config=config)
    with torch.no_grad():
        model.get_input_embeddings().weight[BAD_TOKEN] = float("nan")
    scheduler = Scheduler(
        pool=BlockPool(num_blocks=6, block_size=4),
        max_running=8,
        max_step_tokens=16,
        max_model_len=200,
        aging_s=10.0,
        is_prefix_cache_on=True,
        version_digest="v",
    )
    loop, events = make_loop(scheduler, ready.runner), Collector()
    loop.add(make_request("bad", [BAD_TOKEN] * 20, max_tokens=2), events)
    loop.step()
    loop.end("bad", FinishReason.ABORT)

    names = [f"good{number}" for number in range(6)]
    for number, name in enumerate(names):
        loop.add(make_request(name, [3 + number, 4, 5, 6, 7], max_tokens=8), events)
    run_to_end(loop)

    assert [events.finished[name].error for name in names] == [None] * 6
