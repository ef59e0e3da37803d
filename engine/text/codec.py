"""Chat messages and prompts to token ids, and token ids back to text.

Wraps one Hugging Face fast tokenizer and one chat template. Safe to call on
several threads at once: after construction nothing of the tokenizer is changed.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from failsoft.engine.text.control import ControlTokens, Markers, pick_markers
from failsoft.engine.text.detokenizer import Detokenizer
from failsoft.engine.text.token_text import TokenTexts
from failsoft.engine.text.tool_turns import CALL_OPEN, ToolCall, Turn, knows_tools, written_out
from failsoft.errors import InvalidRequestError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_TEMPLATE_FAULTS = (TemplateError, TypeError, ValueError, LookupError, AttributeError)
"""What a template raises when it does not like the messages: not all of them check first."""


MAX_NESTING = 64
"""Levels of what a template may read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One turn of a chat."""

    role: str
    """``system``, ``user``, ``assistant`` or ``tool``."""
    content: str
    name: str | None = None
    """Who of that role speaks; few templates read it."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """The call that a tool's message answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    """How a chat becomes a prompt."""

    is_turn_opened: bool = True
    """Whether the assistant's turn is opened at the end."""
    is_last_continued: bool = False
    """Whether the last message stays open, for the model to go on with."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """What the template may read beside the messages."""
    tools: Sequence[dict[str, Any]] = ()
    """Tools that the prompt offers, as OpenAI describes them."""


_AS_EVER = TemplateOptions()


class TextCodec:
    """The text side of one version.

    Args:
        tokenizer: A transformers fast tokenizer. Its truncation and padding, if its
            file sets them, are switched off: a prompt is never cut silently.
        chat_template: Jinja source; None for a model that has none.
        system_prompt: Put first in a chat that brings no system message; None puts nothing.
    """

    def __init__(
        self, tokenizer: Any, *, chat_template: str | None, system_prompt: str | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._backend: Tokenizer = tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        self._chat_template = chat_template
        self._system_prompt = system_prompt
        self._knows_tools = knows_tools(chat_template or "")
        self._control = ControlTokens(self._backend, chat_template or "")
        parameters = inspect.signature(tokenizer.apply_chat_template).parameters
        self._taken = {"messages", "self", *parameters}
        self.token_texts = TokenTexts(self._backend)

    @property
    def has_chat_template(self) -> bool:
        """Whether chats can be encoded at all."""
        return self._chat_template is not None

    @property
    def hides_calls(self) -> bool:
        """Whether the tag that begins a tool call is a special token, which text leaves out."""
        added = self._backend.get_added_tokens_decoder().values()
        return any(token.special and token.content == CALL_OPEN for token in added)

    def encode_chat(
        self, messages: Sequence[ChatMessage], options: TemplateOptions = _AS_EVER
    ) -> list[int]:
        """Return the prompt ids of a chat, the assistant's turn opened at the end.

        The template writes the begin-of-sequence token if the model wants one, so
        none is added. Control tokens inside the messages and the template's variables stay
        plain text.

        Raises:
            InvalidRequestError: There is no template (code ``no_chat_template``), the
                template refuses these messages, or *options* do not fit it.
        """
        if self._chat_template is None:
            raise InvalidRequestError(
                "this model has no chat template; use /v1/completions",
                param="messages",
                code="no_chat_template",
            )
        self._check_options(options)
        turns = [_turn(message) for message in self._with_system_prompt(messages)]
        variables = dict(options.variables)
        if self._knows_tools:
            variables["tools"] = list(options.tools) or None
        else:
            turns = written_out(turns, options.tools)
        texts = list(_texts_in([turns, variables]))
        if not self._control.occur_in(texts):
            rendered = self._render(turns, variables, options)
            return list(self._backend.encode(rendered, add_special_tokens=False).ids)
        markers = pick_markers(texts)
        marked_turns, marked_variables = self._marked([turns, variables], markers)
        rendered = self._render(marked_turns, marked_variables, options)
        return self._control.encode(rendered, markers)

    def _check_options(self, options: TemplateOptions) -> None:
        if options.is_turn_opened and options.is_last_continued:
            raise InvalidRequestError(
                "continue_final_message and add_generation_prompt exclude each other; "
                "send one of them as false",
                param="continue_final_message",
            )
        if taken := self._taken & options.variables.keys():
            raise InvalidRequestError(
                f"chat_template_kwargs may not hold {min(taken)!r}, which is no variable of the "
                "template; leave it out",
                param="chat_template_kwargs",
            )

    def _marked(self, value: Any, markers: Markers) -> Any:
        """Return a JSON *value* with the control tokens in its strings between *markers*."""
        if isinstance(value, str):
            return self._control.mark(value, markers)
        if isinstance(value, Mapping):
            return {
                self._marked(key, markers): self._marked(one, markers) for key, one in value.items()
            }
        return [self._marked(one, markers) for one in value] if isinstance(value, list) else value

    def encode_prompt(self, text: str, *, has_special: bool = True) -> list[int]:
        """Return the ids of a raw prompt, as the model itself reads text.

        Control tokens are read as such, as OpenAI and vLLM do for completions, and
        the begin-of-sequence token is put first once if the tokenizer adds one, unless
        *has_special* is false.
        """
        ids = list(self._backend.encode(text, add_special_tokens=has_special).ids)
        if not has_special:
            return ids
        bos = self._tokenizer.bos_token_id
        if bos is not None and ids[:2] == [bos, bos]:
            del ids[0]  # the caller wrote it out and the tokenizer added its own
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of *token_ids*, control tokens written out.

        Ids past the tokenizer's own, which padded logits may have, have no text.
        """
        return str(self._backend.decode(list(token_ids), skip_special_tokens=False))

    def spell(self, token_ids: Sequence[int]) -> list[str]:
        """Return each token as the vocabulary writes it; the empty string for an unknown one."""
        return [self._backend.id_to_token(token_id) or "" for token_id in token_ids]

    def describe(self) -> dict[str, Any]:
        """Return the tokenizer's class, special tokens and template, under transformers' names."""
        added = self._backend.get_added_tokens_decoder()
        names = ("bos_token", "eos_token", "pad_token", "unk_token")
        return {
            "tokenizer_class": type(self._tokenizer).__name__,
            "chat_template": self._chat_template,
            **{name: getattr(self._tokenizer, name) for name in names},
            "added_tokens_decoder": {
                str(token_id): {"content": token.content, "special": token.special}
                for token_id, token in sorted(added.items())
            },
        }

    def detokenizer(self, *, is_special_shown: bool = False) -> Detokenizer:
        """Return a fresh decoder for the tokens of one answer."""
        return Detokenizer(self._backend, is_special_shown=is_special_shown)

    def _with_system_prompt(self, messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
        if not self._system_prompt or any(message.role == "system" for message in messages):
            return messages
        return [ChatMessage(role="system", content=self._system_prompt), *messages]

    def _render(
        self, turns: list[Turn], variables: dict[str, Any], options: TemplateOptions
    ) -> str:
        try:
            rendered = self._tokenizer.apply_chat_template(
                turns,
                chat_template=self._chat_template,
                add_generation_prompt=options.is_turn_opened,
                continue_final_message=options.is_last_continued,
                tokenize=False,
                **variables,
            )
        except _TEMPLATE_FAULTS as exc:
            if options.is_last_continued and not isinstance(exc, TemplateError):
                # Its message quotes the whole chat, which belongs in no log.
                raise InvalidRequestError(
                    "the model's chat template does not show the last message as it was sent, so "
                    "it cannot be continued; leave continue_final_message out",
                    param="continue_final_message",
                    code="chat_template_error",
                ) from exc
            raise InvalidRequestError(
                f"the model's chat template refuses these messages: {exc}",
                param="messages",
                code="chat_template_error",
            ) from exc
        return str(rendered)


def _turn(message: ChatMessage) -> Turn:
    turn: Turn = {"role": message.role, "content": message.content}
    if message.name is not None:
        turn["name"] = message.name
    if message.tool_calls:
        turn["tool_calls"] = [call.as_entry() for call in message.tool_calls]
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    return turn


def _texts_in(value: Any, room: int = MAX_NESTING) -> Iterator[str]:
    """Yield the strings of a JSON *value*, the keys of its objects included.

    Raises:
        InvalidRequestError: It is nested too deep to be walked.
    """
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        if not room:
            raise InvalidRequestError(
                f"chat_template_kwargs is nested deeper than {MAX_NESTING}; send it flatter",
                param="chat_template_kwargs",
            )
        if isinstance(value, Mapping):
            yield from value
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _texts_in(one, room - 1)
