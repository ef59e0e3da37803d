"""Reads ``failsoft.toml``; knows nothing of what its tables mean."""

import tomllib
from pathlib import Path
from typing import Any

from failsoft.errors import ConfigError


def load_toml(path: Path) -> dict[str, Any]:
    """Return the tables of the TOML file at *path*.

    Raises:
        ConfigError: It cannot be read or is no TOML; the error names file and line.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(key=str(path), value=None, allowed=f"TOML syntax: {exc}") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(
            key=str(path), value=None, allowed=f"a readable file in UTF-8 ({exc})"
        ) from exc
