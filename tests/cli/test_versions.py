"""``failsoft versions``: names down to digests, checked and compared; JSON under --json."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from failsoft.cli.main import app
from failsoft.config.schema import load_settings
from failsoft.config.sources import FileSource
from failsoft.engine.models.fetch import fetch_model
from failsoft.engine.models.store import ModelStore
from failsoft.errors import ConfigError, ModelSourceError
from failsoft.serving.supervisor.accepted import with_absolute_paths
from failsoft.store import Store
from tests.engine.models.conftest import write_folder
from tests.fallback.pins.moves import ask_for, carry_out, version_of

PROMPT = "You are a friendly assistant of the support team. Answer in one sentence."
FILE = f"""\
[versions.v1]
source = "file:tiny"
dtype = "float32"
[versions.dear]
source = "file:tiny"
dtype = "float32"
price = {{ input_per_mtok = 0.1, output_per_mtok = 0.4 }}
engine = {{ max_running = 4 }}
[versions.v2]
source = "file:tiny"
dtype = "float32"
template = "plain"
system_prompt = "{PROMPT}"
stop = ["###"]
engine = {{ max_model_len = 64 }}
[versions.v3]
source = "file:tiny"
dtype = "float32"
template = "plain"
system_prompt = "{PROMPT.replace("one sentence", "two sentences")}"
[versions.absent]
source = "file:nowhere"
[pins]
primary = "v2"
other = "v2"
small = "absent"
"""


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tiny model that is not changed."""
    return write_folder(tmp_path_factory.mktemp("made") / "tiny")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _made: Path) -> Path:
    """Work in a folder with settings of several versions of one stored model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAILSOFT_HOME", str(tmp_path / "home"))
    (tmp_path / "tiny").symlink_to(_made)
    (tmp_path / "failsoft.toml").write_text(FILE)
    fetch_model(FileSource(_made), store=ModelStore())
    return tmp_path


def run(*words: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["versions", *words], catch_exceptions=False)


def document(*words: str) -> Any:
    """Return the JSON that the command prints."""
    return json.loads(run(*words, "--json").stdout)


def digest_of(name: str) -> str:
    """Return a version's digest."""
    return str(document("show", name)["version_digest"])


def spoil(folder: Path) -> None:
    """Change the last byte of a stored file."""
    (path,) = (folder / "home" / "models").glob("*/files/tokenizer.json")
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def test_list_names_file_and_catalogue_with_digest_and_pins(folder: Path) -> None:
    """Two names of one digest are seen at a glance, and what is not stored has none."""
    lines = run("list").stdout.splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:]}

    assert lines[0] == "settings: failsoft.toml"
    assert lines[1].split() == ["version", "digest", "dtype", "pinned", "by", "stored"]
    assert rows["v2"] == [digest_of("v2")[:12], "float32", "primary,other", "yes"]
    assert rows["v1"] == rows["dear"] == [digest_of("v1")[:12], "float32", "-", "yes"]
    assert rows["absent"] == ["-", "auto", "small", "no"]
    assert rows["gemma-3-270m"] == ["-", "auto", "-", "no"]
    assert max(map(len, lines)) <= 80


def test_list_as_json_has_whole_digests_and_null_for_none(folder: Path) -> None:
    """The file is named: where it is not given, it is found."""
    found = document("list")
    items = {item["name"]: item for item in found["versions"]}

    assert found["settings"] == "failsoft.toml"
    assert items["v2"]["version_digest"] == digest_of("v2")
    assert items["v2"]["pinned_by"] == ["primary", "other"]
    assert (items["absent"]["version_digest"], items["absent"]["is_stored"]) == (None, False)


def test_without_a_file_the_built_in_versions_are_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are what `failsoft up` runs there."""
    (folder / "failsoft.toml").unlink()

    rows = {line.split()[0]: line.split() for line in run("list").stdout.splitlines()[2:]}

    assert rows["smollm2-135m-bf16"][3] == "primary"


def test_list_says_where_a_move_took_a_pin_away_from_the_file(folder: Path) -> None:
    """After a rollback the file's word alone named the bad version as pinned."""
    settings = with_absolute_paths(load_settings(folder / "failsoft.toml"), base=folder)
    with Store(settings.store) as store:
        carry_out(store, ask_for(version_of(settings, "v1", digest=None)))

    done = run("list")

    assert "warning: pin primary: v1 is pinned, the settings file says v2" in done.stderr
    assert "by ann: try it" in done.stderr


def test_a_digest_that_is_too_short_is_told_so(folder: Path) -> None:
    """It was taken for a name, and a table of that name was asked for."""
    with pytest.raises(ConfigError, match="at least 6 digits"):
        run("show", digest_of("v1")[:5])


