"""Rounds of fingerprint checks: what becomes an event, what the file says, when they run."""

import asyncio
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from failsoft.config.settings import EndpointConfig, FingerprintConfig, StoreConfig
from failsoft.fallback.fingerprint.check import check
from failsoft.fallback.fingerprint.records import FingerprintProof
from failsoft.fallback.fingerprint.take import Asked
from failsoft.fingerprint_status import read_fingerprints
from failsoft.serving.ops import fingerprint_round
from failsoft.serving.ops.fingerprint_round import (
    CHANGED,
    MAX_TOLD,
    UNCLEAR,
    FingerprintRound,
)
from failsoft.serving.ops.fingerprint_schedule import FingerprintSchedule
from failsoft.store import Store
from tests.fallback.fingerprint.foreign import Foreign
from tests.fallback.rig import refused_port
from tests.serving.ops.rounds import Rounds


@pytest.fixture
def foreign() -> Iterator[Foreign]:
    """Return an endpoint elsewhere."""
    with Foreign() as server:
        yield server


def test_a_change_elsewhere_is_one_event_and_then_what_counts(
    rounds: Rounds, foreign: Foreign
) -> None:
    """From then on it is compared with what it has become."""
    verdicts = [rounds.run()["hosted"].verdict, rounds.run()["hosted"].verdict]
    foreign.weights = "two"
    verdicts += [rounds.run()["hosted"].verdict, rounds.run()["hosted"].verdict]

    assert verdicts == ["new", "same", "changed", "same"]
    assert rounds.events() == [(CHANGED, "hosted")]


def test_a_second_change_at_the_next_look_is_told_too(rounds: Rounds, foreign: Foreign) -> None:
    """The first had become what counts: it went by as the same change, still going on."""
    for weights in ("one", "two", "three", "three"):
        foreign.weights = weights
        seen = rounds.run()["hosted"]

    assert seen.verdict == "same"
    assert rounds.events() == [(CHANGED, "hosted")] * 2


def test_an_endpoint_that_alternates_is_not_told_without_end(
    rounds: Rounds, foreign: Foreign
) -> None:
    """A router over two models is another at each look; the last event of a day says so."""
    for number in range(MAX_TOLD + 4):
        foreign.weights = ("one", "two")[number % 2]
        rounds.run()

    assert rounds.events() == [(CHANGED, "hosted")] * MAX_TOLD
    with Store(rounds.settings.store) as store:
        lasts = [json.loads(event.detail_json)["is_last"] for event in store.reader.events()]
    assert lasts == [True] + [False] * (MAX_TOLD - 1)


