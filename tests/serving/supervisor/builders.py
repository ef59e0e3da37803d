"""Settings for the pure parts' tests."""

from collections.abc import Mapping
from pathlib import Path

from failsoft.config.schema import check_settings
from failsoft.config.settings import Settings


def read(folder: Path, text: str) -> Settings:
    """Return what a settings file with *text* says."""
    path = folder / "failsoft.toml"
    path.write_text(text)
    settings, problems = check_settings(path)
    assert settings is not None, problems
    return settings


def ladders_of(rungs: Mapping[str, list[str]]) -> str:
    """Return a file whose ladders have these rungs; a rung that begins with ``at-`` is a URL."""
    names = sorted({rung for row in rungs.values() for rung in row} - {"cache"})
    lines = []
    for name in names:
        if name.startswith("at-"):
            lines.append(f'[endpoints.{name}]\nurl = "http://127.0.0.1:9/v1"\nmodel = "m-1"')
        else:
            lines.append(f'[endpoints.{name}]\npin = "{name}"')
    pins = [name for name in names if not name.startswith("at-")]
    lines += [f'[versions.v-{pin}]\nsource = "file:{pin}.gguf"' for pin in pins]
    lines.append("[pins]\n" + "\n".join(f'{pin} = "v-{pin}"' for pin in pins))
    lines += [f"[ladders.{name}]\nrungs = {row}" for name, row in rungs.items()]
    return "\n".join(lines) + "\n"
