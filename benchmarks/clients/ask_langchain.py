"""LangChain's ChatOpenAI: invoke, stream with usage, batch, structured output, tools, errors."""

from collections.abc import Iterator
from typing import Any, Literal

import openai
from langchain_core.messages import AIMessageChunk
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from benchmarks.clients.report import run

_QUESTION = "What is the capital of France?"
_ANSWER = "Paris"

Seen = Iterator[tuple[str, str, bool]]


class Place(BaseModel):
    """A city."""

    city: Literal["Paris", "Rome", "Berlin"]


@tool  # type: ignore[untyped-decorator]
def look_up(city: Literal["Paris", "Rome"]) -> str:
    """Look up a fact about a city."""
    return city


def _chat(url: str, model: str, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=f"{url}/v1", api_key=SecretStr("unused"), model=model, temperature=0, **more
    )


def invoke_and_stream(url: str, model: str) -> Seen:
    """The streamed text is the whole one, and so is the usage."""
    llm = _chat(url, model, stream_usage=True)
    whole = llm.invoke(_QUESTION)
    streamed: Any = AIMessageChunk(content="")
    for chunk in llm.stream(_QUESTION):
        streamed += chunk
    text = str(whole.content)
    yield f"langchain, invoke: an answer that names {_ANSWER}", repr(text), _ANSWER in text
    yield "langchain, stream: the same text", repr(streamed.content), streamed.content == text
    usages = [message.usage_metadata for message in (whole, streamed)]
    counts = [(usage["input_tokens"], usage["output_tokens"]) for usage in usages]
    yield "langchain, stream: the same usage", str(counts), counts[0] == counts[1]


def batch(url: str, model: str) -> Seen:
    """Content parts, several at once."""
    parts: Any = [("user", [{"type": "text", "text": _QUESTION}])]
    replies = _chat(url, model, max_tokens=24).batch([parts] * 6)
    texts = [str(reply.content) for reply in replies]
    yield (
        f"langchain, batch: 6 at once, each names {_ANSWER}",
        f"{sum(_ANSWER in text for text in texts)} of {len(texts)}",
        all(_ANSWER in text for text in texts),
    )


def structured_output(url: str, model: str) -> Seen:
    """By JSON schema, and by calling a function."""
    for method in ("json_schema", "function_calling"):
        llm = _chat(url, model, max_tokens=64).with_structured_output(Place, method=method)
        place = llm.invoke(_QUESTION)
        yield f"langchain, {method}: an instance", repr(place), isinstance(place, Place)


def tools(url: str, model: str) -> Seen:
    """A tool that must be called, whole and streamed."""
    llm = _chat(url, model, max_tokens=64).bind_tools([look_up], tool_choice="look_up")
    calls = llm.invoke(_QUESTION).tool_calls
    streamed: Any = AIMessageChunk(content="")
    for chunk in llm.stream(_QUESTION):
        streamed += chunk
    cities = [call["args"].get("city") for call in (*calls, *streamed.tool_calls)]
    yield (
        "langchain, bind_tools: the call, whole and streamed",
        str(cities),
        len(cities) == 2 and cities[0] == cities[1] and cities[0] in ("Paris", "Rome"),
    )


def errors(url: str, model: str) -> Seen:
    """A prompt that is too long raises what LangChain says for it."""
    try:
        _chat(url, model).invoke("word " * 100_000)
        told = "no error"
    except openai.BadRequestError as exc:
        told = f"{type(exc).__name__} {exc.code}"
    yield "langchain: too long a prompt", told, "context_length_exceeded" in told


if __name__ == "__main__":
    run([invoke_and_stream, batch, structured_output, tools, errors])
