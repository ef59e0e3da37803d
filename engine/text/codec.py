"""Chat messages and prompts to token ids, and token ids back to text.

Wraps one Hugging Face fast tokenizer and one chat template. Safe to call on
several threads at once: after construction nothing of the tokenizer is changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from failsoft.engine.text.control import ControlTokens, pick_markers
from failsoft.engine.text.detokenizer import Detokenizer
from failsoft.errors import InvalidRequestError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_TEMPLATE_FAULTS = (TemplateError, TypeError, ValueError, LookupError, AttributeError)
"""What a template raises when it does not like the messages: not all of them check first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One turn of a chat."""

    role: str
    """``system``, ``user`` or ``assistant``."""
    content: str
    name: str | None = None
    """Who of that role speaks; few templates read it."""


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
        self._control = ControlTokens(self._backend, chat_template or "")

    @property
    def has_chat_template(self) -> bool:
        """Whether chats can be encoded at all."""
        return self._chat_template is not None

    def encode_chat(
        self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Return the prompt ids of a chat.

        With *add_generation_prompt* the assistant's turn is opened at the end. The template
        writes the begin-of-sequence token if the model wants one, so none is added. Control
        tokens inside the messages stay plain text.

        Raises:
            InvalidRequestError: There is no template (code ``no_chat_template``), or
                the template refuses these messages.
        """
        if self._chat_template is None:
            raise InvalidRequestError(
                "this model has no chat template; use /v1/completions",
                param="messages",
                code="no_chat_template",
            )
        turns = [_turn(message) for message in self._with_system_prompt(messages)]
        texts = [text for turn in turns for text in turn.values()]
        if not self._control.occur_in(texts):
            rendered = self._render(turns, add_generation_prompt)
            return list(self._backend.encode(rendered, add_special_tokens=False).ids)
        markers = pick_markers(texts)
        marked = [
            {key: self._control.mark(text, markers) for key, text in turn.items()} for turn in turns
        ]
        return self._control.encode(self._render(marked, add_generation_prompt), markers)

    def encode_prompt(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of a raw prompt, as the model itself reads text.

        Control tokens are read as such, as OpenAI and vLLM do for completions, and
        the begin-of-sequence token is put first once if the tokenizer adds one and
        *add_special_tokens* lets it.
        """
        ids = list(self._backend.encode(text, add_special_tokens=add_special_tokens).ids)
        bos = self._tokenizer.bos_token_id
        if add_special_tokens and bos is not None and ids[:2] == [bos, bos]:
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

    def detokenizer(self) -> Detokenizer:
        """Return a fresh decoder for the tokens of one answer."""
        return Detokenizer(self._backend)

    def _with_system_prompt(self, messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
        if not self._system_prompt or any(message.role == "system" for message in messages):
            return messages
        return [ChatMessage(role="system", content=self._system_prompt), *messages]

    def _render(self, turns: list[dict[str, str]], add_generation_prompt: bool) -> str:
        try:
            rendered = self._tokenizer.apply_chat_template(
                turns,
                chat_template=self._chat_template,
                add_generation_prompt=add_generation_prompt,
                tokenize=False,
            )
        except _TEMPLATE_FAULTS as exc:
            raise InvalidRequestError(
                f"the model's chat template refuses these messages: {exc}",
                param="messages",
                code="chat_template_error",
            ) from exc
        return str(rendered)


def _turn(message: ChatMessage) -> dict[str, str]:
    turn = {"role": message.role, "content": message.content}
    return turn if message.name is None else {**turn, "name": message.name}
