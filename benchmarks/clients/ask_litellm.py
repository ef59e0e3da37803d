"""LiteLLM over its openai/ and hosted_vllm/ providers: whole, streamed, errors by kind."""

from collections.abc import Iterator
from typing import Any, Literal

import litellm
from pydantic import BaseModel

from benchmarks.clients.report import run

_QUESTION = "What is the capital of France?"
_ANSWER = "Paris"
_MESSAGES: Any = [{"role": "user", "content": _QUESTION}]

Seen = Iterator[tuple[str, str, bool]]


class Place(BaseModel):
    """A city."""

    city: Literal["Paris", "Rome", "Berlin"]


def _ways(url: str, model: str) -> Iterator[tuple[str, dict[str, Any]]]:
    shared: dict[str, Any] = {"api_base": f"{url}/v1", "temperature": 0, "num_retries": 0}
    yield "openai/", {"model": f"openai/{model}", "api_key": "unused", **shared}
    yield "hosted_vllm/", {"model": f"hosted_vllm/{model}", **shared}


def whole_and_streamed(url: str, model: str) -> Seen:
    """The same text and usage by both ways of each provider."""
    for name, way in _ways(url, model):
        whole: Any = litellm.completion(messages=_MESSAGES, **way)
        chunks: Any = list(
            litellm.completion(
                messages=_MESSAGES, stream=True, stream_options={"include_usage": True}, **way
            )
        )
        text = whole.choices[0].message.content
        streamed = "".join(
            chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices
        )
        usages = [each.usage for each in chunks if getattr(each, "usage", None)]
        yield f"litellm, {name}: an answer that names {_ANSWER}", repr(text), _ANSWER in text
        yield (
            f"litellm, {name} streamed: the same text and usage",
            f"{streamed!r}, {usages[-1].completion_tokens if usages else 'no'} tokens",
            streamed == text
            and bool(usages)
            and usages[-1].completion_tokens == whole.usage.completion_tokens,
        )


def structured_output(url: str, model: str) -> Seen:
    """A pydantic model as the response format."""
    for name, way in _ways(url, model):
        reply: Any = litellm.completion(
            messages=_MESSAGES, response_format=Place, max_tokens=64, **way
        )
        text = reply.choices[0].message.content
        place = Place.model_validate_json(text)
        yield f"litellm, {name} response_format: valid JSON", text, bool(place.city)


def errors(url: str, model: str) -> Seen:
    """LiteLLM tells kinds apart by status and words: falling back depends on it."""
    for name, way in _ways(url, model):
        wrong: list[tuple[str, dict[str, Any], type[Exception]]] = [
            (
                "too long a prompt",
                {"messages": [{"role": "user", "content": "word " * 100_000}]},
                litellm.ContextWindowExceededError,
            ),
            ("a bad value", {"messages": _MESSAGES, "top_p": 7}, litellm.BadRequestError),
            (
                "another model",
                {"messages": _MESSAGES, "model": f"{way['model']}-x"},
                litellm.NotFoundError,
            ),
        ]
        for what, fields, kind in wrong:
            try:
                litellm.completion(**{**way, **fields})
                told = "no error"
            except Exception as exc:  # noqa: BLE001 which one it is, is the question
                told = type(exc).__name__
            yield f"litellm, {name} {what}: {kind.__name__}", told, told == kind.__name__


if __name__ == "__main__":
    run([whole_and_streamed, structured_output, errors])
