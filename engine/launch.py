"""Open one version as a served engine: resolve, load, start the step loop.

The one place that puts the parts of an engine together. Opening loads torch,
importing does not.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from failsoft.config.engine import EngineConfig
from failsoft.config.http import HttpConfig
from failsoft.engine.http.metrics import ServerMetrics
from failsoft.engine.http.served import ServedModel, ServerState
from failsoft.engine.text.codec import TextCodec

if TYPE_CHECKING:
    from failsoft.engine.models.load import LoadedModel


def open_server(
    name: str,
    *,
    engine_config: EngineConfig,
    http_config: HttpConfig,
    dtype: str | None,
    on_phase: Callable[[str], None],
) -> ServerState:
    """Return the state of a server for the version called *name*, its engine running.

    Args:
        name: A version of ``failsoft.toml`` if there is one, else a catalogue name.
        engine_config: How the engine runs.
        http_config: Where the server listens and whom it answers.
        dtype: Overrides the version's own; None keeps that.
        on_phase: Told in a few words what is being done, before each long part.

    Raises:
        ConfigError: There is no such version, or a setting is wrong.
        ModelError: The model cannot be fetched, loaded or served right.
    """
    from failsoft.engine.engine import Engine
    from failsoft.engine.models.load import load_model
    from failsoft.engine.models.resolve import resolve_version
    from failsoft.engine.models.store import ModelStore

    store = ModelStore()
    on_phase(f"resolving {name}")
    version = resolve_version(name, config_path=None, dtype=dtype, store=store)
    on_phase(f"loading {name}")
    loaded = load_model(version, store=store, device="cpu")
    on_phase(f"starting the engine of {name}")
    engine = Engine.from_model(loaded, engine_config)
    served = describe(loaded, max_model_len=engine.limits.max_model_len)
    return ServerState(
        engine=engine,
        served=served,
        config=http_config,
        metrics=ServerMetrics(engine, served.name),
    )


def describe(loaded: "LoadedModel", *, max_model_len: int) -> ServedModel:
    """Return what the HTTP server must know of a loaded version.

    Args:
        loaded: The version.
        max_model_len: Prompt plus output tokens that the engine takes, its KV pool counted in.
    """
    version = loaded.version
    return ServedModel(
        name=version.name,
        version_digest=version.digest,
        created=int(time.time()),
        codec=TextCodec(
            loaded.tokenizer,
            chat_template=loaded.chat_template,
            system_prompt=version.system_prompt,
        ),
        max_model_len=max_model_len,
        vocab_size=loaded.vocab_size,
        eos_token_ids=loaded.eos_token_ids,
        stop_strings=loaded.stop_strings,
        generation_defaults=loaded.generation_defaults,
    )
