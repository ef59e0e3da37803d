"""Builds one whole OpenAI reply out of stream chunks, and judges whether it is one.

Knows nothing of HTTP or rungs. A chunk is the parsed JSON of one event. A whole
reply has a finish reason for every choice asked for. An empty text under
``stop`` or ``length`` counts only when the endpoint's usage says that it sampled
a token: a model may end at once, but most empty replies are faults in disguise.
"""

import time
from collections.abc import Mapping
from typing import Any

from failsoft.fallback.choice import Choice, choices_of, completion_choice
from failsoft.fallback.chunk import Chunk
from failsoft.fallback.failure import Failure, bad_reply, cut, error_in_reply, error_object
from failsoft.fallback.reply import Usage

FAULT_FINISHES = frozenset({"error", "abort", "aborted", "cancelled", "deadline", "timeout"})
"""Finish reasons that say the reply is not whole, whatever text came before."""

_OPTIONAL_FIELDS = ("system_fingerprint", "service_tier", "prompt_logprobs")
_TOP_FIELDS = ("id", "created", "model", *_OPTIONAL_FIELDS)


class Assembly:
    """One reply under construction.

    Args:
        kind: ``"chat"`` or ``"completion"``.
        num_choices: Choices asked for over all prompts, at least 1.
    """

    __slots__ = (
        "_choices",
        "_kind",
        "_missing",
        "_num_choices",
        "_num_finished",
        "_top",
        "num_content_chunks",
        "usage",
    )

    def __init__(self, *, kind: str, num_choices: int) -> None:
        self._kind = kind
        self._num_choices = num_choices
        self._top: dict[str, Any] = {}
        self._missing: tuple[str, ...] = _TOP_FIELDS
        self._choices: dict[int, Choice] = {}
        self._num_finished = 0
        self.num_content_chunks = 0
        self.usage: Mapping[str, Any] | None = None

    def add(self, chunk: object) -> tuple[bool, Failure | None]:
        """Take one chunk in.

        Returns:
            Whether it carries content (text, reasoning, refusal or a tool call), and what is
            wrong with it, if anything.
        """
        if not isinstance(chunk, dict):
            return False, bad_reply("an event that is not a JSON object")
        if _is_error(chunk) and (error := error_object(chunk)) is not None:
            return False, error_in_reply(error)
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            return False, bad_reply("an event without choices")
        if chunk.get("usage"):
            self._take_usage(chunk["usage"])
        self._take_top(chunk)
        has_content = False
        for raw in choices:
            is_content, failure = self._add_choice(raw)
            if failure is not None:
                return False, failure
            has_content = has_content or is_content
        self.num_content_chunks += has_content
        return has_content, None

    def _add_choice(self, raw: object) -> tuple[bool, Failure | None]:
        if not isinstance(raw, dict):
            return False, bad_reply("a choice that is not an object")
        index = raw.get("index", 0)
        if not isinstance(index, int) or not 0 <= index < self._num_choices:
            return False, bad_reply("a choice that nobody asked for")
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = Choice()
        finish = raw.get("finish_reason")
        if finish is not None:
            if not isinstance(finish, str):
                return False, bad_reply("a finish reason that is no word")
            if finish in FAULT_FINISHES:
                return False, cut(f"finish reason {finish}")
            self._num_finished += choice.finish_reason is None
            choice.finish_reason = finish
        is_content = choice.add_text(raw) if self._kind == "completion" else choice.add_delta(raw)
        return (
            (False, bad_reply("a delta that is none")) if is_content is None else (is_content, None)
        )

    def _take_top(self, chunk: Chunk) -> None:
        """Keep the fields of the whole reply; the first chunk that has one counts."""
        found = False
        for name in self._missing:
            if (value := chunk.get(name)) is not None:
                self._top[name] = value
                found = True
        if found:
            self._missing = tuple(name for name in self._missing if name not in self._top)

    def add_completion(self, body: object) -> Failure | None:
        """Take a whole, unstreamed reply in: the endpoint ignored ``stream``."""
        if (error := error_object(body)) is not None:
            return error_in_reply(error)
        choices = choices_of(body)
        if choices is None or not isinstance(body, dict):
            return bad_reply("a JSON body that is no reply")
        as_deltas = [completion_choice(choice) for choice in choices]
        _, failure = self.add({**body, "choices": as_deltas})
        return failure

    def _take_usage(self, usage: object) -> None:
        if isinstance(usage, Mapping):
            self.usage = usage

    @property
    def is_finished(self) -> bool:
        """Whether every choice has its finish reason."""
        return self._num_finished == self._num_choices

    def judge_end(self) -> Failure | None:
        """Return why what is here is no whole reply; None when it is one."""
        if not self.is_finished:
            return cut("the stream ended without a finish reason")
        for choice in self._choices.values():
            if choice.has_content or choice.finish_reason == "content_filter":
                continue
            if choice.finish_reason in ("tool_calls", "function_call"):
                return bad_reply("finish reason tool_calls without a tool call")
            if not self._reported.num_output_tokens:
                return bad_reply("an empty reply and no token sampled")
        return None

    @property
    def is_plain_stop(self) -> bool:
        """Whether every choice is text that ended by ``stop``: what a cache may keep."""
        return bool(self._choices) and all(
            choice.finish_reason == "stop" and choice.text and not choice.has_calls
            for choice in self._choices.values()
        )

    @property
    def num_output_tokens(self) -> int | None:
        """Output tokens; None when nothing came and nothing was reported.

        As reported, once the reply is finished. Before that a report is a running count at
        best, so each content chunk counts for one token where that is more.
        """
        reported, counted = self._reported.num_output_tokens, self.num_content_chunks
        if reported and self.is_finished:
            return reported
        return max(reported or 0, counted) or reported

    @property
    def num_reported_tokens(self) -> int | None:
        """Output tokens as reported so far; None when not."""
        return self._reported.num_output_tokens

    @property
    def num_prompt_tokens(self) -> int | None:
        """Prompt tokens as reported; None when not."""
        return self._reported.num_prompt_tokens

    @property
    def num_cached_tokens(self) -> int | None:
        """Prompt tokens from the endpoint's prefix cache as reported; None when not."""
        return self._reported.num_cached_tokens

    @property
    def _reported(self) -> Usage:
        return Usage.reported(self.usage)

    @property
    def model(self) -> str | None:
        """What the endpoint calls its model."""
        return _text(self._top.get("model"))

    @property
    def fingerprint(self) -> str | None:
        """The endpoint's ``system_fingerprint``."""
        return _text(self._top.get("system_fingerprint"))

    @property
    def text(self) -> str:
        """The first choice's text so far."""
        return self._choices[0].text if 0 in self._choices else ""

    def completion(self) -> dict[str, Any]:
        """Return the OpenAI-shaped whole reply."""
        is_chat = self._kind == "chat"
        body: dict[str, Any] = {
            "id": self._top.get("id", ""),
            "object": "chat.completion" if is_chat else "text_completion",
            "created": self._top.get("created", int(time.time())),
            "model": self._top.get("model", ""),
            "choices": [
                choice.as_message(index) if is_chat else choice.as_text(index)
                for index, choice in sorted(self._choices.items())
            ],
        }
        for name in _OPTIONAL_FIELDS:
            if name in self._top:
                body[name] = self._top[name]
        if self.usage is not None:
            body["usage"] = dict(self.usage)
        return body


def _is_error(chunk: Chunk) -> bool:
    """Return whether *chunk* may be an error: one look that every good chunk passes."""
    return "error" in chunk or chunk.get("object") == "error" or chunk.get("type") == "error"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
