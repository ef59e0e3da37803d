"""``failsoft db`` as a user runs it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from failsoft.call_records import CallRecord
from failsoft.config.settings import StoreConfig
from failsoft.reply_records import CachedReply
from failsoft.store import Store
from failsoft.store.schema import HEAD

MakeCall = Callable[..., CallRecord]
MakeReply = Callable[..., CachedReply]


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run ``failsoft db ARGS`` in *folder*."""
    return subprocess.run(
        [sys.executable, "-m", "failsoft", "db", *args],
        cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_upgrade_makes_the_database_and_is_done_the_second_time(tmp_path: Path) -> None:
    """Without a settings file the defaults hold: ``failsoft.db`` here."""
    first, second = run(tmp_path, "upgrade"), run(tmp_path, "upgrade")

    assert (first.returncode, first.stderr) == (0, "")
    assert f"is now at revision {HEAD} (it was new)" in first.stdout
    assert f"is at revision {HEAD} (it was {HEAD})" in second.stdout
    assert (tmp_path / "failsoft.db").exists()


def test_stats_counts_what_is_there(
    sqlite_config: StoreConfig, tmp_path: Path, make_call: MakeCall, make_reply: MakeReply
) -> None:
    """One JSON document, or a table; calls recorded by another process are in it."""
    with Store(sqlite_config) as store:
        assert store.replies is not None
        store.recorder.record_call(make_call(started_at_ms=7))
        store.replies.put(make_reply(reply_json="12345"))

    stats = json.loads(run(tmp_path, "stats", "--json").stdout)
    table = run(tmp_path, "stats").stdout

    assert stats["num_rows"]["calls"] == 1
    assert stats["num_rows"]["attempts"] == 0
    assert (stats["reply_bytes"], stats["oldest_call_at_ms"]) == (5, 7)
    assert stats["dropped_total"] == {}
    assert "calls (rows)" in table


def test_prune_deletes_what_the_settings_no_longer_keep(
    sqlite_config: StoreConfig, tmp_path: Path, make_call: MakeCall
) -> None:
    """The file named with --config decides; a second prune finds nothing."""
    with Store(sqlite_config) as store:
        store.recorder.record_call(make_call(started_at_ms=7))
    (tmp_path / "own.toml").write_text("[store]\ncall_days = 1\n")

    first = run(tmp_path, "prune", "--config", "own.toml", "--json")
    second = run(tmp_path, "prune", "--config", "own.toml")

    assert json.loads(first.stdout) == {"calls": 1}
    assert second.stdout == "nothing to delete\n"


def test_prune_forgets_a_tenant_and_a_version(
    sqlite_config: StoreConfig, tmp_path: Path, make_reply: MakeReply
) -> None:
    """Whatever the age of their texts."""
    now_ms = 4_000_000_000_000  # far ahead: no age limit reaches it
    with Store(sqlite_config) as store:
        assert store.replies is not None
        for key, tenant, version in (("1", "a", "v1"), ("2", "b", "v2"), ("3", "b", "v3")):
            store.replies.put(
                make_reply(key, tenant=tenant, version_digest=version, created_at_ms=now_ms)
            )

    done = run(tmp_path, "prune", "--tenant", "a", "--version", "v2", "--json")

    assert json.loads(done.stdout) == {"replies": 2}
    with Store(sqlite_config) as store:
        assert store.replies is not None
        assert store.replies.get("3") is not None


def test_a_database_that_cannot_be_opened_is_one_line_and_exit_1(tmp_path: Path) -> None:
    """Work failed; the settings were fine."""
    (tmp_path / "failsoft.toml").write_text('[store]\nurl = "sqlite:///nope/failsoft.db"\n')

    done = run(tmp_path, "stats")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: the store sqlite:///")
    assert len(done.stderr.splitlines()) == 1


def test_a_named_settings_file_that_is_missing_is_exit_2(tmp_path: Path) -> None:
    """Only the default name may be absent."""
    done = run(tmp_path, "stats", "--config", "missing.toml")

    assert done.returncode == 2
    assert not (tmp_path / "failsoft.db").exists()
