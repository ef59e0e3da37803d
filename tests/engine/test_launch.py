"""From a loaded version to what the server knows of it, and whose settings count."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from failsoft.config.engine import EngineConfig
from failsoft.config.http import HttpConfig
from failsoft.engine.launch import describe, open_server
from failsoft.errors import ConfigError
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


def test_a_tokenizer_of_no_known_family_costs_structured_output_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The model is served, and the log says what it cannot do."""
    strange: Any = SimpleNamespace(**{**vars(LOADED), "eos_token_ids": frozenset()})

    assert describe(LOADED, max_model_len=640).compiler is not None
    assert describe(strange, max_model_len=640).compiler is None
    assert "no structured output" in caplog.text


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace store, weights and engine; return what the engine was started with."""
    seen: dict[str, Any] = {}
    version = SimpleNamespace(engine_options=(("max_running", 3), ("max_step_tokens", 77)))
    version.dtype = "float32"

    def resolve(name: str, *, dtype: str | None, device: str, **_: object) -> Any:
        seen["dtype"], seen["device"] = dtype, device
        return version

    def start(loaded: object, config: EngineConfig, **_: object) -> Any:
        seen["config"] = config
        return SimpleNamespace(limits=SimpleNamespace(max_model_len=64), stats=lambda: None)

    monkeypatch.setattr("failsoft.engine.models.resolve.resolve_version", resolve)
    monkeypatch.setattr("failsoft.engine.models.load.load_model", lambda v, **_: LOADED)
    monkeypatch.setattr("failsoft.engine.engine.Engine.from_model", start)
    monkeypatch.setattr("failsoft.engine.launch.ServerMetrics", lambda *_, **__: None)
    return seen


def open_tiny(**options: Any) -> EngineConfig:
    return open_server(
        "tiny", options=options, http_config=HttpConfig(), on_phase=lambda text: None
    ).engine_config


def test_what_was_asked_for_overrides_the_version_which_overrides_the_defaults(
    stand_ins: dict[str, Any],
) -> None:
    """No option is ignored, wherever it was given."""
    config = open_tiny(max_running=5, dtype="float32")

    assert stand_ins["config"] is config
    assert (config.max_running, config.max_step_tokens) == (5, 77)
    assert config.max_waiting == EngineConfig().max_waiting
    assert stand_ins["dtype"] == "float32"
    assert stand_ins["device"] == ("cuda" if torch.cuda.is_available() else "cpu")


def test_a_wrong_option_fails_before_anything_is_fetched(stand_ins: dict[str, Any]) -> None:
    """The error names the option."""
    with pytest.raises(ConfigError, match="max_running"):
        open_tiny(max_running=0)

    assert stand_ins == {}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_device_that_is_not_there_is_refused(stand_ins: dict[str, Any]) -> None:
    """The CPU is never taken silently for a GPU that was asked for."""
    with pytest.raises(ConfigError, match="no CUDA device"):
        open_tiny(device="cuda")
