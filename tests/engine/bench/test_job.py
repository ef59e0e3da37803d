"""The process of a mode: it ends with whoever started it, and its end is told."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from failsoft.engine.bench.job import Job, Watcher, run_job
from failsoft.engine.bench.session import with_ids
from failsoft.engine.bench.workload import Item
from failsoft.errors import BenchError, ConfigError
from tests.engine.bench.builders import make_run, served
from tests.engine.tiny_tokenizer import chat_tokenizer

JOB = Job(version="tiny", mode="static", items=(Item(prompt_ids=(1, 2), output_len=3),))


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Run a shell script in place of the child."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_a_job_crosses_unchanged() -> None:
    """As JSON."""
    assert Job.from_document(json.loads(json.dumps(JOB.to_document()))) == JOB


def test_what_the_process_tells_reaches_the_watcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Phases, progress, and the run itself."""
    run = make_run(served(2, 3, ttft_s=1, e2e_s=2))
    lines = [{"phase": "loading"}, {"progress": [2, 0]}, {"result": run.to_document()}]
    said = "\n".join(f"echo '{json.dumps(line)}'" for line in lines)
    stand_in(tmp_path, monkeypatch, f"read job\n{said}")
    seen: list[Any] = []

    found = run_job(
        JOB, Watcher(on_phase=seen.append, on_progress=lambda *counts: seen.append(counts))
    )

    assert found == run
    assert seen == ["loading", (2, 0)]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("kill -9 $$", "ended by signal 9; if memory ran out"),
        ("exit 3", "ended with code 3"),
        ("""read job; echo '{"error": {"message": "it broke", "is_config": false}}'""", "it broke"),
    ],
)
def test_a_process_that_ends_without_a_result_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    """A bench never shows half a run."""
    stand_in(tmp_path, monkeypatch, script)

    with pytest.raises(BenchError, match=words):
        run_job(JOB, Watcher())


def test_the_process_ends_when_whoever_started_it_is_gone() -> None:
    """Nobody is left to stop a benchmark that nobody waits for."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "failsoft.engine.bench.child"], stdin=pipe, stdout=pipe, stderr=pipe
    ) as child:
        assert child.stdin is not None
        child.stdin.write(json.dumps(JOB.to_document()).encode() + b"\n")
        child.stdin.close()
        child.stdin = None

        assert child.wait(20) == 1


def test_what_the_process_refuses_is_refused_here_in_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong setting stays one: exit code 2."""
    error = json.dumps({"error": {"message": "version = 'x' is wrong", "is_config": True}})
    stand_in(tmp_path, monkeypatch, f"""read job; echo '{error.replace("'", "")}'""")

    with pytest.raises(ConfigError, match="version = x is wrong"):
        run_job(JOB, Watcher())


def test_a_bare_install_hears_which_package_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line turns it into what to install."""
    stand_in(tmp_path, monkeypatch, """read job; echo '{"missing": "torch"}'""")

    with pytest.raises(ModuleNotFoundError) as caught:
        run_job(JOB, Watcher())

    assert caught.value.name == "torch"


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (Item(prompt_ids=(1, 320), output_len=1), r"requests\.0\.prompt_ids = 320 .*0\.\.319"),
        (Item(prompt_ids=(1,), output_len=64), r"requests\.0 = '1 \+ 64 tokens'.*at most 64"),
    ],
)
def test_what_the_model_cannot_take_is_refused_before_the_run(item: Item, words: str) -> None:
    """The line names the request."""
    with pytest.raises(ConfigError, match=words):
        with_ids([item], loaded(), max_model_len=64)


def test_texts_are_cut_by_the_models_tokenizer() -> None:
    """Ids stay as they are."""
    items = [Item(text="hello", output_len=3), Item(prompt_ids=(4,), output_len=3)]

    text, ids = with_ids(items, loaded(), max_model_len=64)

    assert text.prompt_ids
    assert ids == items[1]


def loaded() -> Any:
    """Return what is looked at of a loaded model."""
    return SimpleNamespace(
        tokenizer=chat_tokenizer(), vocab_size=320, version=SimpleNamespace(name="tiny")
    )
