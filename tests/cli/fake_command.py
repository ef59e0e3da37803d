"""Run as a program: the ``failsoft`` command with the fake engine in place of a model.

What the command line asked for goes to stderr as one line of JSON.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from types import ModuleType

from failsoft.cli.main import main
from failsoft.config.engine import EngineConfig
from failsoft.config.http import HttpConfig
from failsoft.engine.http.served import ServerState
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import answer, make_served, make_state


def open_server(
    name: str,
    *,
    engine_config: EngineConfig,
    http_config: HttpConfig,
    dtype: str | None,
    on_phase: Callable[[str], None],
) -> ServerState:
    """Stand in for ``failsoft.engine.launch.open_server``."""
    on_phase(f"loading {name}")
    asked = {**asdict(engine_config), **asdict(http_config), "version": name, "dtype": dtype}
    sys.stderr.write(json.dumps(asked) + "\n")
    served = replace(make_served(), name=name)
    state = make_state(FakeEngine(lambda request: answer("Hello.")), served)
    state.config = http_config
    return state


if __name__ == "__main__":
    launch = ModuleType("failsoft.engine.launch")
    launch.__dict__["open_server"] = open_server
    sys.modules["failsoft.engine.launch"] = launch
    main()
