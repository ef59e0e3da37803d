"""What is an answer and what only looks like one: bodies and streams from real sockets."""

import asyncio

import pytest

from failsoft.fallback.reply import Reply
from failsoft.fallback.request_face import Prompt
from tests.fallback.fault_server import Fault, FaultServer
from tests.fallback.faults import EMPTY, ERROR, ROLE, STOP, sse, tool_call, whole
from tests.fallback.rig import ASK, PRICE, ask, make_rig, settings_for

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
    "deep-json-event": sse("[" * 100_000),
    "deep-json-body": whole("[" * 100_000),
    "finish-reason-that-is-a-list": sse(
        {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": ["stop"]}]}
    ),
    "tool-index-that-is-a-list": sse(tool_call({"index": [0], "function": {"name": "f"}})),
    "tool-index-that-is-a-word": sse(
        tool_call({"index": "x", "function": {"name": "f"}}),
        tool_call({"index": 0, "function": {"name": "g"}}),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ),
    "tool-name-that-is-a-number": sse(tool_call({"index": 0, "function": {"name": 5}})),
    "tool-arguments-that-are-an-object": sse(
        tool_call({"index": 0, "function": {"name": "f", "arguments": {"a": 1}}})
    ),
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


@pytest.mark.parametrize("prompts", [["p", "q"], ("p", "q"), [[1, 2], [3]]])
def test_completions_climb_the_same_ladder(
    server_a: FaultServer, server_b: FaultServer, prompts: Prompt
) -> None:
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
            return await client.complete(prompts, max_tokens=3)

    reply = asyncio.run(run())

    assert rig.ledger == ["a cut", "b ok"]
    assert [c["text"] for c in reply.body["choices"]] == ["one", "two"]
    assert (reply.text, reply.message, reply.tool_calls) == ("one", None, [])
    assert server_b.stats()["requests"][0]["body"]["prompt"] == list(prompts)


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


HI: Fault = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10**400, "completion_tokens": 3},
        {"prompt_tokens": "x", "completion_tokens": 10**400, "prompt_tokens_details": ["y"]},
    ],
)
def test_nonsense_counts_cost_neither_the_reply_nor_its_row(
    server_a: FaultServer, usage: Fault
) -> None:
    """Live and out of the cache; a count of 400 digits used to lose both."""
    server_a.plan(default=sse(HI, {**EMPTY, "usage": usage}, "[DONE]"))
    rig = make_rig(settings_for(("a", server_a.url), "cache"))

    async def run() -> list[Reply]:
        async with rig.client as client:
            live = await client.chat(ASK)
            server_a.plan(default={"do": "status", "status": 503})
            return [live, await client.chat(ASK)]

    replies = asyncio.run(run())

    assert [reply.text for reply in replies] == ["hi", "hi"]
    assert [reply.usage.num_prompt_tokens for reply in replies] == [None, None]
    assert rig.ledger == ["a ok", "a http_status", "cache ok"]
    assert rig.recorder.records.calls[0].cost is None


def test_a_reply_without_a_token_costs_its_prompt(server_a: FaultServer) -> None:
    """0 output tokens are a count: the call used to cost 0."""
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "content_filter"}]}
    usage = {"prompt_tokens": 1000, "completion_tokens": 0}
    server_a.plan(default=sse(end, {**EMPTY, "usage": usage}, "[DONE]"))
    rig = make_rig(settings_for(("a", server_a.url)))

    reply = ask(rig)

    assert reply.cost == pytest.approx(1000 * PRICE.input_per_mtok / 1e6)
    assert reply.usage.num_output_tokens == 0
