"""From a loaded version to what the server knows of it."""

from types import SimpleNamespace
from typing import Any

from failsoft.engine.launch import describe
from tests.engine.tiny_tokenizer import TEMPLATE, chat_tokenizer

LOADED: Any = SimpleNamespace(
    version=SimpleNamespace(name="tiny", digest="ab" * 32, system_prompt="be kind"),
    tokenizer=chat_tokenizer(),
    chat_template=TEMPLATE,
    stop_strings=("\nUser:",),
    eos_token_ids=frozenset({2}),
    max_model_len=2048,
    vocab_size=320,
    generation_defaults={"temperature": 0.2},
)


def test_everything_that_shapes_an_answer_is_handed_on() -> None:
    """Stop strings, end tokens, defaults, and the digest that names them."""
    served = describe(LOADED, max_model_len=640)

    assert (served.name, served.version_digest) == ("tiny", "ab" * 32)
    assert served.system_fingerprint == "ab" * 8
    assert served.stop_strings == ("\nUser:",)
    assert served.eos_token_ids == frozenset({2})
    assert served.generation_defaults == {"temperature": 0.2}
    assert served.max_model_len == 640
    assert served.codec.has_chat_template
