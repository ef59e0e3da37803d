"""Writes pins into a ``failsoft.toml`` as a person would: comments, order and all else stay.

Knows nothing of the store, nor of what a version is.
"""

import os
import stat
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Table

from failsoft.config.allowed import Name, allowed_words, fits
from failsoft.config.file import load_toml
from failsoft.config.show import as_toml
from failsoft.errors import ConfigError

_MARK = "\ufeff"
"""The byte order mark that editors on Windows begin a file with."""


def write_pins(path: Path, pins: Mapping[str, str]) -> bool:
    """Put *pins* into the ``[pins]`` table of the file at *path*; others of its pins stay.

    The file is replaced as a whole by a rename, keeps its owner, its mode, its line ends and a
    byte order mark, and a link to it stays a link. Written only if all but *pins* reads back the
    same.

    Args:
        path: An existing ``failsoft.toml``.
        pins: Slot to version name.

    Returns:
        Whether the file had to be changed.

    Raises:
        ConfigError: The file cannot be read or written, its owner cannot be kept, it is no
            TOML, its ``pins`` is no table, or a name is none.
    """
    for slot, version in pins.items():
        for name in (slot, version):
            if not fits(Name, name):
                raise ConfigError(key=f"pins.{slot}", value=name, allowed=allowed_words(Name))
    before = load_toml(path)
    if not isinstance(before.get("pins", {}), dict):
        raise ConfigError(key="pins", value=before["pins"], allowed="a table: [pins]")
    after = {**before, "pins": {**before.get("pins", {}), **pins}}
    if after["pins"] == before.get("pins", {}):
        return False
    _replace(path, _with_pins(path, pins, after))
    return True


def _with_pins(path: Path, pins: Mapping[str, str], after: Mapping[str, Any]) -> bytes:
    """Return the file's bytes with *pins*, which read as *after*."""
    # Bytes, not text: reading text would turn CRLF into LF.
    text = path.read_bytes().decode("utf-8")
    mark = _MARK if text.startswith(_MARK) else ""
    text = text.removeprefix(_MARK)
    is_crlf = "\n" in text and text.count("\n") == text.count("\r\n")
    try:
        written = _edited(text.replace("\r\n", "\n") if is_crlf else text, pins)
    except (TOMLKitError, TypeError) as exc:
        raise _by_hand(path, pins, f"an editor of TOML cannot do it ({exc})") from exc
    if not _reads_as(written, after):
        raise _by_hand(path, pins, "more than its pins would change")
    return (mark + (written.replace("\n", "\r\n") if is_crlf else written)).encode("utf-8")


def _edited(text: str, pins: Mapping[str, str]) -> str:
    document = tomlkit.parse(text)
    if tomlkit.dumps(document) != text:  # as of 0.15 where [[rows]] part a table from its others
        raise TOMLKitError("its tables would be put into another order")
    if "pins" not in document:
        end = "" if text.endswith("\n") or not text else "\n"
        return f"{text}{end}\n{as_toml({'pins': pins})}"
    table: Any = document["pins"]
    # A new key goes under the last one, not under a comment above the next table.
    body = table.value.body if isinstance(table, Table) else []
    below = []
    while body and body[-1][0] is None:
        below.append(body.pop())
    for slot, version in pins.items():
        table[slot] = version
    body.extend(reversed(below))
    return tomlkit.dumps(document)


def _reads_as(text: str, after: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == after
    except tomllib.TOMLDecodeError:
        return False


def _by_hand(path: Path, pins: Mapping[str, str], why: str) -> ConfigError:
    lines = ", ".join(as_toml({"pins": pins}).splitlines()[1:])
    return ConfigError(
        key="pins",
        value=dict(pins),
        allowed=why,
        message=f"{path} is left as it is, since {why}; write into its [pins]: {lines}",
    )


def _replace(path: Path, content: bytes) -> None:
    """Put *content* in the place of the file at *path*, in one step, with its owner and mode."""
    real = path.resolve()  # renaming onto a link would replace the link
    try:
        before = real.stat()
        handle, name = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                # Root's hand must not lock out the user whose `failsoft up` reads the file.
                made = os.fstat(file.fileno())
                if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))  # a new owner cuts it
                os.fsync(file.fileno())
            os.replace(name, real)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as exc:
        allowed = f"a file of this user's in a folder that it may write to ({exc.strerror})"
        raise ConfigError(key=str(path), value=None, allowed=allowed) from exc
