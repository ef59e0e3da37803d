"""Workload files: requests that arrive at once, and how many may run together.

Knows nothing of models or engines. Prompts are token ids or text, lengths are tokens; the
format is described in docs/bench.md.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from failsoft.config.catalogue import DEFAULT_MODEL
from failsoft.config.engine import EngineConfig
from failsoft.errors import ConfigError

MAX_REQUESTS = 100_000
MAX_OUTPUT_LEN = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One request of a workload: token ids, or text that its model's tokenizer has yet to cut."""

    prompt_ids: tuple[int, ...] = ()
    text: str | None = None
    """The prompt where there are no ids yet."""
    output_len: int
    """Tokens to generate."""
    is_exact: bool = True
    """Whether it goes on past an end-of-sequence token; else *output_len* is an upper bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests that arrive at once, and how many may run together."""

    name: str
    model: str
    """The version they were made for."""
    max_running: int
    items: tuple[Item, ...]

    @property
    def num_output_tokens(self) -> int:
        """Tokens to generate in all, where every length is exact."""
        return sum(item.output_len for item in self.items)

    def first(self, count: int) -> "Workload":
        """Return the first *count* requests as a workload of their own."""
        if count >= len(self.items):
            return self
        return replace(self, name=f"{self.name}[:{count}]", items=self.items[:count])


class _Request(BaseModel):
    model_config = ConfigDict(extra="ignore")

    prompt_ids: Annotated[list[Annotated[StrictInt, Field(ge=0)]], Field(min_length=1)] | None = (
        None
    )
    prompt: Annotated[StrictStr, Field(min_length=1)] | None = None
    output_len: Annotated[StrictInt, Field(ge=1, le=MAX_OUTPUT_LEN)] | None = None
    max_tokens: Annotated[StrictInt, Field(ge=1, le=MAX_OUTPUT_LEN)] | None = None


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore")

    model: StrictStr = DEFAULT_MODEL
    max_running: Annotated[StrictInt, Field(ge=1)] = EngineConfig().max_running
    requests: Annotated[list[_Request], Field(min_length=1, max_length=MAX_REQUESTS)]


def builtin_names() -> list[str]:
    """Return the names of the workloads that come with failsoft."""
    return sorted(path.name.removesuffix(".json") for path in _builtin_files())


def load_workload(name: str) -> Workload:
    """Return a workload: a file's path, or the name of one that comes with failsoft.

    Raises:
        ConfigError: There is no such file, or it is no workload; the error names the key.
    """
    text = _read(name)
    try:
        found = json.loads(text)
    except ValueError as exc:
        raise ConfigError(key="--workload", value=name, allowed=f"JSON ({exc})") from exc
    try:
        document = _Document.model_validate(found)
    except ValidationError as exc:
        raise _translated(name, exc) from exc
    return Workload(
        name=Path(name).stem,
        model=document.model,
        max_running=document.max_running,
        items=tuple(
            _item(entry, where=f"{name}: requests.{index}")
            for index, entry in enumerate(document.requests)
        ),
    )


def _builtin_files() -> Iterator[Any]:
    for path in resources.files("failsoft.engine.bench").joinpath("workloads").iterdir():
        if path.name.endswith(".json"):
            yield path


def _read(name: str) -> str:
    path = Path(name)
    for builtin in _builtin_files():
        if builtin.name == f"{name}.json":
            return str(builtin.read_text("utf-8"))
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise ConfigError(
            key="--workload",
            value=name,
            allowed=f"a readable JSON file ({why}), or one of {', '.join(builtin_names())}",
        ) from exc


def _item(entry: _Request, *, where: str) -> Item:
    if (entry.prompt_ids is None) == (entry.prompt is None):
        raise ConfigError(
            key=f"{where}.prompt_ids",
            value=entry.prompt_ids,
            allowed="either prompt_ids (token ids) or prompt (text), not both and not neither",
        )
    if (entry.output_len is None) == (entry.max_tokens is None):
        raise ConfigError(
            key=f"{where}.output_len",
            value=entry.output_len,
            allowed="either output_len (exact) or max_tokens (at most), not both and not neither",
        )
    return Item(
        prompt_ids=tuple(entry.prompt_ids or ()),
        text=entry.prompt,
        output_len=entry.output_len or entry.max_tokens or 0,
        is_exact=entry.output_len is not None,
    )


def _translated(name: str, exc: ValidationError) -> ConfigError:
    """Return the first thing wrong as an error that names key and value."""
    first = exc.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"]) or "the document"
    value = None if first["type"] == "missing" else _short(first["input"])
    message = first["msg"].removeprefix("Input should be ")
    return ConfigError(key=f"{name}: {key}", value=value, allowed=message)


def _short(value: Any) -> Any:
    """Return *value* as an error can show it."""
    return value if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
