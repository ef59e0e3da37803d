"""Kept replies, prices and breakers after a move: clients that were open before it included."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from failsoft.config.price import TokenPrice
from failsoft.config.schema import load_settings
from failsoft.config.settings import Settings
from failsoft.errors import LadderExhaustedError
from failsoft.fallback.breaker import BreakerState
from failsoft.fallback.client import Client
from failsoft.fallback.discovery import RunningEngine, engine_file, publish_engine
from failsoft.fallback.pins.pin_book import FRESH_S
from failsoft.fallback.reply import Reply
from failsoft.fallback.surroundings import Surroundings
from failsoft.pin_records import MoveKind
from failsoft.store import Store
from tests.fallback.fake_time import FakeTime
from tests.fallback.fault_server import FaultServer
from tests.fallback.pins.moves import DIGESTS, ask_for, carry_out, version_of
from tests.fallback.rig import ASK

FILE = """
[store]
url = "sqlite:///failsoft.db"
[versions.v1]
source = "file:/models/v1"
price = { input_per_mtok = 1, output_per_mtok = 1 }
[versions.v2]
source = "file:/models/v2"
price = { input_per_mtok = 2, output_per_mtok = 2 }
[pins]
primary = "v1"
[endpoints.primary]
pin = "primary"
[ladders.chat]
rungs = ["primary", "cache"]
retry = { attempts = 1 }
breaker = { min_calls = 2, open_s = 60 }
"""
DOWN = {"do": "status", "status": 500}
PRICE_5 = "input_per_mtok = 5, output_per_mtok = 5"


class App:
    """An app with an embedded client, beside a home whose engines a test starts and stops."""

    def __init__(self, folder: Path, server: FaultServer) -> None:
        self.folder = folder
        self.server = server
        self.file = folder / "failsoft.toml"
        self.file.write_text(FILE)
        self.store = Store(self.settings.store)
        self.time = FakeTime(1_000_000.0)
        self.client = self.open()

    @property
    def settings(self) -> Settings:
        """The file's."""
        return load_settings(self.file)

    def open(self) -> Client:
        """Return a new client."""
        return Client(
            self.file,
            environ={"FAILSOFT_HOME": str(self.folder)},
            surroundings=Surroundings(clock=self.time, wall=self.time, random=lambda: 0.5),
        )

    def run_engine(self, name: str, digest: str | None = None) -> None:
        """Have an engine serve the version called *name*."""
        publish_engine(
            self.folder,
            RunningEngine(
                slot="primary",
                url=self.server.url,
                pid=os.getpid(),
                version=name,
                version_digest=digest or DIGESTS[name],
            ),
        )
        self.server.plan()

    def kill_engine(self) -> None:
        """Have no engine."""
        engine_file(self.folder, "primary").unlink()

    def move(self, name: str, kind: MoveKind = MoveKind.SET) -> None:
        """Move the pin to *name*, in the store alone."""
        carry_out(self.store, ask_for(version_of(self.settings, name), kind=kind))
        self.time.advance(2 * FRESH_S)

    def ask(self, client: Client | None = None) -> Reply:
        """Ask the same as ever."""
        return (client or self.client).chat(ASK, temperature=0)


@pytest.fixture
def app(tmp_path: Path, server_a: FaultServer) -> Iterator[App]:
    """An app whose engine runs v1 and has answered once."""
    app = App(tmp_path, server_a)
    app.store.pins.note_file_pin("primary", version_of(app.settings, "v1"))
    app.run_engine("v1")
    assert app.ask().version == DIGESTS["v1"]
    yield app
    app.client.close()
    app.store.close()


def test_the_version_left_answers_no_more_while_the_engine_is_down(app: App) -> None:
    """The client was open before the move, and its file still pins the version left."""
    app.kill_engine()
    kept = app.ask()

    app.move("v2")
    with pytest.raises(LadderExhaustedError) as caught:
        app.ask()

    assert (kept.rung, kept.version) == ("cache", DIGESTS["v1"])
    assert "cache" in str(caught.value)
    with app.open() as new, pytest.raises(LadderExhaustedError):
        app.ask(new)


def test_after_the_rollback_its_own_answer_again_and_the_other_ones_do_not(app: App) -> None:
    """Down or up, old client or new."""
    app.move("v2")
    app.run_engine("v2")
    assert app.ask().version == DIGESTS["v2"]
    app.kill_engine()
    assert app.ask().version == DIGESTS["v2"]

    app.move("v1", MoveKind.ROLLBACK)
    down = app.ask()
    app.run_engine("v1")
    app.server.plan(default=DOWN)
    up = app.ask()

    assert [(r.rung, r.version) for r in (down, up)] == [("cache", DIGESTS["v1"])] * 2
    with app.open() as new:
        assert app.ask(new).version == DIGESTS["v1"]


