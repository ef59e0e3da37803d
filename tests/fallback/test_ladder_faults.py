"""What becomes of each fault before any text: real sockets, real stalls."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from failsoft.config.settings import BreakerConfig, CacheConfig, RetryConfig, TimeoutConfig
from failsoft.errors import CallRefusedError, LadderExhaustedError
from failsoft.fallback.reply import Reply
from tests.fallback.fault_server import Fault, FaultServer
from tests.fallback.rig import (
    ASK,
    FAST,
    ONCE,
    TWICE,
    Rig,
    make_rig,
    refused_port,
    settings_for,
)

ROLE: Fault = {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]}
STOP: Fault = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
EMPTY: Fault = {"choices": []}
ERROR: Fault = {"error": {"message": "SECRET", "type": "server_error"}}
JSON_TYPE = "application/json"


def ask(rig: Rig, **arguments: Any) -> Reply:
    """Return one reply of *rig* and close it."""

    async def run() -> Reply:
        async with rig.client as client:
            return await client.chat(ASK, **arguments)

    return asyncio.run(run())


def whole(body: str, kind: str = JSON_TYPE) -> Fault:
    """Return the fault of a 200 with that body."""
    return {"do": "plain", "body": body, "type": kind}


def sse(*events: object) -> Fault:
    """Return the fault of a stream of those events."""
    return {"do": "events", "events": list(events)}


BAD_ANSWERS: dict[str, Fault] = {
    "html": whole("<html>busy</html>", "text/html"),
    "plain-text": whole("busy", "text/plain"),
    "error-body": whole('{"error": {"message": "SECRET", "type": "server_error"}}'),
    "error-string": whole('{"error": "SECRET"}'),
    "broken-json-body": whole('{"choices": ['),
    "empty-body": whole(""),
    "json-that-is-no-reply": whole("[1, 2]"),
    "no-choices": whole('{"id": "x"}'),
    "null-content": whole(
        '{"choices": [{"index": 0, "message": {"content": null}, "finish_reason": "stop"}]}'
    ),
    "garbage": {"do": "raw", "bytes": "\x00\x01 what is this\r\n\r\n"},
    "huge-header": {"do": "huge_header"},
    "short-body": {
        "do": "raw",
        "bytes": "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
    },
    "error-event-first": sse(ERROR),
    "error-event-after-role": sse(ROLE, ERROR),
    "broken-json-event": sse(ROLE, '{"choices": ['),
    "event-that-is-no-object": sse("[]"),
    "done-only": sse("[DONE]"),
    "role-then-done": sse(ROLE, "[DONE]"),
    "role-then-end": sse(ROLE),
    "empty-choices-then-done": sse(EMPTY, EMPTY, "[DONE]"),
    "stop-without-text": sse(ROLE, STOP, "[DONE]"),
    "finish-error": sse(
        {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "error"}]}, "[DONE]"
    ),
    "chatter-without-a-token": sse(*[ROLE] * 70),
    "204": {"do": "plain", "status": 204, "body": ""},
    "redirect": {"do": "plain", "status": 302, "body": ""},
}


@pytest.mark.parametrize("fault", BAD_ANSWERS.values(), ids=BAD_ANSWERS.keys())
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_bad_answer_before_any_text_is_rescued_by_the_next_rung(
    server_a: FaultServer, server_b: FaultServer, fault: Fault, is_stream: bool
) -> None:
    """Two leading gateways rescued 9 and 1 of 14 kinds; some became an empty success."""
    server_a.plan(default=fault)
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url)))

    async def run() -> tuple[str, Reply]:
        async with rig.client as client:
            if not is_stream:
                reply = await client.chat(ASK)
                return reply.text, reply
            stream = client.stream(ASK)
            return "".join([delta async for delta in stream]), stream.reply

    text, reply = asyncio.run(run())

    assert text == reply.text == "B0 B1 B2 "
    assert reply.rung == "b"
    assert server_a.hits == 1
    assert rig.recorder.records.attempts[0].was_sent
    assert "SECRET" not in str(rig.recorder.records)


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("reset", "reset"),
        ("close", "reset"),
        ({"do": "status", "status": 500}, "http_status"),
        ({"do": "status", "status": 529}, "http_status"),
        ({"do": "status", "status": 429}, "throttled"),
        ({"do": "cut", "tokens": 0}, "cut"),
    ],
)
def test_passing_trouble_is_retried_on_the_same_rung(
    server_a: FaultServer, server_b: FaultServer, fault: Fault | str, outcome: str
) -> None:
    """The better model answers after one retry."""
    server_a.plan(fault)
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), retry=TWICE))

    reply = ask(rig)

    assert reply.text == "A0 A1 A2 "
    assert rig.sent == [f"a {outcome}", "a ok"]
    assert (server_a.hits, server_b.hits) == (2, 0)


def test_a_refused_connection_is_retried_and_never_counts_as_sent(server_b: FaultServer) -> None:
    """The wire saw nothing, and the ledger says so."""
    with refused_port() as port:
        settings = settings_for(
            ("a", f"http://127.0.0.1:{port}/v1"), ("b", server_b.url), retry=TWICE
        )
        rig = make_rig(settings)

        reply = ask(rig)

    assert reply.text == "B0 B1 B2 "
    assert rig.ledger == ["a connect_failed", "a connect_failed", "b ok"]
    assert rig.sent == ["b ok"]


@pytest.mark.parametrize("status", [401, 402, 403, 404, 410])
def test_a_key_or_model_problem_goes_to_the_next_rung_at_once(
    server_a: FaultServer, server_b: FaultServer, status: int
) -> None:
    """Our trouble, not the caller's: no wait, no second try."""
    server_a.plan(default={"do": "status", "status": status})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), retry=TWICE))

    reply = ask(rig)

    assert reply.rung == "b"
    assert server_a.hits == 1


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_callers_fault_goes_nowhere_else(
    server_a: FaultServer, server_b: FaultServer, status: int
) -> None:
    """A leading gateway sends a 400 to the fallback too."""
    server_a.plan(default={"do": "status", "status": status, "code": "bad_thing"})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), "cache", retry=TWICE))

    with pytest.raises(CallRefusedError) as caught:
        ask(rig)

    assert (caught.value.status, caught.value.code) == (status, "bad_thing")
    assert caught.value.body is not None
    assert "SECRET" not in str(caught.value)
    assert (server_a.hits, server_b.hits) == (1, 0)
    assert rig.recorder.records.calls[0].outcome == "rejected"


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [(429, "insufficient_quota", "quota"), (503, "queue_full", "queue_full")],
)
def test_spent_quota_and_a_full_queue_step_down_without_retry(
    server_a: FaultServer, server_b: FaultServer, status: int, code: str, outcome: str
) -> None:
    """Waiting helps neither, and neither is illness: the breaker stays closed."""
    server_a.plan(default={"do": "status", "status": status, "code": code})
    breaker = BreakerConfig(min_calls=2)
    rig = make_rig(
        settings_for(("a", server_a.url), ("b", server_b.url), retry=TWICE, breaker=breaker)
    )

    async def run() -> None:
        async with rig.client as client:
            for _ in range(4):
                assert (await client.chat(ASK)).rung == "b"

    asyncio.run(run())

    assert server_a.hits == 4
    assert rig.ledger == [f"a {outcome}", "b ok"] * 4


