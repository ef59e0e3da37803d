"""Whether a version can be served here: its bytes, its digest, and the memory it will take.

What is asked before an engine is started beside another. Fetches and converts nothing, and
changes nothing but the notes of what dtype ``auto`` means and whether bfloat16 is native on this
machine. Imports torch only where those notes or a GPU's memory ask for it.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from failsoft.config.engine import EngineConfig
from failsoft.engine.free_memory import available_bytes
from failsoft.engine.models.absolute import as_table, with_absolute_paths
from failsoft.engine.models.convert import conversion_folder, find_conversion
from failsoft.engine.models.dtype_choice import computes_bfloat16
from failsoft.engine.models.fetch import find_model
from failsoft.engine.models.memory_needs import MemoryNeeds, memory_needs
from failsoft.engine.models.resolve import (
    VersionPlan,
    add_command,
    build_version,
    plan_version,
)
from failsoft.engine.models.store import ModelStore, StoredModel
from failsoft.engine.models.verify import verify_model
from failsoft.engine.models.version import Version
from failsoft.engine.torch_build import auto_device
from failsoft.errors import FailsoftError, ModelError, ModelFileError


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionCheck:
    """What was found of one version; what could not be found is None."""

    name: str
    settings: dict[str, object]
    """Its table as JSON values, paths absolute."""
    version: Version | None
    """None where its bytes are missing or wrong: their digest would name other answers."""
    model_digest: str | None
    files_good: bool
    """Whether every byte that an engine would read is the one that was stored."""
    problems: tuple[str, ...]
    """What keeps an engine from serving it, each with the command that mends it. Too little
    memory is not among them: what else may be stopped first is the asker's to know."""
    needs: MemoryNeeds | None
    available_bytes: int | None
    """Memory that processes may still take here, a CUDA device's where it would run there."""

    def to_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        version, needs = self.version, self.needs
        return {
            "name": self.name,
            "version_digest": None if version is None else version.digest,
            "manifest": None if version is None else version.to_manifest(),
            "model_digest": self.model_digest,
            "settings": self.settings,
            "files_good": self.files_good,
            "problems": list(self.problems),
            "needs_bytes": None if needs is None else needs.total_bytes,
            "needs": None if needs is None else asdict(needs),
            "available_bytes": self.available_bytes,
        }


def check_version(name: str, *, config_path: Path | None, store: ModelStore) -> VersionCheck:
    """Return what is to be known of the version called *name* before it is served here.

    Args:
        name: A ``[versions.NAME]`` table of the config file, else a catalogue name.
        config_path: The config file; None takes ``failsoft.toml`` of the working folder if
            there is one.
        store: Where models are kept.

    Raises:
        ConfigError: No such name, or the file is wrong.
    """
    plan = plan_version(name, config_path=config_path)
    found = VersionCheck(
        name=name,
        settings=as_table(with_absolute_paths(plan.settings, base=plan.base)),
        version=None,
        model_digest=None,
        files_good=False,
        problems=(),
        needs=None,
        available_bytes=available_bytes(),
    )
    try:
        stored = find_model(plan.source, store=store, sha256=plan.settings.sha256)
    except ModelError as exc:
        return replace(found, problems=(_problem(plan, exc),))
    if stored is None:
        line = f"version {name}: its model is not stored; run `{add_command(plan)}`"
        return replace(found, problems=(line,))
    found = replace(found, model_digest=stored.digest)
    return _check_stored(found, plan, stored, store)


def _check_stored(
    found: VersionCheck, plan: VersionPlan, stored: StoredModel, store: ModelStore
) -> VersionCheck:
    if bad := _bad_files(plan, stored, store, conversions=[]):
        return replace(found, problems=bad)
    device = auto_device()
    try:
        version = build_version(plan, stored, dtype=None, store=store, device=device)
        found = replace(found, version=version, available_bytes=_available(device))
        if bad := _bad_conversion(plan, version, stored, store):
            return replace(found, problems=bad)
        needs = memory_needs(
            version,
            _loaded_folder(version, stored, store),
            config=EngineConfig(**plan.settings.engine_options),
            device=device,
            computes_bfloat16=version.weights_dtype == "bfloat16"
            and computes_bfloat16(device, store=store),
        )
    except FailsoftError as exc:
        return replace(found, files_good=True, problems=(_problem(plan, exc),))
    return replace(found, files_good=True, needs=needs)


def _loaded_folder(version: Version, stored: StoredModel, store: ModelStore) -> Path:
    if not stored.is_gguf:
        return stored.folder
    return conversion_folder(stored, dtype=version.weights_dtype, store=store)


def _bad_conversion(
    plan: VersionPlan, version: Version, stored: StoredModel, store: ModelStore
) -> tuple[str, ...]:
    """Return what is wrong with the files that would be loaded in place of a GGUF file."""
    if not stored.is_gguf:
        return ()
    try:
        folder = find_conversion(stored, dtype=version.weights_dtype, store=store)
    except ModelError as exc:
        return (_problem(plan, exc),)
    if folder is None:
        line = f"version {plan.name}: its model is not converted to {version.weights_dtype} yet"
        return (f"{line}; run `{add_command(plan)}`",)
    return _bad_files(plan, stored, store, conversions=[folder])


def _bad_files(
    plan: VersionPlan, stored: StoredModel, store: ModelStore, *, conversions: list[Path]
) -> tuple[str, ...]:
    """Return a line for each file of the model and of *conversions* that is not as stored."""
    checks = verify_model(stored.digest, store=store, conversions=conversions)
    errors = [
        ModelFileError(path=check.path, expected=check.expected, actual=check.actual)
        for check in checks
        if not check.is_good
    ]
    return tuple(_problem(plan, error) for error in errors)


def _problem(plan: VersionPlan, error: FailsoftError) -> str:
    """Say *error* in one line that ends with what to do."""
    if isinstance(error, ModelFileError) and error.step is None:
        step = f"run `{add_command(plan)}`, which makes it anew"
        return str(
            ModelFileError(path=error.path, expected=error.expected, actual=error.actual, step=step)
        )
    step = f"; run `{add_command(plan)}`" if isinstance(error, ModelError) else ""
    return f"version {plan.name}: {error}{step}"


def _available(device: str) -> int | None:
    if device == "cpu":
        return available_bytes()
    import torch

    return int(torch.cuda.mem_get_info(device)[0])
