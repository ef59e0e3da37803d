"""Run as a program: the engine's own server over a tiny random model, for fuzzing.

Prints its URL when it answers; ends with SIGTERM. Its answers mean nothing, and come fast.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from failsoft.config.engine import EngineConfig
from failsoft.config.http import HttpConfig
from failsoft.engine.engine import Engine
from failsoft.engine.http.metrics import ServerMetrics
from failsoft.engine.http.served import ServedModel, ServerState
from failsoft.engine.http.server import base_url, bind, serve
from failsoft.engine.prepare import prepare
from failsoft.engine.structured.compiler import Compiler
from failsoft.engine.structured.token_table import build_table
from failsoft.engine.text.codec import TextCodec

NAME = "tiny-random"
MAX_LEN = 32_768
"""Room for the longest chat that its document allows."""
_SPECIAL = ["<|end|>", "<|turn|>"]
_TEMPLATE = (
    "{% for message in messages %}<|turn|>{{ message.role }}\n{{ message.content }}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


def make_tokenizer() -> Any:
    """Return a byte-level tokenizer: it can spell every text."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([Path(__file__).read_text("utf-8")], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=_SPECIAL[0], pad_token=_SPECIAL[0]
    )


def make_engine(vocab_size: int) -> Engine:
    """Return an engine over a random llama of two layers."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama",
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=MAX_LEN,
    )
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    settings = EngineConfig(dtype="float32", device="cpu", num_threads=1)
    prepared = prepare(
        model, name=NAME, vocab_size=vocab_size, max_model_len=MAX_LEN, config=settings
    )
    return Engine.from_prepared(
        prepared,
        vocab_size=vocab_size,
        eos_token_ids=frozenset({0}),
        version_digest="0" * 64,
        config=settings,
    )


def main() -> int:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--api-key", help="ask callers for it")
    options = parser.parse_args()
    tokenizer = make_tokenizer()
    engine = make_engine(len(tokenizer))
    served = ServedModel(
        name=NAME,
        version_digest="0" * 64,
        created=int(time.time()),
        codec=TextCodec(tokenizer, chat_template=_TEMPLATE),
        max_model_len=engine.limits.max_model_len,
        vocab_size=engine.limits.vocab_size,
        eos_token_ids=frozenset({0}),
        compiler=Compiler(
            build_table(
                tokenizer.backend_tokenizer,
                vocab_size=engine.limits.vocab_size,
                eos_token_ids=[0],
            ),
            vocab_size=engine.limits.vocab_size,
        ),
        generation_defaults={"max_new_tokens": 4},
    )
    state = ServerState(
        engine=engine,
        served=served,
        config=HttpConfig(port=0, api_key=options.api_key),
        metrics=ServerMetrics(engine, NAME, version_digest=served.version_digest),
    )
    sock = bind("127.0.0.1", 0)
    return serve(state, sock, drain_s=1, on_ready=lambda: print(base_url(sock), flush=True))


if __name__ == "__main__":
    sys.exit(main())