def test_wire_count_is_attempts_on_each_rung(
    server_a: FaultServer, server_b: FaultServer, record_property: Callable[[str, object], None]
) -> None:
    """Always 503, 3 attempts, 2 models, and traffic that earned the budget: exactly 3 + 3."""
    retry = RetryConfig(attempts=3, base_s=0.002, cap_s=0.01)
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), retry=retry))

    async def run() -> None:
        async with rig.client as client:
            for _ in range(60):
                await client.chat(ASK)
            server_a.plan(default={"do": "status", "status": 503})
            server_b.plan(default={"do": "status", "status": 503})
            with pytest.raises(LadderExhaustedError) as caught:
                await client.chat(ASK)
            assert caught.value.status == 503
            assert len(caught.value.attempts) == 6

    asyncio.run(run())

    record_property("upstream calls", f"{server_a.hits}+{server_b.hits}")
    assert (server_a.hits, server_b.hits) == (3, 3)


def test_wire_count_is_less_when_the_budget_says_so(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """A lone call has a floor of 3 extra calls: two above, what is left on the last rung."""
    retry = RetryConfig(attempts=3, base_s=0.002, cap_s=0.01)
    server_a.plan(default={"do": "status", "status": 503})
    server_b.plan(default={"do": "status", "status": 503})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), retry=retry))

    with pytest.raises(LadderExhaustedError):
        ask(rig)

    assert (server_a.hits, server_b.hits) == (3, 2)
    assert rig.ledger[-1] == "b skipped_budget"


