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
    from failsoft.engine.models.load import LoadedModel  # type: ignore[import-not-found]


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
    from failsoft.engine.models.resolve import resolve_version  # type: ignore[import-not-found]
    from failsoft.engine.models.store import ModelStore  # type: ignore[import-not-found]

    store = ModelStore()
    on_phase(f"resolving {name}")
    version = resolve_version(name, config_path=None, dtype=dtype, store=store)
    on_phase(f"loading {name}")
    loaded = load_model(version, store=store, device="cpu")
    on_phase(f"starting the engine of {name}")
    engine = Engine(loaded, engine_config)  # type: ignore[misc, call-arg]
    pool_tokens = engine.stats().num_blocks * engine_config.block_size
    served = describe(loaded, config=engine_config, pool_tokens=pool_tokens)
    return ServerState(
        engine=engine,
        served=served,
        config=http_config,
        metrics=ServerMetrics(engine, served.name),
    )


def describe(loaded: "LoadedModel", *, config: EngineConfig, pool_tokens: int) -> ServedModel:
    """Return what the HTTP server must know of a loaded version.

    Args:
        loaded: The version.
        config: May hold a shorter length limit than the model's.
        pool_tokens: What the whole KV pool has room for: no request can be longer.
    """
    version = loaded.version
    limits: list[int] = [loaded.max_model_len, pool_tokens]
    return ServedModel(
        name=version.name,
        version_digest=version.digest,
        created=int(time.time()),
        codec=TextCodec(
            loaded.tokenizer,
            chat_template=loaded.chat_template,
            system_prompt=version.system_prompt,
        ),
        max_model_len=min([*limits, config.max_model_len] if config.max_model_len else limits),
        vocab_size=loaded.vocab_size,
        eos_token_ids=loaded.eos_token_ids,
        stop_strings=loaded.stop_strings,
        generation_defaults=loaded.generation_defaults,
    )
