"""A front whose pins are moved while it serves: what it lists, keeps, counts and plays back."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from failsoft.config.schema import load_settings
from failsoft.fallback.discovery import RunningEngine, engine_file, publish_engine
from failsoft.fallback.pins.pin_book import FRESH_S
from failsoft.pin_records import MoveKind
from failsoft.serving.supervisor.accepted import with_absolute_paths
from failsoft.store import Store
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import answer, make_served, running, wait_until
from tests.fallback.fault_server import FaultServer
from tests.fallback.pins.moves import DIGESTS, ask_for, carry_out, version_of
from tests.serving.front.rig import FrontProcess, events_of, front

SLOTS = ("listed", "kept", "counted", "said", "unlike")
"""A slot for each test: the front is one, and what was moved stays moved."""
SETTINGS = """
[versions.v1]
source = "file:models/v1"
[versions.v2]
source = "file:models/v2"
[endpoints.remote]
url = "http://127.0.0.1:1/v1"
model = "their-model"
"""
OF_SLOT = """
[endpoints.{slot}]
pin = "{slot}"
[ladders.{slot}]
rungs = ["{slot}", "cache"]
[ladders.{slot}-and-remote]
rungs = ["{slot}", "remote"]
"""
ASK: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Say hello."}],
    "temperature": 0,
}


class Slot:
    """One slot of a front, moved as a supervisor would."""

    def __init__(self, name: str, process: FrontProcess, server: FaultServer) -> None:
        self.name = name
        self.process = process
        self.settings = load_settings(process.file)
        self.store = Store(self.settings.store)
        self.url = server.url

    def run(self, name: str) -> None:
        """Have an engine serve the version called *name*."""
        publish_engine(
            self.process.home,
            RunningEngine(
                slot=self.name,
                url=self.url,
                pid=os.getpid(),
                version=name,
                version_digest=DIGESTS[name],
            ),
        )

    def kill(self) -> None:
        """Have no engine."""
        engine_file(self.process.home, self.name).unlink()

    def move(self, name: str, kind: MoveKind = MoveKind.SET) -> None:
        """Move the pin in the store alone, and let the front's knowledge of it grow old."""
        ask = ask_for(version_of(self.settings, name), slot=self.name, kind=kind)
        carry_out(self.store, ask)
        assert wait_until(lambda: self.listed()[0]["version"] == name, timeout_s=10 * FRESH_S + 5)

    def listed(self, more: str = "") -> list[dict[str, Any]]:
        """What the slot's ladder resolves to, as the front lists it."""
        listing = self.process.get(f"/v1/models/{self.name}{more}").json()
        found: list[dict[str, Any]] = listing["resolves_to"]
        return found

    def ask(self, **fields: Any) -> httpx2.Response:
        """Ask its ladder the same as ever."""
        return self.process.post(**{**ASK, "model": self.name, **fields})


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontProcess]:
    """A front without any engine yet."""
    pins = "\n".join(f'{slot} = "v1"' for slot in SLOTS)
    ladders = "".join(OF_SLOT.format(slot=slot) for slot in SLOTS)
    settings = f"{SETTINGS}[pins]\n{pins}\n{ladders}"
    with front(tmp_path_factory.mktemp("front"), settings) as process:
        yield process


@pytest.fixture
def make_slot(process: FrontProcess, server_a: FaultServer) -> Iterator[Callable[[str], Slot]]:
    """Return a slot of the front, by its name."""
    with ExitStack() as stores:

        def make(name: str) -> Slot:
            slot = Slot(name, process, server_a)
            stores.enter_context(slot.store)
            return slot

        yield make


MakeSlot = Callable[[str], Slot]


def test_models_say_what_each_ladder_resolves_to_now(make_slot: MakeSlot) -> None:
    """By the file, by the store, by what runs; an endpoint elsewhere by the model it names."""
    slot = make_slot("listed")
    first = slot.listed("-and-remote")
    slot.move("v2")
    moved = slot.listed()[0]
    slot.run("v1")  # the move has switched, its engine has not taken the slot yet
    runs = slot.listed()[0]
    cached = slot.listed()[1]

    assert [(r["endpoint"], r["slot"], r["version"], r["can_be_asked"]) for r in first] == [
        ("listed", "listed", "v1", False),
        ("remote", None, "their-model", True),
    ]
    assert (moved["version"], moved["version_digest"]) == ("v2", DIGESTS["v2"])
    assert (runs["version"], runs["version_digest"]) == ("v1", DIGESTS["v1"])
    assert (cached["endpoint"], cached["version"]) == ("cache", None)
    ladders = slot.process.status()["ladders"]
    rung = next(ladder for ladder in ladders if ladder["name"] == "listed")["rungs"][0]
    assert (rung["version_name"], rung["version_digest"]) == ("v1", DIGESTS["v1"])


