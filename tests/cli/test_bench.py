"""``failsoft bench`` as a user runs it: a tiny real model in processes of its own, and servers."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from failsoft.cli.main import app, main
from failsoft.errors import BenchError
from tests.engine.models.conftest import write_folder
from tests.fallback.fault_server import FaultServer

Bench = Callable[..., str]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return what runs ``failsoft bench ARGS`` and returns its stdout."""

    def run(*words: str, exit_code: int = 0) -> str:
        ran = CliRunner().invoke(app, ["bench", *words], catch_exceptions=False)
        assert ran.exit_code == exit_code, ran.output
        return ran.stdout

    return run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with settings that define the version ``tiny``, and a workload for it."""
    folder = tmp_path_factory.mktemp("bench")
    write_folder(folder / "model")
    (folder / "failsoft.toml").write_text(
        "[versions.tiny]\nsource = 'file:model'\ndtype = 'float32'\n"
    )
    requests = [{"prompt_ids": [5, 6, 7 + n], "output_len": 2 + 5 * (n % 2)} for n in range(5)]
    requests.append({"prompt": "hello", "max_tokens": 3})
    workload = {"model": "tiny", "max_running": 2, "requests": requests}
    (folder / "work.json").write_text(json.dumps(workload))
    return folder


@pytest.fixture
def at_tiny(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in that folder, with a store of its own."""
    monkeypatch.setenv("FAILSOFT_HOME", str(tiny / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tiny)
    return tiny


def test_a_schedule_of_a_real_model_as_table_json_and_picture(bench: Bench, at_tiny: Path) -> None:
    """In a process of its own; the document has the promised keys and no others."""
    files = ["--json", "out.json", "--html", "out.html"]

    table = bench("run", "--workload", "work.json", "--mode", "continuous", *files)

    document = json.loads((at_tiny / "out.json").read_text())
    assert set(document) == {"machine", "modes"}
    continuous = document["modes"]["continuous"]
    assert continuous["wall_s"] > 0
    assert 0 < continuous["slot_idle_ratio"] < 1
    assert continuous["peak_rss_bytes"] > 10**7
    assert continuous["goodput_rps"] is None
    assert (document["machine"]["version"], document["machine"]["max_running"]) == ("tiny", 2)
    assert "work: 6 requests at once, 2 slots, tiny in float32" in table
    assert (at_tiny / "out.html").read_text().count("<section>") == 1


def test_documents_beside_their_arithmetic(bench: Bench, at_tiny: Path) -> None:
    """Padded generate is real; what was not run has no figure."""
    args = ["--workload", "work.json", "--count", "4", "--mode", "padded", "--json", "docs.json"]

    table = bench("documents", *args)

    document = json.loads((at_tiny / "docs.json").read_text())
    sums = document["arithmetic"]["accounts"]["padded"]
    assert sums["num_forwards"] == 7
    assert sums["measured_s"] == document["modes"]["padded"]["wall_s"]
    assert document["arithmetic"]["padding"]["output_tokens"] == 4 * 7 - 18
    assert document["arithmetic"]["kv_bytes"]["peak"] is None
    assert "slowest member = 12 x" in table
    assert "padding avoided: 0 of 12 prompt places (0 %), 10 of 28 output places (36 %)" in table


@pytest.mark.parametrize(
    "args",
    [
        ["run", "--mode", "magic"],
        ["run", "--workload", "no-such"],
        ["run", "--json", "no/such/folder/x.json"],
        ["run", "--html", "."],
        ["run", "--dtype", "int4"],
        ["run", "--max-running", "0"],
        ["documents", "--count", "101"],
        ["documents", "--mode", "static"],
        ["serve", "--rate", "0"],
        ["serve", "--endpoint", "x"],
        ["serve", "--api-key-env", "NO_SUCH_VARIABLE"],
        ["serve", "--url", "ftp://127.0.0.1/v1"],
    ],
    ids=" ".join,
)
def test_wrong_settings_are_one_line_before_anything_runs(
    args: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2; minutes of measuring are not lost to a folder that does not exist."""
    monkeypatch.setattr(sys, "argv", ["failsoft", "bench", *args])

    with pytest.raises(SystemExit) as caught:
        main()

    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_a_server_is_driven_at_each_rate(
    bench: Bench, server_a: FaultServer, tmp_path: Path
) -> None:
    """A row each, failures by kind, goodput; one request goes ahead unmeasured."""
    server_a.plan("ok", {"do": "status", "status": 503})
    out = tmp_path / "serve.json"
    args = ["--rate", "50,inf", "--num-requests", "4", "--url", server_a.url, "--json", str(out)]

    table = bench("serve", *args)

    document: dict[str, Any] = json.loads(out.read_text())
    first, second = document["rates"]
    assert (first["rate_rps"], second["rate_rps"]) == (50.0, None)
    assert (first["num_ok"], first["errors"]) == (3, {"HTTP 503": 1})
    assert (second["num_ok"], second["errors"]) == (4, {})
    assert second["goodput_rps"] > 0
    assert document["server"] == {"url": server_a.url, "model": "m"}
    assert "at 50/s 1 x HTTP 503" in table
    assert server_a.hits == 9


def test_a_server_that_answers_nothing_is_exit_code_1(bench: Bench, server_a: FaultServer) -> None:
    """Nothing was measured, and the line says why."""
    server_a.plan(default={"do": "status", "status": 500})

    with pytest.raises(BenchError, match=r"a first request .* failed"):
        bench("serve", "--url", server_a.url)

    server_a.plan("ok", default={"do": "status", "status": 500})
    bench("serve", "--url", server_a.url, "--num-requests", "2", "--rate", "inf", exit_code=1)