STALLS: list[tuple[str, Fault | str]] = [
    ("accepts-no-bytes", "no_read"),
    ("no-head", {"do": "stall", "at": "silence"}),
    ("headers-only", {"do": "stall", "at": "headers"}),
    ("role-then-silence", {"do": "stall", "at": "role"}),
    ("comments-only", {"do": "stall", "at": "comments"}),
]


@pytest.mark.parametrize(("fault"), [f for _, f in STALLS], ids=[n for n, _ in STALLS])
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_stall_ends_at_its_clock_and_the_next_rung_answers(
    server_a: FaultServer, server_b: FaultServer, fault: Fault | str, is_stream: bool
) -> None:
    """Within 10 % of the first-token clock, and the connection is closed at the endpoint."""
    timeouts = TimeoutConfig(connect_s=0.5, first_token_s=0.5, gap_s=0.3)
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), timeouts=timeouts))
    # The first rung needs a connection that is not open yet to be told to read nothing.
    server_a.plan(fault)

    async def run() -> tuple[str, float]:
        async with rig.client as client:
            began_s = time.monotonic()
            if not is_stream:
                text = (await client.chat(ASK)).text
            else:
                text = "".join([delta async for delta in client.stream(ASK)])
            return text, time.monotonic() - began_s

    text, took_s = asyncio.run(run())

    assert text == "B0 B1 B2 "
    first = rig.recorder.records.attempts[0]
    assert first.outcome == "timeout_first_token"
    assert 0.45 <= first.total_s <= 0.55
    assert took_s < 0.7
    assert server_a.wait_closed(1) is not None


def test_one_token_then_silence_ends_at_the_gap_clock(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """A caller who wants the whole has seen nothing yet, so the next rung may answer."""
    server_a.plan({"do": "stall", "at": "token"})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url)))

    reply = ask(rig)

    assert reply.text == "B0 B1 B2 "
    first = rig.recorder.records.attempts[0]
    assert first.outcome == "timeout_gap"
    assert first.num_output_tokens == 1
    assert FAST.gap_s * 0.9 <= first.total_s - (first.ttft_s or 0) <= FAST.gap_s * 1.2
    assert server_a.wait_closed(1) is not None


def test_retry_after_is_obeyed_within_the_deadline(server_a: FaultServer) -> None:
    """Not asked again before it said."""
    server_a.plan({"do": "status", "status": 429, "headers": {"retry-after-ms": "300"}})
    retry = RetryConfig(attempts=2, base_s=0.01, cap_s=1.0)
    rig = make_rig(settings_for(("a", server_a.url), retry=retry))

    began_s = time.monotonic()
    reply = ask(rig)

    assert reply.rung == "a"
    assert 0.3 <= time.monotonic() - began_s < 0.6


@pytest.mark.parametrize("wait", ["30", "2"])
def test_retry_after_beyond_reach_steps_down_at_once(
    server_a: FaultServer, server_b: FaultServer, wait: str
) -> None:
    """A leading gateway sleeps 30 s past a healthy fallback."""
    server_a.plan(default={"do": "status", "status": 429, "headers": {"retry-after": wait}})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), retry=TWICE))

    began_s = time.monotonic()
    reply = ask(rig)

    assert reply.rung == "b"
    assert time.monotonic() - began_s < 0.3
    assert server_a.hits == 1


def test_x_should_retry_false_is_believed(server_a: FaultServer, server_b: FaultServer) -> None:
    """The failure will repeat, says the endpoint."""
    no = {"x-should-retry": "false"}
    server_a.plan(default={"do": "status", "status": 503, "headers": no})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), retry=TWICE))

    assert ask(rig).rung == "b"
    assert server_a.hits == 1


def test_the_last_answer_carries_every_cause_and_no_users_text(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """Honest, and fit for a log."""
    server_a.plan(default={"do": "status", "status": 500})
    server_b.plan(default={"do": "status", "status": 429, "headers": {"retry-after": "60"}})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), "cache"))

    with pytest.raises(LadderExhaustedError) as caught:
        ask(rig)

    error = caught.value
    assert [getattr(a, "outcome", None) for a in error.attempts] == [
        "http_status",
        "throttled",
        "cache_miss",
    ]
    assert (error.status, error.retry_after_s) == (503, 60.0)
    assert "SECRET" not in str(error)
    assert "a: http_status 500" in str(error)


def test_429_from_everybody_is_a_429(server_a: FaultServer, server_b: FaultServer) -> None:
    """The caller's rate, not our room."""
    server_a.plan(default={"do": "status", "status": 429})
    server_b.plan(default={"do": "status", "status": 429})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url)))

    with pytest.raises(LadderExhaustedError) as caught:
        ask(rig)

    assert caught.value.status == 429


