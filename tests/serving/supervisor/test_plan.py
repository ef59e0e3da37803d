"""How each process is started."""

from pathlib import Path

from failsoft.serving.supervisor.needs import EngineNeed
from failsoft.serving.supervisor.plan import OwnCommands


def test_names_that_callers_write_in_their_url_reach_the_front() -> None:
    """Else it refuses them: behind 0.0.0.0 no caller from elsewhere writes the socket's own."""
    commands = OwnCommands(allowed_hosts=["api.example", "10.0.0.5"])

    line = commands.front(config=Path("c.toml"), fd=3)
    without = OwnCommands().front(config=Path("c.toml"), fd=3)

    assert line[-2:] == ("--allowed-host=api.example", "--allowed-host=10.0.0.5")
    assert "--allowed-host" not in " ".join(without)


def test_an_engine_on_trial_loads_at_normal_priority() -> None:
    """A rollback is waited for; all other engines load gently."""
    need = EngineNeed(slot="primary", version="v1", settings=None)

    usual = OwnCommands().engine(config=Path("c.toml"), need=need)
    trial = OwnCommands().engine(config=Path("c.toml"), need=need, is_candidate=True)

    assert ("--gentle-load" in usual, "--candidate" in usual) == (True, False)
    assert ("--gentle-load" in trial, "--candidate" in trial) == (False, True)
