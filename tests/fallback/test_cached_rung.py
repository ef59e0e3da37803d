"""When an earlier reply may stand for a new one."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from failsoft.config.settings import CacheConfig, StoreConfig
from failsoft.errors import CallRefusedError, LadderExhaustedError
from failsoft.fallback.reply import Reply
from failsoft.fallback.surroundings import Surroundings
from tests.fallback.fake_time import FakeTime
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import ASK, Rig, make_rig, settings_for

TTL = CacheConfig(ttl_s=300.0, stale_if_error_s=1000.0)
DOWN = {"do": "status", "status": 503}
WALL_S = 1_800_000_000.0


class Scene:
    """One model, a cache behind it, and a wall clock to turn."""

    def __init__(self, server: FaultServer, *rungs: str, cache: CacheConfig = TTL) -> None:
        self.server = server
        self.wall = FakeTime(WALL_S)
        names = rungs or ("a", "cache")
        settings = settings_for(
            *[(n, server.url) if n != "cache" else n for n in names], cache=cache
        )
        self.rig = make_rig(settings, surroundings=Surroundings(wall=self.wall))

    def play(self, act: Callable[["Scene"], Any]) -> Any:
        """Run *act* with the client open."""

        async def run() -> Any:
            async with self.rig.client:
                return await act(self)

        return asyncio.run(run())

    async def ask(self, **arguments: Any) -> Reply:
        """Ask once."""
        return await self.rig.client.chat(ASK, **arguments)


def test_a_stale_reply_beats_none(server_a: FaultServer) -> None:
    """All models down, the entry is ttl + 10 s old: served, marked with its age."""

    async def act(scene: Scene) -> tuple[Reply, Reply]:
        await scene.ask()
        scene.wall.advance(310)
        server_a.plan(default=DOWN)
        stale = await scene.ask()
        server_a.plan()
        return stale, await scene.ask()

    scene = Scene(server_a)
    stale, fresh = scene.play(act)

    assert (stale.text, stale.rung, stale.rung_index) == ("A0 A1 A2 ", "cache", 1)
    assert stale.is_stale
    assert stale.age_s == pytest.approx(310)
    assert [a.outcome for a in stale.attempts] == ["http_status", "ok"]
    assert (fresh.rung, fresh.age_s, fresh.is_stale) == ("a", None, False)
    call = scene.rig.recorder.records.calls[1]
    assert (call.served_endpoint, call.is_stale, call.age_s) == ("cache", True, 310)


def test_within_its_ttl_it_is_not_stale(server_a: FaultServer) -> None:
    """Behind the models it still answers only what they could not."""

    async def act(scene: Scene) -> Reply:
        await scene.ask(temperature=1.3)
        assert (await scene.ask(temperature=1.3)).rung == "a"
        scene.wall.advance(200)
        server_a.plan(default=DOWN)
        return await scene.ask(temperature=1.3)

    reply = Scene(server_a).play(act)

    assert (reply.rung, reply.is_stale, reply.age_s) == ("cache", False, 200)


def test_past_its_window_there_is_no_answer(server_a: FaultServer) -> None:
    """An honest error, with the reason in the ledger."""

    async def act(scene: Scene) -> None:
        await scene.ask()
        scene.wall.advance(1301)
        server_a.plan(default=DOWN)
        with pytest.raises(LadderExhaustedError):
            await scene.ask()

    scene = Scene(server_a)
    scene.play(act)

    assert scene.rig.ledger[-1] == "cache cache_expired"


def test_a_callers_fault_is_never_answered_from_the_cache(server_a: FaultServer) -> None:
    """400 stays 400."""

    async def act(scene: Scene) -> None:
        await scene.ask()
        server_a.plan(default={"do": "status", "status": 400})
        with pytest.raises(CallRefusedError):
            await scene.ask()

    Scene(server_a).play(act)


@pytest.mark.parametrize(
    "arguments",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"cache": "off"},
        {"tenant": "other"},
        {"seed": 2},
        {"n_of_tomorrow": 1},
    ],
)
def test_another_call_gets_no_reply_of_this_one(
    server_a: FaultServer, arguments: dict[str, Any]
) -> None:
    """Tools, an opt-out, another tenant, any other field."""

    async def act(scene: Scene) -> None:
        await scene.ask()
        server_a.plan(default=DOWN)
        with pytest.raises(LadderExhaustedError):
            await scene.ask(**arguments)

    Scene(server_a).play(act)


@pytest.mark.parametrize(
    ("fault", "arguments"),
    [
        ({"do": "ok", "finish": "length"}, {}),
        ({"do": "ok_tools"}, {}),
        ("ok", {"cache": "off"}),
        ("ok", {"tools": [{"type": "function"}]}),
    ],
)
def test_only_complete_plain_replies_are_kept(
    server_a: FaultServer, fault: Any, arguments: dict[str, Any]
) -> None:
    """Ended by stop, with text, without tools."""
    server_a.plan(default=fault)

    async def act(scene: Scene) -> int:
        await scene.ask(**arguments)
        return scene.rig.replies.size().num_replies

    assert Scene(server_a).play(act) == 0


def test_match_messages_ignores_sampling(server_a: FaultServer) -> None:
    """The ladder says so; the messages still decide."""

    async def act(scene: Scene) -> Reply:
        await scene.ask(temperature=0.2, seed=1)
        server_a.plan(default=DOWN)
        with pytest.raises(LadderExhaustedError):
            await scene.rig.client.chat([{"role": "user", "content": "else"}])
        return await scene.ask(temperature=0.9, seed=2)

    scene = Scene(server_a, cache=replace(TTL, match="messages"))

    assert scene.play(act).rung == "cache"


def test_placed_first_it_saves_calls_at_temperature_zero(server_a: FaultServer) -> None:
    """Fresh ones only: a stale reply is for errors."""

    async def act(scene: Scene) -> list[str]:
        rungs = [(await scene.ask(temperature=0)).rung for _ in range(2)]
        scene.wall.advance(301)
        rungs.append((await scene.ask(temperature=0)).rung)
        return rungs

    scene = Scene(server_a, "cache", "a")

    assert scene.play(act) == ["a", "cache", "a"]
    assert server_a.hits == 2


@pytest.mark.parametrize(
    ("sampled_first", "arguments", "rung"),
    [(False, {}, "a"), (False, {"temperature": 0.7}, "a"), (True, {"temperature": 0.7}, "cache")],
)
def test_placed_first_it_answers_sampled_calls_only_when_opted_in(
    server_a: FaultServer, sampled_first: bool, arguments: dict[str, Any], rung: str
) -> None:
    """A caller who samples wants another answer each time; OpenAI's default is 1."""

    async def act(scene: Scene) -> str:
        await scene.ask(**arguments)
        return (await scene.ask(**arguments)).rung

    scene = Scene(server_a, "cache", "a", cache=replace(TTL, sampled_first=sampled_first))

    assert scene.play(act) == rung


