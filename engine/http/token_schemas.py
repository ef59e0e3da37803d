"""The bodies of /tokenize and /detokenize, as vLLM has them."""

from typing import Any

from pydantic import Field

from failsoft.engine.http.schemas import MAX_MESSAGES, ChatTurn
from failsoft.engine.http.strict import Strict
from failsoft.engine.http.tools import ToolFields


class _TextBody(Strict):
    """What the routes about tokens share."""

    model: str | None = None


class TokenizePromptBody(_TextBody):
    """POST /tokenize with a raw prompt."""

    prompt: str
    messages: None = None
    add_special_tokens: bool | None = None
    """Whether what the tokenizer puts around a text, such as a begin-of-sequence token, is
    added; null means true."""
    return_token_strs: bool | None = None


class TokenizeChatBody(_TextBody, ToolFields):
    """POST /tokenize with a chat; its template writes the special tokens."""

    messages: list[ChatTurn] = Field(min_length=1, max_length=MAX_MESSAGES)
    prompt: None = None
    add_generation_prompt: bool | None = None
    """Whether the assistant's turn is opened at the end; null means true, unless the last
    message is continued."""
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(_TextBody):
    """POST /detokenize."""

    tokens: list[int]
