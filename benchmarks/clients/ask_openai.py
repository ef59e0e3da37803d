"""The official client: sync, async, streams, parsed answers, tools, completions, errors."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Literal

import openai
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from benchmarks.clients.report import run

_QUESTION = "What is the capital of France?"
_ANSWER = "Paris"
_MESSAGES: Any = [{"role": "user", "content": _QUESTION}]
_TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Look up a fact about a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]

Seen = Iterator[tuple[str, str, bool]]


class Place(BaseModel):
    """What a parsed answer holds."""

    city: Literal["Paris", "Rome", "Berlin"]
    is_capital: bool


def _client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)


def chat(url: str, model: str) -> Seen:
    """Ask, stream, and compare the two."""
    client = _client(url)
    whole = client.chat.completions.create(model=model, messages=_MESSAGES, temperature=0)
    chunks = list(
        client.chat.completions.create(
            model=model,
            messages=_MESSAGES,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = whole.choices[0].message.content or ""
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    yield f"openai, sync: an answer that names {_ANSWER}", repr(text), _ANSWER in text
    yield "openai, stream: the same text", repr(streamed), streamed == text
    usage, last = whole.usage, chunks[-1].usage
    assert usage is not None
    assert last is not None
    counts = (last.prompt_tokens, last.completion_tokens)
    yield (
        "openai, stream: the usage chunk counts as the whole answer does",
        str(counts),
        counts == (usage.prompt_tokens, usage.completion_tokens),
    )


def many_at_once(url: str, model: str) -> Seen:
    """Twelve questions at once through the async client, half of them streamed."""

    async def ask(client: AsyncOpenAI, is_streamed: bool) -> str:
        asked: Any = {"model": model, "messages": _MESSAGES, "temperature": 0, "max_tokens": 24}
        if not is_streamed:
            reply = await client.chat.completions.create(**asked)
            return reply.choices[0].message.content or ""
        stream = await client.chat.completions.create(**asked, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def ask_all() -> list[str]:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
            return await asyncio.gather(*(ask(client, bool(n % 2)) for n in range(12)))

    texts = asyncio.run(ask_all())
    yield (
        f"openai, async: 12 at once, each names {_ANSWER}",
        f"{sum(_ANSWER in text for text in texts)} of {len(texts)}",
        all(_ANSWER in text for text in texts),
    )


def parsed_answers(url: str, model: str) -> Seen:
    """A pydantic model as the answer's format, whole and streamed."""
    client = _client(url)
    asked: Any = {
        "model": model,
        "messages": _MESSAGES,
        "temperature": 0,
        "max_tokens": 64,
        "response_format": Place,
    }
    place = client.chat.completions.parse(**asked).choices[0].message.parsed
    yield "openai, parse: an instance of the model", repr(place), isinstance(place, Place)
    with client.chat.completions.stream(**asked) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_completion().choices[0].message.parsed
    yield "openai, stream helper: the same instance", repr(streamed), streamed == place


def tools(url: str, model: str) -> Seen:
    """A named tool, whole and streamed: its arguments are JSON of its schema."""
    client = _client(url)
    asked: Any = {
        "model": model,
        "messages": _MESSAGES,
        "temperature": 0,
        "max_tokens": 64,
        "tools": _TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "look_up"}},
    }
    call: Any = (client.chat.completions.create(**asked).choices[0].message.tool_calls or [])[0]
    arguments = json.loads(call.function.arguments)
    yield (
        "openai, a named tool is called with arguments of its schema",
        f"{call.function.name}({arguments})",
        call.function.name == "look_up" and arguments["city"] in ("Paris", "Rome"),
    )
    pieces = [
        piece.function.arguments or ""
        for chunk in client.chat.completions.create(**asked, stream=True)
        for piece in chunk.choices[0].delta.tool_calls or []
        if piece.function
    ]
    joined = "".join(pieces)
    yield (
        "openai, streamed pieces of the arguments join to the same JSON",
        f"{len(pieces)} pieces: {joined}",
        joined == call.function.arguments,
    )


def completions(url: str, model: str) -> Seen:
    """An echoed prompt with log probabilities, as an evaluation asks for it."""
    reply = _client(url).completions.create(
        model=model,
        prompt="The capital of France is Paris",
        max_tokens=1,
        temperature=0,
        logprobs=1,
        echo=True,
    )
    logprobs: Any = reply.choices[0].logprobs
    assert reply.usage is not None
    scores = logprobs.token_logprobs
    yield (
        "openai, completions: log probabilities of the prompt and one token more",
        f"{len(scores)} for {reply.usage.prompt_tokens} prompt tokens, the first {scores[0]}",
        len(scores) == reply.usage.prompt_tokens + 1
        and scores[0] is None
        and all(score < 0 for score in scores[1:]),
    )


def errors_and_models(url: str, model: str) -> Seen:
    """What is wrong arrives as the exception for it, with the field's name."""
    client = _client(url)
    try:
        client.chat.completions.create(model=model, messages=_MESSAGES, temperature=5)
        told = "no error"
    except openai.BadRequestError as exc:
        told = f"{exc.param}, request {exc.request_id}"
    yield "openai: a bad value raises BadRequestError", told, told.startswith("temperature, ")
    try:
        client.models.retrieve("another")
        told = "no error"
    except openai.NotFoundError as exc:
        told = str(exc.code)
    yield "openai: another model raises NotFoundError", told, told == "model_not_found"
    names = [listed.id for listed in client.models.list()]
    yield "openai: the model is listed", str(names), names == [model]


if __name__ == "__main__":
    run([chat, many_at_once, parsed_answers, tools, completions, errors_and_models])