def test_a_deadline_over_everything_is_kept(server_a: FaultServer, server_b: FaultServer) -> None:
    """Both rungs hang; the caller hears of it at the deadline, not after the sum of clocks."""
    server_a.plan(default="stall")
    server_b.plan(default="stall")
    timeouts = TimeoutConfig(connect_s=1, first_token_s=10, gap_s=5)
    settings = settings_for(
        ("a", server_a.url), ("b", server_b.url), "cache", retry=TWICE, timeouts=timeouts
    )
    rig = make_rig(settings)

    async def run() -> float:
        async with rig.client as client:
            began_s = time.monotonic()
            with pytest.raises(LadderExhaustedError) as caught:
                await client.chat(ASK, deadline_s=0.6)
            assert caught.value.status == 504
            return time.monotonic() - began_s

    took_s = asyncio.run(run())

    assert took_s < 0.7
    assert (server_a.hits, server_b.hits) == (1, 1)
    assert rig.recorder.records.calls[0].outcome == "deadline"


def test_the_remaining_deadline_travels_to_each_endpoint(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """Our engine drops work nobody waits for any more."""
    server_a.plan(default={"do": "status", "status": 404})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url)))

    ask(rig, deadline_s=2.0)

    first = int(server_a.stats()["requests"][0]["headers"]["x-failsoft-deadline-ms"])
    second = int(server_b.stats()["requests"][0]["headers"]["x-failsoft-deadline-ms"])
    assert 1500 < second <= first <= 2000


def test_an_endpoint_that_ignores_stream_is_read_all_the_same(server_a: FaultServer) -> None:
    """It is an answer; streamed to the caller in one piece."""
    server_a.plan(default="ok_whole")
    rig = make_rig(settings_for(("a", server_a.url)))

    async def run() -> tuple[str, str, Reply]:
        async with rig.client as client:
            stream = client.stream(ASK)
            streamed = "".join([delta async for delta in stream])
            return (await client.chat(ASK)).text, streamed, stream.reply

    text, streamed, reply = asyncio.run(run())

    assert text == streamed == "A0 A1 A2 "
    assert reply.usage.num_prompt_tokens == 7


def test_a_model_that_ends_at_once_is_believed_when_it_says_so(server_a: FaultServer) -> None:
    """Zero text under ``stop`` with one token sampled is a reply, not a fault."""
    done = {**EMPTY, "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}}
    server_a.plan(default=sse(ROLE, STOP, done, "[DONE]"))
    rig = make_rig(settings_for(("a", server_a.url), "cache"))

    reply = ask(rig)

    assert (reply.text, reply.finish_reason) == ("", "stop")
    assert rig.replies.size().num_replies == 0


def test_a_finished_reply_without_an_end_is_whole(server_a: FaultServer) -> None:
    """Every finish reason is there; a missing [DONE] takes nothing away."""
    text = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}
    server_a.plan(default=sse(text))
    rig = make_rig(settings_for(("a", server_a.url)))

    assert ask(rig).text == "hi"


def test_tool_calls_come_back_whole(server_a: FaultServer) -> None:
    """Arguments in pieces, one call."""
    server_a.plan(default="ok_tools")
    rig = make_rig(settings_for(("a", server_a.url)))

    reply = ask(rig, tools=[{"type": "function", "function": {"name": "f"}}])

    assert reply.finish_reason == "tool_calls"
    assert reply.tool_calls == [
        {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    ]
    assert reply.message is not None
    assert reply.message["content"] is None


def test_fallback_off_asks_the_first_model_alone(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """For a caller who would rather have an error than another model."""
    server_a.plan(default={"do": "status", "status": 500})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), "cache", retry=TWICE))

    with pytest.raises(LadderExhaustedError):
        ask(rig, fallback=False)

    assert (server_a.hits, server_b.hits) == (2, 0)


@pytest.mark.parametrize(
    ("endpoint", "extra", "outcome"),
    [
        ({"context_tokens": 20}, {"max_tokens": 100}, "skipped_context"),
        ({"tools": False}, {"tools": [{"type": "function"}]}, "skipped_capability"),
        (
            {"json_schema": False},
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            "skipped_capability",
        ),
    ],
)
def test_a_rung_that_cannot_take_the_request_is_not_asked(
    server_a: FaultServer,
    server_b: FaultServer,
    endpoint: dict[str, Any],
    extra: dict[str, Any],
    outcome: str,
) -> None:
    """The smaller model may have a shorter window, or no JSON schema."""
    settings = settings_for(("a", server_a.url), ("b", server_b.url))
    small = replace(settings.endpoints["a"], **endpoint)
    rig = make_rig(replace(settings, endpoints={**settings.endpoints, "a": small}))

    assert ask(rig, **extra).rung == "b"

    assert server_a.hits == 0
    assert rig.ledger == [f"a {outcome}", "b ok"]


