"""Settings are checked for all that serving needs, and kept as they were accepted."""

from pathlib import Path

import pytest

from failsoft.config.schema import check_settings
from failsoft.run_state import accepted_settings
from failsoft.serving.supervisor.accepted import check_file, keep_copy, with_absolute_paths
from failsoft.serving.supervisor.reload import read_again
from tests.serving.supervisor.builders import ladders_of, read

GOOD = ladders_of({"chat": ["a", "at-x", "cache"]})
RICH = (
    GOOD.replace("[versions.v-a]", '[versions.v-a]\ntemplate = "chat.jinja"\nstop = ["\\n\\"é"]')
    + """deadline_s = 12.5
[ladders.chat.cache]
ttl_s = 1e-3
[versions.parts]
source = ["pypi:a==1:m.gguf", "pypi:b==1:m.gguf"]
system_prompt = "tab\\tand \\u0001"
template = "plain"
price = { input_per_mtok = 0.1, output_per_mtok = 2 }
[versions.parts.engine]
max_running = 3
prefix_cache = false
[keys]
team = "TEAM_KEY"
"""
)


def write(folder: Path, text: str) -> Path:
    """Write a settings file."""
    path = folder / "failsoft.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "host", "keys"),
    [
        (GOOD, "127.0.0.1", []),
        (GOOD, "0.0.0.0", ["host"]),
        (GOOD + '[keys]\nteam = "TEAM_KEY"\n', "0.0.0.0", []),
        (GOOD + '[keys]\nteam = "NO_SUCH"\n', "127.0.0.1", ["keys.team"]),
        ("", "127.0.0.1", ["ladders"]),
        (
            GOOD.replace('model = "m-1"', 'model = "m-1"\napi_key_env = "NO_SUCH"'),
            "127.0.0.1",
            ["endpoints.at-x.api_key_env"],
        ),
        (
            '[store]\nurl = "postgresql://u@h:1/d"\npassword_env = "NO_SUCH"\n' + GOOD,
            "127.0.0.1",
            ["store.password_env"],
        ),
        (
            GOOD + "deadline_s = -1\n[keys]\nteam = 3\n",
            "h",
            ["ladders.chat.deadline_s", "keys.team"],
        ),
    ],
)
def test_all_problems_are_told_at_once(
    text: str, host: str, keys: list[str], tmp_path: Path
) -> None:
    """What a child would only find after its start is found before."""
    settings, problems = check_file(
        write(tmp_path, text), host=host, environ={"TEAM_KEY": "secret"}
    )

    assert [problem.key for problem in problems] == keys
    assert (settings is None) == bool(keys)


def test_the_copy_says_the_same_from_another_folder(tmp_path: Path) -> None:
    """Paths are absolute in it, everything else is as it was."""
    settings = read(tmp_path, RICH)

    kept = with_absolute_paths(settings, base=tmp_path)
    path = keep_copy(kept, home=tmp_path / "home")

    assert check_settings(path).settings == kept
    version = kept.versions["v-a"]
    assert version.source == f"file:{tmp_path}/a.gguf"
    assert version.template == f"{tmp_path}/chat.jinja"
    assert kept.versions["parts"] == settings.versions["parts"]
    assert kept.store.url == f"sqlite:///{tmp_path}/failsoft.db"
    assert path.stat().st_mode & 0o777 == 0o600


def reload(folder: Path, text: str) -> tuple[bool, list[str], bool]:
    """Read *text* over GOOD: whether it was taken, the problems, whether the copy changed."""
    home = folder / "home"
    before = with_absolute_paths(read(folder, GOOD), base=folder)
    keep_copy(before, home=home)
    old = accepted_settings(home).read_text()
    settings, problems = read_again(
        write(folder, text),
        before=before,
        effective=lambda settings: settings,
        home=home,
        host="127.0.0.1",
        environ={},
    )
    is_changed = accepted_settings(home).read_text() != old
    return settings is not None, [problem.key for problem in problems], is_changed


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (GOOD, (True, [], False)),
        (GOOD + "deadline_s = 3\n", (True, [], True)),
        (GOOD + "deadline_s = -3\n", (False, ["ladders.chat.deadline_s"], False)),
        (GOOD + '[store]\nkeep_text = "none"\n', (False, ["store"], False)),
        (GOOD + '[keys]\nnew = "NO_SUCH"\n', (False, ["keys.new"], False)),
        ("[ladders", (False, [None], False)),
    ],
)
def test_a_file_is_taken_whole_or_not_at_all(
    text: str, outcome: tuple[bool, list[str], bool], tmp_path: Path
) -> None:
    """An open store cannot change, and nobody can give a running process a new secret."""
    taken, keys, is_changed = reload(tmp_path, text)

    if outcome[1] == [None]:
        outcome = (False, [str(tmp_path / "failsoft.toml")], False)
    assert (taken, keys, is_changed) == outcome


def test_a_folder_that_cannot_be_written_refuses_the_reload(tmp_path: Path) -> None:
    """The children would go on with the old copy."""
    before = with_absolute_paths(read(tmp_path, GOOD), base=tmp_path)
    (tmp_path / "home").write_text("no folder")

    settings, problems = read_again(
        write(tmp_path, GOOD),
        before=before,
        effective=lambda settings: settings,
        home=tmp_path / "home",
        host="::1",
        environ={},
    )

    assert settings is None
    assert "FAILSOFT_HOME" in str(problems[0])