def test_a_bug_at_one_endpoint_costs_the_others_nothing(
    rounds: Rounds, foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply that nobody thought of ended the round there, every five minutes."""
    with Foreign() as engine:
        rounds.publish(engine, "a" * 64)

        async def broken(asked: Asked, **rest: Any) -> FingerprintProof:
            if asked.url == foreign.url:
                raise ZeroDivisionError
            return await check(asked, **rest)

        monkeypatch.setattr(fingerprint_round, "check", broken)
        seen = rounds.run()

    assert seen["hosted"].trouble == "a bug in failsoft: ZeroDivisionError"
    assert seen["local"].verdict == "new"


def test_a_file_that_cannot_be_written_costs_no_endpoint_its_look(
    rounds: Rounds, foreign: Foreign, caplog: pytest.LogCaptureFixture
) -> None:
    """The first OSError ended the round there; and what is told is not told again."""
    one = FingerprintRound(rounds.settings, home=rounds.home, environ={})
    with Foreign() as engine, Store(rounds.settings.store) as store:
        rounds.publish(engine, "a" * 64)
        asyncio.run(one.run(store))
        in_its_way = rounds.home / "run" / "processes" / f"fingerprints.{os.getpid()}.tmp"
        in_its_way.mkdir()
        engine.weights = "two"
        seen = [asyncio.run(one.run(store)) for _ in range(2)]
        in_its_way.rmdir()
        seen.append(asyncio.run(one.run(store)))

    assert [standings["local"].verdict for standings in seen] == ["changed"] * 3
    assert [standings["hosted"].verdict for standings in seen] == ["same"] * 3
    assert rounds.events() == [(CHANGED, "local")]
    assert caplog.text.count("what fingerprints say cannot be written") == 1
    assert read_fingerprints(rounds.home) == seen[-1]


def test_other_weights_under_a_version_of_ours_stay_changed_and_are_told_once(
    rounds: Rounds, foreign: Foreign
) -> None:
    """Its digest says what it must be, also to a process that starts meanwhile."""
    with Foreign() as engine:
        rounds.publish(engine, "a" * 64)
        rounds.run()
        engine.weights = "two"
        seen = [rounds.run()["local"] for _ in range(3)]

    assert [standing.verdict for standing in seen] == ["changed"] * 3
    assert len({standing.since_ms for standing in seen}) == 1
    assert rounds.events() == [(CHANGED, "local")]


def test_another_version_in_a_slot_has_a_reference_of_its_own(
    rounds: Rounds, foreign: Foreign
) -> None:
    """A pin that moved is no change of weights; and back again it is still what it was."""
    verdicts = []
    with Foreign() as engine:
        for weights, digest in (("one", "a"), ("two", "b"), ("one", "a"), ("one", "b")):
            engine.weights = weights
            rounds.publish(engine, digest * 64)
            verdicts.append(rounds.run()["local"].verdict)

    assert verdicts == ["new", "new", "same", "changed"]


def test_an_endpoint_that_is_down_is_no_change(rounds: Rounds, foreign: Foreign) -> None:
    """What was known of it stays, beside the reason why nothing new is."""
    rounds.run()
    foreign.refuses = lambda _path, _body: 503

    seen = rounds.run()

    assert (seen["hosted"].verdict, seen["hosted"].trouble) == (
        "new",
        "HTTP 503 to /completions",
    )
    assert seen["local"].verdict is None
    assert "no engine is published for slot primary" in (seen["local"].trouble or "")
    assert "twin" not in seen
    assert rounds.events() == []


def test_what_cannot_be_asked_any_more_is_unclear_once(rounds: Rounds, foreign: Foreign) -> None:
    """Its route is gone: that may be another server, and nobody can compare."""
    rounds.run()
    foreign.refuses = lambda _path, _body: 404

    seen = [rounds.run()["hosted"], rounds.run()["hosted"]]

    assert [(one.verdict, one.why) for one in seen] == [("unclear", "HTTP 404 to /completions")] * 2
    assert rounds.events() == [(UNCLEAR, "hosted")]


def test_a_key_that_is_not_set_keeps_one_endpoint_from_being_seen(
    rounds: Rounds, foreign: Foreign
) -> None:
    """The others are still looked at."""
    endpoints = {
        "keyed": EndpointConfig(name="keyed", url=foreign.url, model="m", api_key_env="NO_KEY"),
        **rounds.settings.endpoints,
    }

    seen = rounds.run(endpoints=endpoints)

    assert "NO_KEY" in (seen["keyed"].trouble or "")
    assert seen["hosted"].verdict == "new"


def test_the_file_says_what_the_last_round_found(rounds: Rounds, foreign: Foreign) -> None:
    """A page shows it; an endpoint that the settings no longer name goes."""
    rounds.run()
    hosted = {"hosted": rounds.settings.endpoints["hosted"]}
    seen = rounds.run(endpoints=hosted)

    assert read_fingerprints(rounds.home) == seen
    assert seen["hosted"].mean_limit is not None
    assert seen["hosted"].trouble is None


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 99}', '{"schema": 1, "endpoints": [{}]}'])
def test_a_file_of_another_failsoft_reads_as_none(
    rounds: Rounds, foreign: Foreign, text: str
) -> None:
    """It is written anew."""
    rounds.run()
    (rounds.home / "run" / "processes" / "fingerprints.json").write_text(text)

    assert read_fingerprints(rounds.home) == {}


# The timer.


def wait_for(what: Any, limit_s: float = 10.0) -> None:
    """Wait until *what* returns something true."""
    until_s = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_rounds_come_by_themselves(rounds: Rounds, foreign: Foreign) -> None:
    """The first soon after the start, not a whole interval later."""
    schedule = FingerprintSchedule(rounds.settings, home=rounds.home, environ={}, first_s=0.05)

    schedule.start()
    wait_for(lambda: read_fingerprints(rounds.home).get("local"))
    schedule.close()

    assert read_fingerprints(rounds.home)["hosted"].verdict == "new"


def test_0_never_looks(rounds: Rounds, foreign: Foreign) -> None:
    """No thread, no request."""
    settings = replace(rounds.settings, fingerprint=FingerprintConfig(every_s=0))
    schedule = FingerprintSchedule(settings, home=rounds.home, environ={}, first_s=0.0)
    before = threading.active_count()

    schedule.start()

    assert threading.active_count() == before
    schedule.close()
    assert foreign.bodies == []


def test_a_round_is_broken_off_at_the_end(rounds: Rounds, foreign: Foreign) -> None:
    """The process must not wait for an endpoint that hangs."""
    let_go = threading.Event()
    foreign.refuses = lambda _path, _body: None if let_go.wait(10) else 500
    schedule = FingerprintSchedule(rounds.settings, home=rounds.home, environ={}, first_s=0.0)
    schedule.start()
    wait_for(lambda: foreign.bodies)

    schedule.close()

    assert not let_go.is_set()
    assert read_fingerprints(rounds.home) == {}
    let_go.set()


def test_a_store_that_cannot_be_opened_costs_a_round(
    tmp_path: Path, foreign: Foreign, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said in the log, and the next round tries again."""
    rounds = Rounds(tmp_path, foreign)
    store = StoreConfig(url=f"sqlite:///{tmp_path}/nowhere/failsoft.db")
    schedule = FingerprintSchedule(replace(rounds.settings, store=store), home=tmp_path, environ={})

    schedule.run_once()

    assert "fingerprints were not taken" in caplog.text


def test_a_local_engine_that_refuses_connections_is_not_seen(
    rounds: Rounds, foreign: Foreign
) -> None:
    """Its file is there, its socket is not: it dies or starts."""
    with refused_port() as port:
        rounds.publish(foreign, "a" * 64)
        file = rounds.home / "run" / "primary.json"
        raw = json.loads(file.read_text())
        file.write_text(json.dumps({**raw, "url": f"http://127.0.0.1:{port}/v1"}))

        seen = rounds.run()["local"]

    assert seen.verdict is None
    assert seen.trouble == "no answer (ConnectError)"
