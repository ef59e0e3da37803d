"""Run as a program: the ``failsoft`` command with the fake engine in place of a model.

What the command line asked for goes to stderr as one line of JSON.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from failsoft.cli.main import main
from failsoft.config.engine import EngineConfig
from failsoft.config.http import HttpConfig
from failsoft.engine import launch
from failsoft.engine.launch import OpenedServer
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import answer, make_served, make_state


def open_server(
    name: str,
    *,
    options: Mapping[str, Any],
    http_config: HttpConfig,
    config_path: Path | None,
    is_gentle: bool,
    on_phase: Callable[[str], None],
) -> OpenedServer:
    """Stand in for ``failsoft.engine.launch.open_server``."""
    on_phase(f"loading {name}")
    config = EngineConfig(**options)
    asked = {**options, **asdict(http_config), "version": name, "is_gentle": is_gentle}
    sys.stderr.write(json.dumps(asked) + "\n")
    served = replace(make_served(), name=name)
    state = make_state(FakeEngine(lambda request: answer("Hello.")), served)
    state.config = http_config
    return OpenedServer(state, config)


if __name__ == "__main__":
    launch.__dict__["open_server"] = open_server
    main()
