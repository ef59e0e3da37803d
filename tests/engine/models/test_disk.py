"""Atomic changes to the disk: locks, scratch folders of dead makers, publishing."""

import threading
from pathlib import Path

import pytest

from failsoft.engine.models.disk import file_lock, publish_folder, scratch_folder, write_file


def test_lock_excludes_and_reports_waiting(tmp_path: Path) -> None:
    """The second holder is told once that it waits, and gets the lock after the first."""
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        with file_lock(tmp_path / "x.lock", on_wait=waiting.set):
            order.append("second")

    with file_lock(tmp_path / "x.lock"):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    thread.join(10)

    assert order == ["first", "second"]


def test_scratch_folder_is_gone_afterwards_even_after_an_error(tmp_path: Path) -> None:
    """Nothing but the gate stays."""

    def fail() -> None:
        with scratch_folder(tmp_path) as folder:
            (folder / "x").write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert [path.name for path in tmp_path.iterdir()] == [".gate"]


def test_scratch_deletes_folders_of_dead_makers_and_keeps_those_of_living_ones(
    tmp_path: Path,
) -> None:
    """Whoever holds its lock lives; whoever does not, or has none, is dead."""
    dead = tmp_path / "dead"
    (dead / "deep").mkdir(parents=True)
    (tmp_path / "dead.lock").touch()
    (tmp_path / "orphan").mkdir()

    with scratch_folder(tmp_path) as living, scratch_folder(tmp_path) as other:
        assert living.is_dir()
        assert other.is_dir()
        assert not dead.exists()
        assert not (tmp_path / "dead.lock").exists()
        assert not (tmp_path / "orphan").exists()


def test_publishing_what_is_there_already_keeps_the_first(tmp_path: Path) -> None:
    """Two processes that built the same content both end with it in place."""
    final = tmp_path / "models" / "digest"
    for name in ("one", "two"):
        built = tmp_path / name
        built.mkdir()
        (built / "content").write_text("same")
        (built / name).touch()
        publish_folder(built, final)

    assert sorted(path.name for path in final.iterdir()) == ["content", "one"]


def test_write_file_replaces_in_one_step(tmp_path: Path) -> None:
    """The old content is there until the new one is, and the scratch folder is left empty."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    write_file(tmp_path / "deep" / "x.json", b"old", scratch=scratch)
    write_file(tmp_path / "deep" / "x.json", b"new", scratch=scratch)

    assert (tmp_path / "deep" / "x.json").read_bytes() == b"new"
    assert list(scratch.iterdir()) == []
