"""Open one version as a served engine: resolve, load, start the step loop.

The one place that puts the parts of an engine together. Opening loads torch,
importing does not.
"""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from failsoft.config.engine import EngineConfig
from failsoft.config.http import HttpConfig
from failsoft.engine.gentle import gently
from failsoft.engine.http.metrics import ServerMetrics
from failsoft.engine.http.served import ServedModel, ServerState
from failsoft.engine.structured.compiler import Compiler
from failsoft.engine.structured.token_table import UnknownTokensError, build_table
from failsoft.engine.text.codec import TextCodec

if TYPE_CHECKING:
    from failsoft.engine.models.load import LoadedModel


logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class OpenedServer(NamedTuple):
    """A server ready to be run, and the settings its engine got."""

    state: ServerState
    engine_config: EngineConfig


def open_server(
    name: str,
    *,
    options: Mapping[str, Any],
    http_config: HttpConfig,
    config_path: Path | None = None,
    is_gentle: bool = False,
    on_phase: Callable[[str], None],
) -> OpenedServer:
    """Return a server for the version called *name*, its engine running.

    Args:
        name: A version of the settings file if it names it, else a catalogue name.
        options: Fields of EngineConfig that were asked for; they override the
            version's own options, which override the defaults.
        http_config: Where the server listens and whom it answers.
        config_path: The settings file; None takes ``failsoft.toml`` if there is one.
        is_gentle: Whether all that comes before the engine's start runs at low priority.
        on_phase: Told in a few words what is being done, before each long part; any thread.

    Raises:
        ConfigError: There is no such version, or a setting is wrong.
        ModelError: The model cannot be fetched, loaded or served right.
    """
    run = gently if is_gentle else _plainly
    loaded, config = run(
        lambda: load_version(name, options=options, config_path=config_path, on_phase=on_phase)
    )
    from failsoft.engine.engine import Engine

    on_phase(f"testing {name} against its own forward")
    engine = Engine.from_model(loaded, config, run=run)
    served = describe(loaded, max_model_len=engine.limits.max_model_len)
    state = ServerState(
        engine=engine,
        served=served,
        config=http_config,
        metrics=ServerMetrics(engine, served.name, version_digest=served.version_digest),
    )
    return OpenedServer(state, config)


def _plainly(work: Callable[[], _T]) -> _T:
    return work()


def load_version(
    name: str,
    *,
    options: Mapping[str, Any],
    config_path: Path | None,
    on_phase: Callable[[str], None],
) -> tuple["LoadedModel", EngineConfig]:
    """Return the loaded version and the settings for its engine; imports torch.

    Raises:
        ConfigError: There is no such version, or a setting is wrong.
        ModelError: The model cannot be fetched or loaded.
    """
    from failsoft.engine.device import pick_device
    from failsoft.engine.models.load import load_model
    from failsoft.engine.models.resolve import resolve_version
    from failsoft.engine.models.store import ModelStore

    asked = EngineConfig(**options)  # a wrong value fails before anything is fetched
    device = pick_device(asked.device)
    store = ModelStore()
    on_phase(f"resolving {name}")
    version = resolve_version(
        name, config_path=config_path, dtype=options.get("dtype"), store=store, device=device
    )
    config = EngineConfig(**{**dict(version.engine_options), **options})
    on_phase(f"loading {name} in {version.dtype} on {device}")
    return load_model(version, store=store, device=device), config


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
        compiler=_compiler(loaded),
        stop_strings=loaded.stop_strings,
        generation_defaults=loaded.generation_defaults,
    )


def _compiler(loaded: "LoadedModel") -> Compiler | None:
    """Return what compiles grammars for the version; None, and a warning, where nothing can."""
    try:
        table = build_table(
            loaded.tokenizer.backend_tokenizer,
            vocab_size=loaded.vocab_size,
            eos_token_ids=loaded.eos_token_ids,
        )
    except UnknownTokensError as exc:
        name = loaded.version.name
        logger.warning("%s: no structured output, for its tokenizer is unknown (%s)", name, exc)
        return None
    return Compiler(table, vocab_size=loaded.vocab_size)