def test_the_version_left_answers_no_more_while_the_engine_is_up_and_fails(app: App) -> None:
    """What runs says which version it is."""
    app.move("v2")
    app.run_engine("v2")
    app.server.plan(default=DOWN)

    with pytest.raises(LadderExhaustedError):
        app.ask()


def test_a_reply_is_kept_under_the_digest_that_its_own_header_names(app: App) -> None:
    """For a moment the engine's file may still name the version left."""
    app.server.plan(default={"do": "ok", "version": DIGESTS["v2"]})
    assert app.ask().version == DIGESTS["v2"]  # as v1 was asked for
    app.kill_engine()

    app.move("v2")
    moved = app.ask()
    app.move("v1", MoveKind.ROLLBACK)
    back = app.ask()

    assert (moved.version, back.version) == (DIGESTS["v2"], DIGESTS["v1"])


def test_a_version_that_the_file_dropped_keeps_its_name_and_its_price(app: App) -> None:
    """The pin keeps the whole table."""
    app.move("v2")
    text = app.file.read_text()
    app.file.write_text(text[: text.index("[versions.v2]")] + text[text.index("[pins]") :])
    app.run_engine("v2")

    with app.open() as client:
        reply = app.ask(client)
        endpoint = client.ladders["chat"].models[0].endpoint
        app.kill_engine()
        version, name = endpoint.version(), endpoint.version_name

    assert "v2" not in app.settings.versions
    assert (name, version.digest) == ("v2", DIGESTS["v2"])
    assert version.price == TokenPrice(input_per_mtok=2, output_per_mtok=2)
    assert reply.usage.num_output_tokens
    assert reply.cost == pytest.approx(_tokens(reply) * 2 / 1e6)


def test_a_name_that_means_another_version_now_has_the_price_of_what_runs(app: App) -> None:
    """The digest tells which of both runs."""
    app.move("v1")
    text = app.file.read_text().replace("/models/v1", "/models/other")
    app.file.write_text(text.replace("input_per_mtok = 1, output_per_mtok = 1", PRICE_5))

    with app.open() as client:
        as_pinned = app.ask(client)
        app.run_engine("v1", digest="9" * 64)
        as_the_file_says = app.ask(client)

    assert as_pinned.cost == pytest.approx(_tokens(as_pinned) * 1 / 1e6)
    assert as_the_file_says.cost == pytest.approx(_tokens(as_the_file_says) * 5 / 1e6)


def _tokens(reply: Reply) -> int:
    usage = reply.usage
    assert usage.num_prompt_tokens is not None
    assert usage.num_output_tokens is not None
    return usage.num_prompt_tokens + usage.num_output_tokens


def test_the_breaker_that_a_bad_version_opened_is_not_held_against_the_good_one(app: App) -> None:
    """After a rollback callers do not wait until a probe is due."""
    app.move("v2")
    app.run_engine("v2")
    app.server.plan(default=DOWN)
    for _ in range(4):
        with pytest.raises(LadderExhaustedError):
            app.client.chat(ASK, cache="off")
    endpoint = app.client.ladders["chat"].models[0].endpoint
    before = endpoint.breaker
    assert before.state is BreakerState.OPEN

    app.move("v1", MoveKind.ROLLBACK)
    app.run_engine("v1")
    reply = app.client.chat(ASK, cache="off")

    assert reply.rung == "primary"
    assert [attempt.outcome for attempt in reply.attempts] == ["ok"]
    assert endpoint.breaker.state is BreakerState.CLOSED


def test_an_answer_of_the_version_left_that_ends_late_is_not_the_new_ones(app: App) -> None:
    """Its breaker and its times went with it."""
    app.server.plan(default={"do": "ok", "tokens": 3, "gap_s": 0.1})
    endpoint = app.client.ladders["chat"].models[0].endpoint
    stream = app.client.stream(ASK, cache="off")
    deltas = iter(stream)
    next(deltas)

    publish_engine(
        app.folder,
        replace(_running(app), version="v2", version_digest=DIGESTS["v2"]),
    )
    endpoint.locate()
    for _ in deltas:
        pass

    assert stream.reply.version == DIGESTS["v1"]
    assert (endpoint.service.median_s, endpoint.breaker.state) == (None, BreakerState.CLOSED)


def _running(app: App) -> RunningEngine:
    return RunningEngine(slot="primary", url=app.server.url, pid=os.getpid(), version="v1")


def test_an_event_of_a_breaker_names_the_version_that_it_is_about(app: App) -> None:
    """Which one was bad is asked after the rollback, when another one runs."""
    app.move("v2")
    app.run_engine("v2")
    app.server.plan(default=DOWN)
    for _ in range(4):
        with pytest.raises(LadderExhaustedError):
            app.client.chat(ASK, cache="off")
    app.client.close()

    (opened,) = [e for e in app.store.reader.events(limit=9) if e.kind == "breaker.open"]

    assert json.loads(opened.detail_json)["version"] == DIGESTS["v2"]