def test_a_front_that_was_up_before_the_move_plays_nothing_back_of_the_version_left(
    make_slot: MakeSlot, server_a: FaultServer
) -> None:
    """Up or down; after the rollback its own replies answer again, also as a stream."""
    slot = make_slot("kept")
    slot.run("v1")
    assert slot.ask().headers["x-failsoft-version"] == DIGESTS["v1"]
    slot.kill()
    assert slot.ask().headers["x-failsoft-rung"] == "cache"

    slot.move("v2")
    down = slot.ask()
    slot.run("v2")
    server_a.plan(default={"do": "status", "status": 500})
    up = slot.ask()
    slot.kill()
    slot.move("v1", MoveKind.ROLLBACK)
    back = slot.ask(stream=True)

    assert (down.status_code, up.status_code) == (503, 503)
    assert back.headers["x-failsoft-rung"] == "cache"
    assert back.headers["x-failsoft-version"] == DIGESTS["v1"]


def test_metrics_tell_versions_apart(make_slot: MakeSlot) -> None:
    """Calls by their own, what has none by joining the rungs'."""
    slot = make_slot("counted")
    slot.run("v1")
    slot.ask()
    slot.kill()
    slot.move("v2")
    slot.run("v2")
    slot.ask()

    heads = [DIGESTS[name][:12] for name in ("v1", "v2")]
    for line in (
        'failsoft_calls_total{ladder="counted",outcome="ok",version="%s"}',
        'failsoft_replies_total{ladder="counted",rung="counted",version="%s"}',
        'failsoft_attempts_total{ladder="counted",outcome="ok",rung="counted",version="%s"}',
        'failsoft_call_duration_seconds_count{ladder="counted",version="%s"}',
    ):
        assert wait_until(lambda line=line: slot.process.metric(line % heads[1]) == 1)  # type: ignore[misc]
        assert slot.process.metric(line % heads[0]) == 1
    info = (
        'failsoft_rung_info{endpoint="counted",ladder="counted",slot="counted",version="%s",'
        'version_digest="%s",version_name="v2"}'
    )
    assert slot.process.metric(info % (heads[1], DIGESTS["v2"])) == 1
    assert slot.process.metric(info % (heads[0], DIGESTS["v1"])) is None


def test_each_part_of_a_reply_names_its_version(make_slot: MakeSlot) -> None:
    """Header, body and every chunk of a stream, live and kept; one engine's metrics too."""
    slot = make_slot("said")
    served = make_served(name="v1", version_digest=DIGESTS["v1"])
    with running(FakeEngine(lambda request: answer("Hello.")), served) as engine:
        slot.url = f"{engine.url}/v1"
        slot.run("v1")
        replies = [slot.ask(), slot.ask(stream=True)]
        metrics = engine.get("/metrics").text
    slot.kill()
    replies += [slot.ask(), slot.ask(stream=True)]

    assert [reply.headers["x-failsoft-rung"] for reply in replies] == [
        *["said"] * 2,
        *["cache"] * 2,
    ]
    assert {reply.headers["x-failsoft-version"] for reply in replies} == {DIGESTS["v1"]}
    whole = [replies[0].json(), replies[2].json()]
    chunks = [
        chunk
        for reply in (replies[1], replies[3])
        for chunk in events_of(reply.text)
        if chunk != "[DONE]"
    ]
    assert {body["system_fingerprint"] for body in whole} == {DIGESTS["v1"][:16]}
    assert all(f'"system_fingerprint":"{DIGESTS["v1"][:16]}"' in chunk for chunk in chunks)
    assert (
        f'failsoft_version_info{{model_name="v1",version="{DIGESTS["v1"][:12]}",'
        f'version_digest="{DIGESTS["v1"]}"}} 1.0'
    ) in metrics


def test_metrics_say_which_pins_are_not_what_the_file_says(make_slot: MakeSlot) -> None:
    """Of the file as it is now, not of the copy that the front may run by; 1, 0, or no line."""
    slot = make_slot("unlike")
    slot.settings = with_absolute_paths(slot.settings, base=slot.process.file.parent)
    line, text = 'failsoft_pin_differs_from_file{slot="unlike"}', slot.process.file.read_text()

    try:
        first = slot.process.metric(line)
        slot.move("v2")
        moved = slot.process.metric(line)
        slot.process.file.write_text(text.replace('unlike = "v1"', 'unlike = "v2"'))
        written = slot.process.metric(line)
        slot.process.file.write_text("[pins")
        broken = slot.process.metric(line)
    finally:
        slot.process.file.write_text(text)

    assert (first, moved, written, broken) == (0, 1, 0, None)
