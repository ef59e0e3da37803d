"""The official client, unchanged, against a real front."""

import asyncio

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.fallback.fault_server import FaultServer
from tests.serving.front.rig import FrontProcess

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "what is soft?"}]

WHOLE = "A0 A1 A2 "


def make(shared: FrontProcess, *, max_retries: int = 2) -> openai.OpenAI:
    """A client with its own defaults."""
    return openai.OpenAI(base_url=shared.url, api_key="unused", max_retries=max_retries)


def test_the_sync_client_reads_replies_and_streams(shared: FrontProcess) -> None:
    """Text, usage and the request id."""
    with make(shared) as client:
        whole = client.chat.completions.create(model="chat", messages=MESSAGES)
        stream = client.chat.completions.create(
            model="chat",
            messages=MESSAGES,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)

    assert whole.choices[0].message.content == WHOLE
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 3
    assert whole._request_id is not None
    assert whole._request_id.startswith("call_")
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == WHOLE
    assert chunks[-1].usage is not None


def test_the_async_client_reads_replies_and_streams(shared: FrontProcess) -> None:
    """The same on an event loop."""

    async def run() -> tuple[str | None, str]:
        async with openai.AsyncOpenAI(base_url=shared.url, api_key="unused") as client:
            whole = await client.chat.completions.create(
                model="chat",
                messages=MESSAGES,
            )
            stream = await client.chat.completions.create(
                model="chat",
                messages=MESSAGES,
                stream=True,
            )
            parts = [c.choices[0].delta.content or "" async for c in stream]
            return whole.choices[0].message.content, "".join(parts)

    assert asyncio.run(run()) == (WHOLE, WHOLE)


def test_models_are_listed(shared: FrontProcess) -> None:
    """And an unknown one is the client's NotFoundError."""
    with make(shared) as client:
        assert [model.id for model in client.models.list()] == ["chat"]
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("gpt-5")


def test_the_clients_own_retries_multiply_nothing(
    shared: FrontProcess, server_a: FaultServer, server_b: FaultServer
) -> None:
    """It would send a 503 three times; the ladder has retried, and says so."""
    for server in (server_a, server_b):
        server.plan(default={"do": "status", "status": 500})

    with make(shared) as client, pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(
            model="chat",
            messages=[{"role": "user", "content": "retried?"}],
        )

    assert (server_a.hits, server_b.hits) == (1, 1)
    assert caught.value.code == "ladder_exhausted"
    assert isinstance(caught.value.body, dict)
    assert len(caught.value.body["failsoft"]["attempts"]) == 3


def test_a_cut_stream_raises_and_does_not_look_whole(
    shared: FrontProcess, server_a: FaultServer
) -> None:
    """Two leading gateways show it as success."""
    server_a.plan({"do": "cut", "how": "eof"})
    texts: list[str] = []

    with make(shared) as client:
        stream = client.chat.completions.create(model="chat", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError) as caught:
            texts.extend(chunk.choices[0].delta.content or "" for chunk in stream)

    assert "".join(texts) == WHOLE
    assert caught.value.code == "stream_interrupted"


def test_options_travel_as_extra_headers(shared: FrontProcess, server_a: FaultServer) -> None:
    """And vendor fields as extra body."""
    with make(shared) as client:
        raw = client.chat.completions.with_raw_response.create(
            model="chat",
            messages=MESSAGES,
            extra_headers={"x-failsoft-deadline-ms": "2000"},
            extra_body={"min_p": 0.1},
        )

    assert raw.headers["x-failsoft-rung"] == "a"
    assert server_a.stats()["requests"][0]["body"]["min_p"] == 0.1
