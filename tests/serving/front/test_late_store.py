"""A front whose store is down when it starts: it answers, says so, and records later."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from failsoft.config.schema import load_settings
from failsoft.store import Store
from tests.engine.http.rig import wait_until
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import refused_port
from tests.serving.front.rig import front, toml


@pytest.fixture
def server() -> Iterator[FaultServer]:
    """Return an upstream that answers."""
    with FaultServer("A") as upstream:
        yield upstream


def test_a_front_starts_and_answers_while_its_postgresql_is_down(
    tmp_path: Path, server: FaultServer
) -> None:
    """It used to end, again and again: a database's outage took every answer with it."""
    with refused_port() as port:
        store = f'[store]\nurl = "postgresql://u@127.0.0.1:{port}/d"\n'
        with front(tmp_path, toml(server, more=store)) as process:
            replies = [process.post(), process.post(headers={"idempotency-key": "k"})]
            assert wait_until(lambda: process.status()["store_trouble"])
            trouble = process.status()["store_trouble"]
            ready = process.get("/health/ready").status_code
            assert process.stop() == 0
            said = process.stderr()

    assert [reply.status_code for reply in replies] == [200, 200]
    assert ready == 200
    assert "Connection refused" in trouble
    assert "opened without its database; records wait until it works" in said


def test_what_it_answered_meanwhile_is_recorded_once_the_store_works(
    tmp_path: Path, server: FaultServer
) -> None:
    """Another process holds the file, as a long migration does."""
    store = '[store]\nurl = "sqlite:///failsoft.db"\nbusy_timeout_s = 0.2\n'
    with closing(sqlite3.connect(tmp_path / "failsoft.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with front(tmp_path, toml(server, more=store)) as process:
            assert process.post().status_code == 200
            assert wait_until(lambda: process.status()["store_trouble"])
            other.execute("ROLLBACK")
            assert wait_until(lambda: process.status()["store_trouble"] is None)
            assert process.stop() == 0

    with Store(load_settings(tmp_path / "failsoft.toml").store) as opened:
        assert [call.outcome for call in opened.reader.calls()] == ["ok"]
        details = [json.loads(event.detail_json) for event in opened.reader.events()]
    assert [detail["dropped"] for detail in details] == [{}]