def test_too_long_for_a_smaller_rung_is_not_the_callers_fault(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """The first model would have taken it; its outage must not become a 400."""
    server_a.plan(default={"do": "status", "status": 500})
    server_b.plan(default={"do": "status", "status": 400, "code": "context_length_exceeded"})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url)))

    with pytest.raises(LadderExhaustedError):
        ask(rig)


def test_an_endpoints_context_is_learnt_beside_the_calls(server_a: FaultServer) -> None:
    """From its own list of models, after its first answer."""
    rig = make_rig(settings_for(("a", server_a.url)))

    async def run() -> None:
        async with rig.client as client:
            await client.chat(ASK)
            endpoint = client.ladders["chat"].models[0].endpoint
            for _ in range(100):
                if endpoint.context_tokens is not None:
                    break
                await asyncio.sleep(0.01)
            assert endpoint.context_tokens == 2048
            await client.chat(ASK, max_tokens=5000, fallback=False)

    asyncio.run(run())

    assert rig.ledger == ["a ok", "a skipped_context", "a ok"]


def test_a_cache_that_cannot_help_says_why(server_a: FaultServer) -> None:
    """Opted out: the rung is in the ledger, with its reason."""
    server_a.plan(default={"do": "status", "status": 500})
    rig = make_rig(settings_for(("a", server_a.url), "cache", cache=CacheConfig(), retry=ONCE))

    with pytest.raises(LadderExhaustedError):
        ask(rig, cache="off")

    assert rig.ledger == ["a http_status", "cache cache_not_allowed"]


def test_completions_climb_the_same_ladder(server_a: FaultServer, server_b: FaultServer) -> None:
    """Two prompts, two choices; each needs its end."""
    server_a.plan(
        default=sse({"choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]}, "[DONE]")
    )
    server_b.plan(
        default=sse(
            {"choices": [{"index": 1, "text": "two", "finish_reason": "length"}]},
            {"choices": [{"index": 0, "text": "one", "finish_reason": "stop"}]},
            "[DONE]",
        )
    )
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url)))

    async def run() -> Reply:
        async with rig.client as client:
            return await client.complete(["p", "q"], max_tokens=3)

    reply = asyncio.run(run())

    assert rig.ledger == ["a cut", "b ok"]
    assert [c["text"] for c in reply.body["choices"]] == ["one", "two"]
    assert (reply.text, reply.message, reply.tool_calls) == ("one", None, [])
    assert server_b.stats()["requests"][0]["body"]["prompt"] == ["p", "q"]


def test_best_of_is_not_streamed(server_a: FaultServer) -> None:
    """The best of several is only known at their end: endpoints refuse to stream it."""
    text = '{"choices": [{"index": 0, "text": "hi", "finish_reason": "stop"}]}'
    server_a.plan(default=whole(text))
    rig = make_rig(settings_for(("a", server_a.url)))

    async def run() -> Reply:
        async with rig.client as client:
            return await client.complete("p", best_of=2)

    assert asyncio.run(run()).text == "hi"
    body = server_a.stats()["requests"][0]["body"]
    assert "stream" not in body
    assert "stream_options" not in body


def test_a_call_too_long_for_every_rung_is_refused_by_the_roomiest_one(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """It is the caller's fault and no outage; and where the estimate was high, it is answered."""
    settings = settings_for(("a", server_a.url), ("b", server_b.url))
    endpoints = {
        name: replace(endpoint, context_tokens=tokens)
        for (name, endpoint), tokens in zip(settings.endpoints.items(), (200, 400), strict=True)
    }
    rig = make_rig(replace(settings, endpoints=endpoints))
    long = [{"role": "user", "content": " " * 6000}]

    async def run() -> str:
        async with rig.client as client:
            answered = (await client.chat(long)).rung
            server_b.plan({"do": "status", "status": 400, "code": "context_length_exceeded"})
            with pytest.raises(CallRefusedError):
                await client.chat(long)
            return answered

    assert asyncio.run(run()) == "b"
    assert server_a.hits == 0
