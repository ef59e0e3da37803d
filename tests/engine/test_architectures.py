"""Many architectures: exact under pressure, or refused with the reason."""

import random
from typing import Any

import pytest
import torch

from failsoft.config.engine import EngineConfig
from failsoft.engine.kv_block import BlockPool
from failsoft.engine.prepare import PreparedModel, prepare
from failsoft.engine.request import GenerationRequest, SamplingParams
from failsoft.engine.scheduler import Scheduler
from failsoft.errors import UnsupportedModelError
from tests.engine.architectures import REFUSED, SERVED, VOCAB, make_model
from tests.engine.builders import Collector, make_loop, run_to_end

NUM_OUTPUT = 12


def prepared(model: Any, name: str, **settings: Any) -> PreparedModel:
    config = EngineConfig(block_size=4, num_kv_blocks=24, max_step_tokens=16, **settings)
    return prepare(model, name=name, vocab_size=VOCAB, max_model_len=512, config=config)


def reference(model: Any, prompt: list[int]) -> tuple[list[int], float]:
    """Return transformers' greedy output and the smallest gap between its two best logits."""
    with torch.inference_mode():
        out = model.generate(
            input_ids=torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=NUM_OUTPUT,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
    best = torch.stack([logits[0].topk(2).values for logits in out.logits])
    return out.sequences[0, len(prompt) :].tolist(), float((best[:, 0] - best[:, 1]).min())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model_type", SERVED)
def test_greedy_output_equals_generate_under_pressure(model_type: str) -> None:
    """Chunks of 16, preemptions and prefix hits; windows of 12 under prompts of 40."""
    model = make_model(model_type, SERVED[model_type])
    rng = random.Random(1)
    shared = [rng.randrange(3, VOCAB) for _ in range(20)]
    prompts = [[rng.randrange(3, VOCAB) for _ in range(n)] for n in (1, 3, 17, 30, 40)]
    prompts += [[*shared, *(rng.randrange(3, VOCAB) for _ in range(n))] for n in (1, 5)]
    wanted = [reference(model, prompt) for prompt in prompts]
    ready = prepared(model, model_type)
    scheduler = Scheduler(
        pool=BlockPool(num_blocks=ready.num_blocks, block_size=4),
        max_running=8,
        max_step_tokens=16,
        max_model_len=ready.max_model_len,
        aging_s=10.0,
        is_prefix_cache_on=True,
        version_digest="v",
    )
    loop = make_loop(scheduler, ready.runner)
    events = Collector()
    for number, prompt in enumerate(prompts):
        request = GenerationRequest(
            request_id=str(number),
            prompt_ids=tuple(prompt),
            sampling=SamplingParams(max_tokens=NUM_OUTPUT, temperature=0.0),
            arrival_s=float(number),
        )
        loop.add(request, events)

    run_to_end(loop)

    assert scheduler.preemptions_total > 0
    for number, (tokens, gap) in enumerate(wanted):
        if events.tokens[str(number)] != tokens:
            assert gap < 1e-4, f"prompt {number} differs and its smallest gap is {gap}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model_type", REFUSED)
def test_what_cannot_be_right_is_refused_with_the_reason(model_type: str) -> None:
    """Refused at load, before any request could be answered wrongly."""
    settings, reason = REFUSED[model_type]
    model = make_model(model_type, settings)

    with pytest.raises(UnsupportedModelError, match=reason) as caught:
        prepared(model, model_type)

    assert caught.value.model == model_type


def test_a_rotary_embedding_that_depends_on_the_batch_is_refused() -> None:
    """A longrope model picks frequencies by the longest sequence in the pack."""
    settings = {
        "max_position_embeddings": 512,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "original_max_position_embeddings": 64,
            "short_factor": [1.0] * 4,
            "long_factor": [2.0] * 4,
        },
    }
    model = make_model("llama", settings)

    with pytest.raises(UnsupportedModelError, match="max_model_len <= 64"):
        prepared(model, "long")
    assert prepared(model, "long", max_model_len=64).max_model_len == 64


def test_a_model_whose_attention_lies_is_refused_with_the_measured_error() -> None:
    """A window that the attention call never hears of shows in the self-test."""
    model = make_model("llama", {})
    layer = model.model.layers[1].self_attn
    plain = layer.forward

    def forgetful(hidden_states: torch.Tensor, **kwargs: Any) -> Any:
        return plain(hidden_states - hidden_states.mean(dim=1, keepdim=True), **kwargs)

    layer.forward = forgetful

    with pytest.raises(UnsupportedModelError, match=r"off by .* standard deviations"):
        prepared(model, "forgetful")
