"""Reads ``failsoft.toml``; knows nothing of what its tables mean, only their names."""

import codecs
import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from failsoft.errors import ConfigError

SECTIONS = ("store", "versions", "pins", "endpoints", "ladders", "keys", "fingerprint")
"""Every table that the file may hold at its top."""

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_PLACE = re.compile(r"(?P<what>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)")


def load_toml(path: Path) -> dict[str, Any]:
    """Return the tables of the TOML file at *path*; a byte order mark at its head is passed over.

    Raises:
        ConfigError: It cannot be read or is no TOML; the error names file and line.
    """
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except tomllib.TOMLDecodeError as exc:
        raise _syntax_error(path, str(exc)) from exc
    except UnicodeDecodeError as exc:
        why = "it is in UTF-16: save it as UTF-8" if exc.object.startswith(_UTF_16) else str(exc)
        raise _unreadable(path, why) from exc
    except OSError as exc:
        raise _unreadable(path, str(exc)) from exc


def _unreadable(path: Path, why: str) -> ConfigError:
    return ConfigError(key=str(path), value=None, allowed=f"a readable file in UTF-8 ({why})")


def _syntax_error(path: Path, text: str) -> ConfigError:
    match = _PLACE.fullmatch(text)
    message = f"{path}: {text}"  # a file that ends too early has no line and column
    if match is not None:
        message = f"{path}:{match['line']}:{match['column']}: {match['what']}"
    return ConfigError(
        key=str(path), value=None, allowed="TOML syntax", message=f"{message} (TOML syntax)"
    )


def check_sections(document: Mapping[str, Any], *, path: Path) -> None:
    """Raise when the file at *path* holds a table that nothing reads.

    Raises:
        ConfigError: It names the first such table and the nearest known one.
    """
    for name, value in document.items():
        if name in SECTIONS:
            continue
        close = difflib.get_close_matches(name, SECTIONS, n=1)
        hint = f"did you mean [{close[0]}]? " if close else ""
        allowed = f"{hint}known: {', '.join(SECTIONS)}"
        message = f"{path}: nothing reads {name!r}; {allowed}"
        raise ConfigError(key=name, value=value, allowed=allowed, message=message)
