"""How each process is started."""

from pathlib import Path

from failsoft.serving.supervisor.plan import OwnCommands


def test_names_that_callers_write_in_their_url_reach_the_front() -> None:
    """Else it refuses them: behind 0.0.0.0 no caller from elsewhere writes the socket's own."""
    commands = OwnCommands(allowed_hosts=["api.example", "10.0.0.5"])

    line = commands.front(config=Path("c.toml"), fd=3)
    without = OwnCommands().front(config=Path("c.toml"), fd=3)

    assert line[-2:] == ("--allowed-host=api.example", "--allowed-host=10.0.0.5")
    assert "--allowed-host" not in " ".join(without)
