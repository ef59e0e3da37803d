"""What is known of a version before it is served: its digest, and every fault by name."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failsoft.config.http import HttpConfig
from failsoft.config.sources import FileSource
from failsoft.config.versions import parse_versions
from failsoft.engine.launch import open_server
from failsoft.engine.models.fetch import fetch_model
from failsoft.engine.models.store import ModelStore
from failsoft.engine.models.version_check import VersionCheck, check_version
from failsoft.engine.torch_build import torch_build
from failsoft.errors import ConfigError
from tests.engine.http.rig import serving
from tests.engine.models.conftest import CHAT_TEMPLATE, write_folder

TABLES = {
    "auto": "",
    "float32": 'dtype = "float32"',
    "bfloat16": 'dtype = "bfloat16"',
    "int8": 'dtype = "int8"',
    "plain": 'dtype = "float32"\ntemplate = "plain"\nstop = ["###"]',
    "own": 'dtype = "float32"\ntemplate = "chat.jinja"',
    "prompted": 'dtype = "float32"\nsystem_prompt = "Answer in one sentence."',
    "short": 'dtype = "float32"\nengine = { max_model_len = 64, max_running = 3 }',
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with settings of many versions of one stored tiny model."""
    folder = tmp_path_factory.mktemp("versions")
    model = folder / "tiny"
    write_folder(model)
    (folder / "chat.jinja").write_text(CHAT_TEMPLATE + "{# another #}")
    table = '[versions.{}]\nsource = "file:tiny"\n{}\n'
    (folder / "failsoft.toml").write_text("".join(table.format(*pair) for pair in TABLES.items()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAILSOFT_HOME", str(folder / "home"))
        fetch_model(FileSource(model), store=ModelStore())
        yield folder


def check(folder: Path, name: str) -> VersionCheck:
    """Check one version of *folder*'s settings."""
    return check_version(name, config_path=folder / "failsoft.toml", store=ModelStore())


@pytest.mark.parametrize("name", TABLES)
def test_the_digest_is_the_one_that_a_running_engine_reports(folder: Path, name: str) -> None:
    """Else no move could ever be proven."""
    found = check(folder, name)
    opened = open_server(
        name,
        options={},
        http_config=HttpConfig(port=0),
        config_path=folder / "failsoft.toml",
        on_phase=lambda text: None,
    )
    try:
        with serving(opened.state) as (_, _, client):
            reported = client.get("/v1/models").json()["data"][0]
    finally:
        opened.state.engine.close()

    assert found.problems == ()
    assert found.files_good
    assert found.version is not None
    assert reported["version_digest"] == found.version.digest == found.to_json()["version_digest"]
    assert found.needs is not None


def test_its_settings_mean_the_same_from_any_folder(folder: Path) -> None:
    """They are kept with a move: the file may be gone, or say something else, by then."""
    settings: Any = json.loads(json.dumps(check(folder, "own").to_json()["settings"]))

    again = parse_versions({"versions": {"own": settings}})["own"]

    assert again.source == f"file:{folder / 'tiny'}"
    assert again.template == str(folder / "chat.jinja")
    assert set(settings) == {"source", "dtype", "template"}


def test_an_unknown_name_is_an_error_and_not_a_problem(folder: Path) -> None:
    """There is nothing to say of it."""
    with pytest.raises(ConfigError, match="auto"):
        check(folder, "absent")


def change(path: Path) -> None:
    """Change the last byte of the file at *path*."""
    path.write_bytes(path.read_bytes()[:-1] + b"x")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Path) -> Path:
    """Return a folder with one version, called mine, whose model is not stored."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAILSOFT_HOME", str(tmp_path / "home"))
    (tmp_path / "failsoft.toml").write_text(
        f'[versions.mine]\nsource = "file:{tiny_folder.name}"\ndtype = "float32"\n'
    )
    return tmp_path


def store_mine(mine: Path) -> Path:
    """Store the model of *mine*; return the folder of its files."""
    return fetch_model(FileSource(mine / "tiny"), store=ModelStore()).folder


def test_what_is_not_stored_is_not_fetched(mine: Path) -> None:
    """The line is the command to run; a digest that nobody measured is absent."""
    found = check(mine, "mine").to_json()

    expected = "version mine: its model is not stored; run `failsoft models add mine`"
    assert found["problems"] == [expected]
    assert [found[key] for key in ("version_digest", "manifest", "needs")] == [None, None, None]
    assert not found["files_good"]
    assert ModelStore().digests() == []


def test_a_command_from_another_folder_names_the_source(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There ``mine`` would be no version, or another one."""
    (mine / "elsewhere").mkdir()
    monkeypatch.chdir(mine / "elsewhere")

    (line,) = check(mine, "mine").problems

    assert line.endswith(f"run `failsoft models add file:{mine / 'tiny'} --dtype float32`")


def test_a_byte_that_changed_is_found_though_the_size_did_not(mine: Path) -> None:
    """Its digest would be that of files that are not there, so there is none."""
    change(store_mine(mine) / "tokenizer.json")

    found = check(mine, "mine")

    assert found.version is None
    assert not found.files_good
    (line,) = found.problems
    assert "tokenizer.json: expected sha256" in line
    assert line.endswith("run `failsoft models add mine`, which makes it anew")


def test_a_file_that_is_gone_is_a_problem(mine: Path) -> None:
    """The store itself notices that one."""
    (store_mine(mine) / "config.json").unlink()

    (line,) = check(mine, "mine").problems

    assert "config.json" in line
    assert "found no file; run `failsoft models add mine`" in line


def test_a_template_that_is_gone_is_a_problem_of_good_files(mine: Path) -> None:
    """Fetching again would not bring it back, so nobody is told to."""
    store_mine(mine)
    with (mine / "failsoft.toml").open("a") as file:
        file.write('template = "absent.jinja"\n')

    found = check(mine, "mine")

    assert (found.files_good, found.version) == (True, None)
    assert "versions.mine.template" in found.problems[0]
    assert "models add" not in found.problems[0]


def test_a_gguf_file_needs_its_conversion(mine: Path, tiny_gguf: Path) -> None:
    """An engine would spend minutes and much memory on it, beside the one that serves."""
    table = f'[versions.mine]\nsource = "file:{tiny_gguf}"\ndtype = "int8"\n'
    (mine / "failsoft.toml").write_text(table)
    store = ModelStore()
    digest = fetch_model(FileSource(tiny_gguf), store=store).digest

    absent = check(mine, "mine")
    folder = store.root / "conversions" / f"{digest}-bfloat16-v1"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    record = {"files": [{"path": "config.json", "sha256": "0" * 64, "size_bytes": 2}]}
    (folder / "conversion.json").write_text(json.dumps(record))
    damaged = check(mine, "mine")

    line = (
        "version mine: its model is not converted to bfloat16 yet; run `failsoft models add mine`"
    )
    assert absent.problems == (line,)
    assert absent.version is not None
    assert absent.needs is None
    assert "config.json: expected sha256 000" in damaged.problems[0]
    assert not damaged.files_good


@pytest.mark.parametrize("name", ["auto", "float32", "bfloat16", "int8"])
def test_a_check_imports_torch_at_most_once_in_a_machine_s_life(folder: Path, name: str) -> None:
    """It runs beside an engine that answers callers, and torch takes 2 s of a core."""
    check(folder, name)  # notes what only torch can say
    code = (
        "import sys; from pathlib import Path; "
        "from failsoft.engine.models.store import ModelStore; "
        "from failsoft.engine.models.version_check import check_version; "
        f"found = check_version({name!r}, config_path=Path('failsoft.toml'), store=ModelStore()); "
        "assert found.version is not None and found.needs is not None; "
        "assert torch_is_expected or 'torch' not in sys.modules"
    )
    is_expected = f"torch_is_expected = {torch_build().has_gpu}; "
    subprocess.run([sys.executable, "-c", is_expected + code], cwd=folder, check=True)