def test_show_tells_what_the_digest_covers_from_what_it_does_not(folder: Path) -> None:
    """A price is not why two digests differ, a prompt is."""
    inside, _, outside = run("show", "v2").stdout.partition("\noutside of the digest:\n")
    dear = run("show", "dear").stdout.partition("\noutside of the digest:\n")[2]

    assert f"version_digest: {digest_of('v2')}" in inside
    assert '  stop_strings: "\\nUser:", "###"' in inside
    assert f"{len(PROMPT)} characters" in inside
    assert "  engine_options: max_model_len 64" in inside
    assert "  pinned_by: primary, other" in outside
    assert "  price: -" in outside
    assert "  price: input_per_mtok 0.1, output_per_mtok 0.4" in dear
    assert "  engine.max_running: 4" in dear


def test_a_digests_first_digits_mean_its_version(folder: Path) -> None:
    """Six at least, as ledgers and logs show them."""
    assert document("show", digest_of("v2")[:6])["name"] == "v2"
    with pytest.raises(ConfigError, match="no stored version's digest begins so"):
        run("show", "0" * 6)


def test_what_is_not_stored_is_not_shown(folder: Path) -> None:
    """Only bytes give a digest; the line is the command to run."""
    with pytest.raises(ModelSourceError, match="run `failsoft models add absent`"):
        run("show", "absent")


def test_diff_says_by_which_words(folder: Path) -> None:
    """And what is equal; a list and an option beside it."""
    lines = run("diff", "v2", "v3").stdout.splitlines()

    assert lines[:2] == [f"a: v2 {digest_of('v2')}", f"b: v3 {digest_of('v3')}"]
    assert lines[2] == "in the digest, so that answers may differ:"
    assert "    …support team. Answer in [-one-]{+two+} [-sentence-]{+sentences+}." in lines
    assert '  stop_strings: "\\nUser:", "###" -> "\\nUser:"' in lines
    assert "  engine_options max_model_len: 64 -> -" in lines
    assert lines[-1].startswith("  equal: model, tokenizer, chat_template, generation_defaults")


def test_diff_of_one_digest_says_so_and_names_what_changes_no_answer(folder: Path) -> None:
    """Whoever moves such a pin moves no answer."""
    lines = run("diff", "v1", "dear").stdout.splitlines()
    found = document("diff", "v1", "dear")

    assert lines[2:] == [
        "same digest: they answer alike",
        "outside of the digest, which changes no answer:",
        "  price: - -> input_per_mtok 0.1, output_per_mtok 0.4",
        "  engine.max_running: - -> 4",
    ]
    assert (found["is_same"], found["in_digest"]) == (True, {})
    assert found["outside_of_digest"]["engine.max_running"] == {"a": None, "b": 4}


def test_verify_reads_every_byte(folder: Path) -> None:
    """What is not stored cannot be bad, unless it was asked for by name."""
    good = run("verify")
    absent = run("verify", "v1", "absent")
    spoil(folder)
    bad = run("verify", "v1")

    assert good.exit_code == 0
    assert f"good: v2 {digest_of('v2')[:12]}" in good.stdout
    assert "7 versions: 4 good, 0 bad, 3 not stored" in good.stdout
    assert absent.exit_code == 1
    assert absent.stderr == "to have it good, run: failsoft models add absent\n"
    assert bad.exit_code == 1
    assert "bad: v1" in bad.stdout
    assert "/files/tokenizer.json: expected " in bad.stdout
    assert bad.stderr == "to have it good, run: failsoft models add v1\n"


def test_verify_notices_a_manifest_that_does_not_add_up(folder: Path) -> None:
    """Else whoever changed a file and its noted digest alike would go unseen."""
    (path,) = (folder / "home" / "models").glob("*/manifest.json")
    manifest = json.loads(path.read_text())
    manifest["files"][0]["sha256"] = "0" * 64
    path.write_text(json.dumps(manifest))

    found = document("verify", "v1")["versions"][0]

    assert not found["is_good"]
    assert found["version_digest"] is None
    assert not found["files"][0]["is_good"]


def test_list_shows_a_damaged_version_as_broken(folder: Path) -> None:
    """One that a look at sizes gives away; the others stay."""
    (path,) = (folder / "home" / "models").glob("*/files/tokenizer.json")
    path.write_bytes(b"")

    assert "broken: run `failsoft versions verify`" in run("list").stdout


def test_check_is_hidden_and_exits_with_0_whatever_it_finds(folder: Path) -> None:
    """It is asked by a program, which reads the problems."""
    good = run("check", "v2", "--config", str(folder / "failsoft.toml"), "--json")
    found = json.loads(good.stdout)
    spoil(folder)
    bad = run("check", "v2")

    assert "exit 0 either way" not in run("--help").stdout
    assert found["version_digest"] == digest_of("v2")
    assert found["settings"]["source"] == f"file:{(folder / 'tiny').resolve()}"
    assert found["needs_bytes"] == sum(found["needs"].values()) > 0
    assert found["available_bytes"] is None or found["available_bytes"] > 0
    assert (found["files_good"], found["problems"]) == (True, [])
    assert bad.exit_code == 0
    assert "which makes it anew" in bad.stdout
    with pytest.raises(ConfigError):
        run("check", "nope")
