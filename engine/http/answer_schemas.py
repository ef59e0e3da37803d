"""What the routes answer, field by field: the OpenAPI document's other half.

No answer is made of these; a test holds what is sent against them, and so does fuzzing.
Unknown fields are forbidden here, so that an answer never says more than the document.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_Count = Annotated[int, Field(ge=0)]
_FinishReason = Literal["stop", "length"]
_ChatFinishReason = Literal["stop", "length", "tool_calls"]


class _Exact(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", use_attribute_docstrings=True)


class Problem(_Exact):
    """What was wrong, and what to do about it."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None
    """The field or header at fault; null when it is the whole request."""
    code: str | None
    """A word for machines."""


class FaultAnswer(_Exact):
    """Any request that was not answered."""

    error: Problem


class PromptTokensDetails(_Exact):
    """What became of the prompt's tokens."""

    cached_tokens: _Count
    """Tokens whose KV was there already."""


class UsageAnswer(_Exact):
    """Token counts of one answer."""

    prompt_tokens: _Count
    completion_tokens: _Count
    """Tokens sampled, those behind a stop string included."""
    total_tokens: _Count
    prompt_tokens_details: PromptTokensDetails | None = None
    """Known, and there, once each prompt's first choice has ended."""


class TopLogprob(_Exact):
    """A token, and how likely it was."""

    token: str
    logprob: float
    bytes: list[_Count] | None
    """UTF-8; what a token holds of a character it does not hold whole."""


class TokenLogprob(TopLogprob):
    """A token of the answer, and what else was likely there."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(_Exact):
    """Log probabilities of a chat's answer."""

    content: list[TokenLogprob]
    refusal: None


class CompletionLogprobs(_Exact):
    """Log probabilities of a completion, an echoed prompt included."""

    tokens: list[str]
    token_logprobs: list[float | None]
    """Null for the first token of an echoed prompt, which nothing comes before."""
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[_Count]
    """Characters before each token."""


class PromptLogprob(_Exact):
    """A token that stands in the prompt, or was likely there."""

    logprob: float
    rank: Annotated[int, Field(ge=1)]
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class _Head(_Exact):
    id: str
    created: int
    """Unix seconds."""
    model: str
    system_fingerprint: str
    """The head of the version's digest."""


class CalledFunction(_Exact):
    """What is to be called."""

    name: str
    arguments: str
    """JSON; where the answer was cut short, its beginning."""


class ToolCallAnswer(_Exact):
    """A tool that the model wants called."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessageAnswer(_Exact):
    """The assistant's turn."""

    role: Literal["assistant"]
    content: str | None
    """Null where it calls tools and says nothing."""
    refusal: None
    tool_calls: list[ToolCallAnswer] = Field(default_factory=list)
    """Absent where none is called."""


class ChatChoice(_Exact):
    """One answer to the chat."""

    index: _Count
    message: ChatMessageAnswer
    logprobs: ChatLogprobs | None
    finish_reason: _ChatFinishReason


class ChatAnswer(_Head):
    """A whole chat answer."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    prompt_logprobs: PromptLogprobs = Field(default_factory=list)
    """By token id, null for the first token; only where ``prompt_logprobs`` asks for them."""
    usage: UsageAnswer


class FunctionDelta(_Exact):
    """The name at first, then pieces of the arguments."""

    name: str = ""
    arguments: str


class ToolCallDelta(_Exact):
    """A piece of a call; its first one brings id, type and name."""

    index: _Count
    id: str = ""
    type: Literal["function"] = "function"
    function: FunctionDelta


class ChatDelta(_Exact):
    """What is new; the role comes with the first piece of a choice."""

    role: Literal["assistant"] = Field(default="assistant")
    content: str | None = Field(default="")
    tool_calls: list[ToolCallDelta] = Field(default_factory=list)


class ChatChunkChoice(_Exact):
    """A piece of one answer to the chat."""

    index: _Count
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: _ChatFinishReason | None
    """Null until the choice's last piece."""


class _ChunkHead(_Head):
    usage: UsageAnswer | None = None
    """Only with ``stream_options.include_usage``: null, or counts on the last chunk; and the
    counts so far on a chunk without text, where ``x-failsoft-progress`` asks for it."""


class ChatChunk(_ChunkHead):
    """One event of a streamed chat answer."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    prompt_logprobs: PromptLogprobs = Field(default_factory=list)
    """By token id, null for the first token; only where ``prompt_logprobs`` asks for them."""


class CompletionChoice(_Exact):
    """One continuation."""

    index: _Count
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: _FinishReason
    prompt_logprobs: PromptLogprobs = Field(default_factory=list)
    """By token id, null for the first token; only where ``prompt_logprobs`` asks for them."""


class CompletionAnswer(_Head):
    """Whole continuations, in the prompts' order."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: UsageAnswer


class CompletionChunkChoice(_Exact):
    """A piece of one continuation."""

    index: _Count
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: _FinishReason | None
    prompt_logprobs: PromptLogprobs = Field(default_factory=list)
    """With a choice's first piece, where they were asked for."""


class CompletionChunk(_ChunkHead):
    """One event of streamed continuations."""

    object: Literal["text_completion"]
    choices: list[CompletionChunkChoice]


class Model(_Exact):
    """The served version."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: _Count
    """Prompt plus output tokens of one request at most."""
    version_digest: str


class ModelList(_Exact):
    """All that is served here."""

    object: Literal["list"]
    data: list[Model]


class Tokenized(_Exact):
    """Token ids, and how many fit."""

    count: _Count
    max_model_len: _Count
    tokens: list[_Count]
    token_strs: list[str] | None
    """Each token as the vocabulary spells it, when ``return_token_strs`` asks for it."""


class Detokenized(_Exact):
    """Text."""

    prompt: str


class TokenizerInfo(BaseModel):
    """What a client needs to count tokens and to render chats by itself."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    tokenizer_class: str
    chat_template: str | None
    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    unk_token: str | None
    added_tokens_decoder: dict[str, dict[str, Any]]
    """Added tokens by their id."""
    model_max_length: _Count


class Live(_Exact):
    """The process answers."""

    status: Literal["live"]


class Ready(_Exact):
    """A request sent now would be served."""

    status: Literal["ready"]


class NotReady(_Exact):
    """A request sent now would not be served."""

    status: Literal["not_ready"]
    reason: Literal["engine_dead", "draining", "stuck", "failing"]


class SoftwareVersion(_Exact):
    """Of failsoft itself, not of what is served."""

    version: str
