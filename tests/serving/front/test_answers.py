"""What a caller gets: replies, streams, and what their headers say."""

import json
from typing import Any

import pytest

from tests.fallback.fault_server import Fault, FaultServer
from tests.serving.front.rig import FrontProcess, text_of

WHOLE = "A0 A1 A2 "
COMPLETIONS = "/completions"


def words(text: str) -> list[dict[str, Any]]:
    """Messages that nobody else asks."""
    return [{"role": "user", "content": text}]


def test_a_whole_reply_says_where_it_comes_from(shared: FrontProcess) -> None:
    """Rung, attempts and the call's id; no age, for it is live."""
    reply = shared.post()

    assert reply.status_code == 200
    assert reply.json()["choices"][0]["message"]["content"] == WHOLE
    assert reply.headers["x-failsoft-rung"] == "a"
    assert reply.headers["x-failsoft-attempts"] == "1"
    assert reply.headers["x-request-id"].startswith("call_")
    assert "x-failsoft-age-s" not in reply.headers


def test_a_stream_is_the_endpoints_own_chunks(shared: FrontProcess, server_a: FaultServer) -> None:
    """Byte for byte, but for the usage that the caller did not ask for."""
    reply, events = shared.stream()

    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["x-failsoft-rung"] == "a"
    assert text_of(events) == WHOLE
    assert events[-1] == "[DONE]"
    assert events[1].startswith('{"id": "c1", "object"')  # with the spaces it was sent with
    assert all(json.loads(event)["choices"] for event in events[:-1])


def test_usage_comes_when_it_is_asked_for(shared: FrontProcess) -> None:
    """In a chunk of its own before the end."""
    _, events = shared.stream(stream_options={"include_usage": True})

    assert json.loads(events[-2])["usage"]["completion_tokens"] == 3


def test_a_chunk_that_some_clients_would_split_is_written_anew(
    shared: FrontProcess, server_a: FaultServer
) -> None:
    """Python's ``splitlines`` breaks at U+2028, so it goes out escaped."""
    raw = '{"choices": [{"index": 0, "delta": {"content": "a\u2028é"}, "finish_reason": "stop"}]}'
    server_a.plan({"do": "events", "events": [raw, "[DONE]"]})

    reply, events = shared.stream()

    assert "\\u2028" in reply.text
    assert text_of(events) == "a\u2028é"


def test_the_version_of_our_engine_is_named(shared: FrontProcess, server_a: FaultServer) -> None:
    """As its own reply says it, whole or streamed."""
    server_a.plan(default={"do": "ok", "version": "ab" * 32})

    whole, (streamed, _) = shared.post(), shared.stream()

    assert whole.headers["x-failsoft-version"] == "ab" * 32
    assert streamed.headers["x-failsoft-version"] == "ab" * 32


def test_a_step_down_shows_in_the_headers(shared: FrontProcess, server_a: FaultServer) -> None:
    """Two attempts were sent; whole or streamed."""
    server_a.plan(default={"do": "status", "status": 500})

    whole, (streamed, events) = shared.post(), shared.stream()

    for reply in (whole, streamed):
        assert reply.headers["x-failsoft-rung"] == "b"
        assert reply.headers["x-failsoft-attempts"] == "2"
    assert text_of(events) == "B0 B1 B2 "


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_kept_reply_says_its_age(
    shared: FrontProcess, server_a: FaultServer, server_b: FaultServer, is_stream: bool
) -> None:
    """Every model is down; the words are those of before."""
    body: dict[str, Any] = {"messages": words(f"kept {is_stream}"), "stream": is_stream}
    shared.post(**body)
    for server in (server_a, server_b):
        server.plan(default={"do": "status", "status": 500})

    reply = shared.post(**body)

    assert reply.status_code == 200
    assert reply.headers["x-failsoft-rung"] == "cache"
    assert reply.headers["x-failsoft-attempts"] == "2"
    assert 0 <= float(reply.headers["x-failsoft-age-s"]) < 60
    assert "x-failsoft-stale" not in reply.headers
    assert "A0" in reply.text


