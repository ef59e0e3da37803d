"""The bodies of /v1/chat/completions and /v1/completions: shapes and types.

Strict: a bool is no integer, a number no string. Ranges of sampling values are
checked by SamplingParams, tokens by the engine; here is only what JSON can get wrong.
"""

import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from failsoft.engine.http.output_format import FormatFields
from failsoft.engine.http.strict import Strict
from failsoft.engine.http.tools import ToolCallTurn, ToolFields
from failsoft.engine.text.codec import ChatMessage
from failsoft.errors import InvalidRequestError

MAX_STOP_STRINGS = 16
"""OpenAI allows 4; lm-eval sends more on completions."""
MAX_STOP_CHARS = 512
MAX_PROMPTS = 128
"""Prompts in one completions request at most."""

MAX_MESSAGES = 2048
"""Turns of one chat at most."""

_TOKEN_ID = re.compile(r"[0-9]{1,9}")

Body = TypeVar("Body", bound=BaseModel)

# What callers may write where a validator makes one type of several: for the OpenAPI document.
_StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
_StopInput = _StopString | Annotated[list[_StopString], Field(max_length=MAX_STOP_STRINGS)] | None
_Text = Annotated[str, Field(min_length=1)]
_TokenIds = Annotated[list[int], Field(min_length=1)]
_Prompts = Field(min_length=1, max_length=MAX_PROMPTS)
_BiasInput = dict[str, float] | None
_PromptInput = (
    _Text | _TokenIds | Annotated[list[_Text], _Prompts] | Annotated[list[_TokenIds], _Prompts]
)


class StreamOptions(Strict):
    """What a stream carries beside text."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    """vLLM's: the usage so far on every chunk, when *include_usage* is set too."""


class SamplingFields(Strict):
    """How tokens are picked; None is the version's own value, else OpenAI's."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    """Its keys are token ids, strings in JSON."""
    allowed_token_ids: list[int] | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None

    @field_validator("logit_bias", mode="before", json_schema_input_type=_BiasInput)
    @classmethod
    def _read_token_ids(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        for key in value:
            if not _TOKEN_ID.fullmatch(key):
                raise ValueError(f"must have token ids as keys, got {key[:20]!r}")
        return {int(key): bias for key, bias in value.items()}


class GenerationBody(SamplingFields, FormatFields):
    """What both routes share."""

    model: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    """Wins over *max_tokens*, as at OpenAI."""
    stop: list[str] = Field(default_factory=list)
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    n: int | None = None
    best_of: int | None = None
    prompt_logprobs: int | None = None
    truncate_prompt_tokens: int | None = None
    """Keep the last so many tokens of the prompt; -1 keeps as many as fit."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: int | None = None
    cache_salt: str | None = None

    @field_validator("stop", mode="before", json_schema_input_type=_StopInput)
    @classmethod
    def _check_stop(cls, value: object) -> list[str]:
        stops = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
            raise ValueError("must be a string, a list of strings or null")
        if len(stops) > MAX_STOP_STRINGS:
            raise ValueError(f"must hold at most {MAX_STOP_STRINGS} strings, got {len(stops)}")
        if not all(1 <= len(stop) <= MAX_STOP_CHARS for stop in stops):
            raise ValueError(f"must hold strings of 1..{MAX_STOP_CHARS} characters")
        return stops


_NO_CALLS = {"anyOf": [{"type": "null"}, {"maxItems": 0}]}
_SAID = {"not": {"type": "null"}}
_TURNS: list[Any] = [
    {"properties": {"role": {"const": "assistant"}}},
    {
        "required": ["content"],
        "properties": {
            "role": {"enum": ["system", "developer", "user"]},
            "content": _SAID,
            "tool_calls": _NO_CALLS,
        },
    },
    {
        "required": ["content", "tool_call_id"],
        "properties": {
            "role": {"const": "tool"},
            "content": _SAID,
            "tool_call_id": _SAID,
            "tool_calls": _NO_CALLS,
        },
    },
]
"""In JSON Schema what `ChatTurn.to_message` checks."""


class TextPart(Strict):
    """A piece of a message's text; what else it says is ignored."""

    type: Literal["text"]
    text: str


