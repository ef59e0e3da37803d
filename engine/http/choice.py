"""One choice of an answer: from the engine's tokens to text, and what is shown with it.

Log probabilities go out with the text of their token: once any of it is out, and never
before; those of tokens that a stop string cut away never do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from failsoft.engine.request import FinishedEvent, GenerationRequest, TokenEvent, TokenLogprobs
from failsoft.engine.text.detokenizer import Detokenizer
from failsoft.engine.text.stop import StopStrings


class ShownToken(NamedTuple):
    """A token of the answer and how likely it was."""

    token_id: int
    offset: int
    """Characters of the choice's text before it."""
    logprobs: TokenLogprobs | None
    """None for the first token of an echoed prompt, which nothing comes before."""


class Echo(NamedTuple):
    """A prompt that the choice's text begins with."""

    text: str
    offsets: list[int]
    """Characters before each prompt token; empty where no log probabilities are wanted."""


class Part(NamedTuple):
    """What is new of a choice."""

    text: str = ""
    tokens: tuple[ShownToken, ...] = ()
    prompt: tuple[TokenLogprobs, ...] | None = None
    """Of the prompt from its second token on, where they were asked for; once."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not self.text and not self.tokens and self.prompt is None

    def then(self, other: "Part") -> "Part":
        """Return this followed by *other*."""
        if self.is_empty:
            return other
        prompt = self.prompt if other.prompt is None else other.prompt
        return Part(self.text + other.text, self.tokens + other.tokens, prompt)


_NOTHING = Part()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """How the tokens of an answer become its text."""

    stops: Sequence[str] = ()
    is_stop_shown: bool = False
    """Whether a stop string, or a stop token of the caller's, stays in the text."""
    is_special_shown: bool = False
    wants_prompt_logprobs: bool = False
    """Whether those of the prompt go out beside the text, as vLLM has them."""
    echoes: Sequence[Echo] = field(default_factory=tuple)
    """One for each request, or none at all."""


class Choice:
    """The text side of one engine request.

    Args:
        index: Its place in the answer.
        request: What the engine computes.
        detokenizer: A fresh one.
        options: Of the answer's text.
        echo: What its text begins with.
        end_token_ids: The model's own ends of an answer.
    """

    def __init__(
        self,
        index: int,
        request: GenerationRequest,
        detokenizer: Detokenizer,
        *,
        options: TextOptions,
        echo: Echo | None,
        end_token_ids: frozenset[int],
    ) -> None:
        self.index = index
        self.request = request
        self.is_open = True
        self.num_tokens = 0
        self._detokenizer = detokenizer
        self._stops = StopStrings(options.stops, is_shown=options.is_stop_shown)
        self._options = options
        self._echo = echo
        self._is_begun = False
        self._prompt: list[TokenLogprobs] = []
        self._waiting: list[ShownToken] = []
        self._num_decoded = self._num_out = len(echo.text) if echo else 0
        own_stops = request.sampling.stop_token_ids
        eos = frozenset() if request.sampling.ignore_eos else end_token_ids
        self._hidden = eos - own_stops if options.is_stop_shown else eos | own_stops

    @property
    def is_cut(self) -> bool:
        """Whether a stop string was met."""
        return self._stops.is_matched

    def note_prompt(self, logprobs: Sequence[TokenLogprobs]) -> None:
        """Take log probabilities of the prompt in."""
        self._prompt.extend(logprobs)

    def take(self, event: TokenEvent) -> Part:
        """Return what *event* lets out; a token that only stops has no text."""
        self.num_tokens += 1
        begin = self._begin()
        if self.is_cut or event.token_id in self._hidden:
            return begin
        if event.logprobs is not None:
            self._waiting.append(ShownToken(event.token_id, self._num_decoded, event.logprobs))
        return begin.then(self._let_out(self._detokenizer.push(event.token_id)))

    def end(self, event: FinishedEvent) -> Part:
        """Return what was still held, now that *event* has ended the choice."""
        self.is_open = False
        part = self._begin()
        stop = event.stop_token_id
        if stop is not None and stop not in self._hidden and not self.is_cut:
            part = part.then(self._let_out(self._detokenizer.push(stop)))
        part = part.then(self._let_out(self._detokenizer.flush()))
        rest = self._stops.flush()
        self._num_out += len(rest)
        last = Part(rest, () if self.is_cut else tuple(self._waiting))
        self._waiting.clear()
        return part.then(last)

    def _begin(self) -> Part:
        """Return what stands before the first token's text; nothing from then on."""
        if self._is_begun:
            return _NOTHING
        self._is_begun = True
        prompt = tuple(self._prompt) if self._options.wants_prompt_logprobs else None
        if self._echo is None:
            return Part(prompt=prompt)
        ids = self.request.prompt_ids
        tokens = [
            ShownToken(token_id, offset, logprobs)
            for token_id, offset, logprobs in zip(
                ids, self._echo.offsets, [None, *self._prompt], strict=False
            )
        ]
        return Part(self._echo.text, tuple(tokens), prompt)

    def _let_out(self, fresh: str) -> Part:
        """Return what may be sent of *fresh* and of what was held before it."""
        self._num_decoded += len(fresh)
        # Text of the first tokens cannot stop, however it reads.
        is_free = self.num_tokens <= self.request.sampling.min_tokens
        text = fresh if is_free else self._stops.push(fresh)
        self._num_out += len(text)
        num_due = 0
        for shown in self._waiting:
            if shown.offset >= self._num_out:
                break
            num_due += 1
        due = tuple(self._waiting[:num_due])
        del self._waiting[:num_due]
        return Part(text, due)