def test_refresh_asks_the_models_and_keeps_what_they_say(server_a: FaultServer) -> None:
    """The kept reply is replaced, not read."""

    async def act(scene: Scene) -> list[str]:
        await scene.ask(temperature=0)
        server_a.plan(default={"do": "ok", "tokens": 1})
        refreshed = await scene.ask(temperature=0, cache="refresh")
        again = await scene.ask(temperature=0)
        return [refreshed.rung, refreshed.text, again.rung, again.text]

    scene = Scene(server_a, "cache", "a")

    assert scene.play(act) == ["a", "A0 ", "cache", "A0 "]


def test_a_reply_of_a_smaller_model_never_hides_the_first_one(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """First in the ladder the cache gives only what the first model said; last, the best kept."""
    rig = make_rig(settings_for("cache", ("a", server_a.url), ("b", server_b.url)))

    async def run() -> list[str]:
        async with rig.client as client:
            server_a.plan(DOWN)
            small = await client.chat(ASK, temperature=0)
            second = await client.chat(ASK, temperature=0)
            third = await client.chat(ASK, temperature=0)
            return [small.rung, second.rung, third.rung]

    assert asyncio.run(run()) == ["b", "a", "cache"]


def test_a_kept_reply_is_streamed_like_a_live_one(server_a: FaultServer) -> None:
    """Role, text, end."""

    async def act(scene: Scene) -> tuple[str, Reply]:
        await scene.ask()
        server_a.plan(default=DOWN)
        stream = scene.rig.client.stream(ASK)
        return "".join([delta async for delta in stream]), stream.reply

    text, reply = Scene(server_a).play(act)

    assert text == "A0 A1 A2 "
    assert reply.rung == "cache"


def test_without_kept_text_there_is_no_cached_rung(server_a: FaultServer) -> None:
    """The one setting that says what user text is kept."""
    settings = replace(
        settings_for(("a", server_a.url), "cache"), store=StoreConfig(keep_text="none")
    )
    rig: Rig = make_rig(settings)

    async def run() -> None:
        async with rig.client as client:
            await client.chat(ASK)
            server_a.plan(default=DOWN)
            with pytest.raises(LadderExhaustedError):
                await client.chat(ASK)

    asyncio.run(run())

    assert rig.replies.size().num_replies == 0
    assert rig.ledger == ["a ok", "a http_status"]