class ChatTurn(Strict):
    """One message; its text parts are joined by line breaks, as vLLM and llama.cpp do."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _TURNS})

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | None = None
    name: str | None = None
    tool_calls: list[ToolCallTurn] | None = None
    """Of an assistant."""
    tool_call_id: str | None = None
    """The call that a tool's message answers."""
    function_call: None = None
    audio: None = None

    @field_validator("content", mode="before", json_schema_input_type=str | list[TextPart] | None)
    @classmethod
    def _join_parts(cls, value: object) -> object:
        return "\n".join(map(_text_of, value)) if isinstance(value, list) else value

    @field_validator("function_call", "audio", mode="before")
    @classmethod
    def _refuse(cls, value: object) -> None:
        if value is not None:
            raise ValueError("is not supported; leave it out")

    def to_message(self, index: int) -> ChatMessage:
        """Return the message as the codec takes it; ``developer`` is OpenAI's new ``system``.

        Raises:
            InvalidRequestError: Only an assistant's content may be null, only an assistant calls
                tools, and a tool's message must say which call it answers.
        """
        where = f"messages[{index}]"
        if self.content is None and self.role != "assistant":
            raise InvalidRequestError(
                f"{where}.content: a {self.role} message must have text, got null",
                param=f"{where}.content",
            )
        if self.tool_calls and self.role != "assistant":
            raise InvalidRequestError(
                f"{where}.tool_calls: only an assistant calls tools, not a {self.role}",
                param=f"{where}.tool_calls",
            )
        if self.role == "tool" and self.tool_call_id is None:
            raise InvalidRequestError(
                f"{where}.tool_call_id must name the call that this message answers",
                param=f"{where}.tool_call_id",
            )
        return ChatMessage(
            role="system" if self.role == "developer" else self.role,
            content=self.content or "",
            name=self.name,
            tool_calls=tuple(call.to_call() for call in self.tool_calls or ()),
            tool_call_id=self.tool_call_id,
        )


class ChatBody(GenerationBody, ToolFields):
    """POST /v1/chat/completions."""

    messages: list[ChatTurn] = Field(min_length=1, max_length=MAX_MESSAGES)
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionBody(GenerationBody):
    """POST /v1/completions; *prompt* becomes a list of texts or of lists of token ids."""

    prompt: list[str | list[int]]
    echo: bool | None = None
    logprobs: int | None = None
    add_special_tokens: bool | None = None

    @field_validator("logprobs", mode="before", json_schema_input_type=int | Literal[False] | None)
    @classmethod
    def _read_false(cls, value: object) -> object:
        return None if value is False else value  # the chats' way of wanting none

    @field_validator("prompt", mode="before", json_schema_input_type=_PromptInput)
    @classmethod
    def _list_prompts(cls, value: object) -> list[Any]:
        if isinstance(value, str):
            return [value]
        if not isinstance(value, list):
            raise ValueError("must be a string, a list of token ids, or a list of either")
        if value and all(type(item) is int for item in value):
            return [value]
        if not 1 <= len(value) <= MAX_PROMPTS:
            raise ValueError(f"must hold 1..{MAX_PROMPTS} prompts, got {len(value)}")
        is_text, is_ids = (all(isinstance(item, kind) for item in value) for kind in (str, list))
        is_ids = is_ids and all(type(token) is int for item in value for token in item)
        if not (is_text or is_ids):
            raise ValueError("must be a string, a list of token ids, or a list of either")
        return value

    @field_validator("prompt", mode="after")
    @classmethod
    def _refuse_empty(cls, value: list[str | list[int]]) -> list[str | list[int]]:
        if not all(value):
            raise ValueError("has no tokens; send at least one")
        return value


def parse(schema: type[Body], body: dict[str, Any]) -> Body:
    """Return *body* as a *schema*.

    Raises:
        InvalidRequestError: ``param`` names the first field that is wrong.
    """
    try:
        return schema.model_validate(body)
    except ValidationError as exc:
        fault = exc.errors(include_input=False, include_url=False, include_context=False)[0]
        param = _param_of(fault["loc"])
        message = fault["msg"].removeprefix("Value error, ")
        raise InvalidRequestError(f"{param}: {message}", param=param) from None


def _param_of(location: tuple[int | str, ...]) -> str:
    """Write a path as the caller would: ``messages[0].content``."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def _text_of(part: object) -> str:
    if not isinstance(part, dict) or part.get("type") != "text":
        raise ValueError("must hold text parts only; other kinds are not supported yet")
    text = part.get("text")
    if not isinstance(text, str):
        raise ValueError("a text part must have a string in its field text")
    return text