def test_completions_take_the_same_way(shared: FrontProcess, server_a: FaultServer) -> None:
    """The prompt goes on as it came, and so does a field that nobody here knows."""
    head = {"id": "c", "object": "text_completion", "created": 1, "model": "m"}
    chunk = {**head, "choices": [{"index": 0, "text": "hi", "finish_reason": "stop"}]}
    server_a.plan({"do": "events", "events": [chunk, "[DONE]"]})

    reply = shared.post(COMPLETIONS, prompt="say hi", vendor_field={"x": 1}, messages=None)

    assert reply.json()["choices"][0]["text"] == "hi"
    sent = server_a.stats()["requests"][0]["body"]
    assert sent["prompt"] == "say hi"
    assert sent["vendor_field"] == {"x": 1}
    assert sent["model"] == "m"


def test_headers_travel_into_the_call(shared: FrontProcess, server_a: FaultServer) -> None:
    """Deadline and fallback: the endpoint hears of the first, nobody else is asked."""
    server_a.plan(default={"do": "status", "status": 500})
    headers = {"x-failsoft-deadline-ms": "1500", "x-failsoft-fallback": "off"}

    reply = shared.post(headers=headers)

    assert reply.status_code == 503
    assert reply.headers["x-failsoft-attempts"] == "1"
    sent = server_a.stats()["requests"][0]["headers"]
    assert 1000 < int(sent["x-failsoft-deadline-ms"]) <= 1500
    assert sent["x-request-id"].startswith(reply.headers["x-request-id"])


def test_a_reply_is_kept_only_where_the_caller_lets_it(
    shared: FrontProcess, server_a: FaultServer, server_b: FaultServer
) -> None:
    """``x-failsoft-cache: off`` neither reads nor keeps."""
    off = {"x-failsoft-cache": "off"}
    shared.post(messages=words("private"), headers=off)
    for server in (server_a, server_b):
        server.plan(default={"do": "status", "status": 500})

    assert shared.post(messages=words("private")).status_code == 503


def test_an_idempotency_key_plays_the_reply_back(
    shared: FrontProcess, server_a: FaultServer
) -> None:
    """Nobody is asked twice; another body under the key is refused."""
    key = {"idempotency-key": "k1"}
    first = shared.post(messages=words("once"), headers=key)
    server_a.plan()

    second = shared.post(messages=words("once"), headers=key)
    other = shared.post(messages=words("twice"), headers=key)

    assert second.json() == first.json()
    assert second.headers["x-failsoft-replay"] == "true"
    assert second.headers["x-failsoft-attempts"] == "0"
    assert server_a.hits == 0
    assert other.status_code == 422
    assert other.json()["error"]["code"] == "idempotency_conflict"


def test_callers_who_ask_the_same_share_one_upstream_call(
    shared: FrontProcess, server_a: FaultServer
) -> None:
    """Ten at once at temperature 0: one hit, and only one of them is told of an attempt."""
    from concurrent.futures import ThreadPoolExecutor

    server_a.plan(default={"do": "ok", "first_s": 0.9})
    body: dict[str, Any] = {"messages": words("same"), "temperature": 0, "stream": True}

    with ThreadPoolExecutor(10) as pool:
        replies = list(pool.map(lambda _: shared.post(**body), range(10)))

    assert server_a.hits == 1
    assert sorted(reply.headers["x-failsoft-attempts"] for reply in replies) == ["0"] * 9 + ["1"]
    assert {reply.headers["x-failsoft-rung"] for reply in replies} == {"a"}
    assert len({reply.headers["x-request-id"] for reply in replies}) == 10


def test_models_are_the_ladders(shared: FrontProcess) -> None:
    """In OpenAI's shape; an unknown one is a 404 that lists them."""
    listed = shared.get("/v1/models").json()

    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["chat"]
    assert shared.get("/v1/models/chat").json()["rungs"] == ["a", "b", "cache"]
    unknown = shared.get("/v1/models/gpt")
    assert unknown.status_code == 404
    assert "chat" in unknown.json()["error"]["message"]


TOOLS: Fault = {"do": "ok_tools"}


def test_a_tool_call_comes_whole(shared: FrontProcess, server_a: FaultServer) -> None:
    """Arguments in pieces from the endpoint, in one piece to the caller."""
    server_a.plan(TOOLS)

    reply = shared.post(tools=[{"type": "function", "function": {"name": "f"}}])

    choice = reply.json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
