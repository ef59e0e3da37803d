"""How a chat's choices are written: whole messages, or deltas of text and of tool calls.

The role goes with a choice's first delta, so that a client's first chunk is its first text.
Log probabilities go with the text of their token, or with the next chunk while a call holds
that text back.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from failsoft.engine.http.answers import CollectedChoice
from failsoft.engine.http.choice import Part, ShownToken
from failsoft.engine.http.generation import Delta, Ended, Update
from failsoft.engine.http.logprob_shapes import chat_logprobs, prompt_logprobs
from failsoft.engine.http.schemas import ChatBody
from failsoft.engine.structured import tool_calls
from failsoft.engine.structured.tool_calls import CallArguments, CallOpened, CallReader, Content
from failsoft.engine.text.codec import TextCodec


class ChatShape:
    """Writes the choices of one answer.

    Args:
        body: What was asked.
        codec: Spells tokens.
        make_reader: Makes a reader of tool calls for each choice; None when nothing may call.
    """

    def __init__(
        self, body: ChatBody, codec: TextCodec, make_reader: Callable[[], CallReader] | None
    ) -> None:
        self._num_top = body.top_logprobs or 0
        self._wants_logprobs = body.logprobs or False
        self._num_prompt_top = body.prompt_logprobs or 0
        self._texts = codec.token_texts
        self._make_reader = make_reader
        self._readers: dict[int, CallReader] = {}
        self._begun: set[int] = set()
        """Choices whose role is sent."""
        self._held: dict[int, tuple[ShownToken, ...]] = {}
        """Tokens whose log probabilities wait for a chunk."""

    def delta(self, delta: Delta) -> list[str]:
        """See `ChoiceShape.delta`."""
        if self._make_reader is None:
            content = f'"content":{json.dumps(delta.part.text)}'
            return [self._choice(delta.index, content, delta.part.tokens, "null")]
        if delta.index not in self._readers:
            self._readers[delta.index] = self._make_reader()
        self._held[delta.index] = self._held.get(delta.index, ()) + delta.part.tokens
        fields = [*map(_delta_fields, self._readers[delta.index].push(delta.part.text))]
        if not fields and delta.part.prompt is not None:
            fields = ['"content":""']  # what stands beside it is due now
        return self._let_out(delta.index, fields)

    def end(self, ended: Ended) -> list[str]:
        """See `ChoiceShape.end`."""
        reader = self._readers.get(ended.index)
        chunks = []
        if reader is not None:
            chunks = self._let_out(ended.index, map(_delta_fields, reader.flush()))
        reason = _reason(ended.finish_reason, reader)
        # An answer without any text still has a content.
        content = "" if ended.index in self._begun else '"content":""'
        tokens = self._held.pop(ended.index, ())
        return [*chunks, self._choice(ended.index, content, tokens, f'"{reason}"')]

    def idle(self, index: int) -> str:
        """See `ChoiceShape.idle`; the role waits for a delta that says something."""
        return f'{{"index":{index},"delta":{{}},"logprobs":null,"finish_reason":null}}'

    def beside(self, update: Update) -> str:
        """VLLM has the prompt's log probabilities at the top of a chat's answer."""
        if not isinstance(update, Delta) or update.index or update.part.prompt is None:
            return ""
        return f',"prompt_logprobs":{json.dumps(self._prompt(update.part))}'

    def whole(self, choices: list[CollectedChoice]) -> dict[str, Any]:
        """Return the answer's own fields."""
        fields: dict[str, Any] = {"choices": [self._message(choice) for choice in choices]}
        if choices[0].part.prompt is not None:
            fields["prompt_logprobs"] = self._prompt(choices[0].part)
        return fields

    def _let_out(self, index: int, fields: Iterable[str]) -> list[str]:
        return [self._choice(index, each, self._held.pop(index, ()), "null") for each in fields]

    def _choice(
        self, index: int, content: str, tokens: tuple[ShownToken, ...], finish_reason: str
    ) -> str:
        logprobs = json.dumps(self._logprobs(tokens)) if tokens else "null"
        role = "" if index in self._begun else '"role":"assistant",'
        self._begun.add(index)
        return (
            f'{{"index":{index},"delta":{{{role}{content}}},'
            f'"logprobs":{logprobs},"finish_reason":{finish_reason}}}'
        )

    def _message(self, choice: CollectedChoice) -> dict[str, Any]:
        reader = self._make_reader() if self._make_reader else None
        message: dict[str, Any] = {"role": "assistant", "content": choice.part.text}
        if reader is not None:
            parts = [*reader.push(choice.part.text), *reader.flush()]
            message["content"] = "".join(p.text for p in parts if isinstance(p, Content))
            if calls := tool_calls.whole_calls(parts):
                message["content"] = message["content"] or None
                message["tool_calls"] = calls
        return {
            "index": choice.index,
            "message": {**message, "refusal": None},
            "logprobs": self._logprobs(choice.part.tokens),
            "finish_reason": _reason(choice.finish_reason, reader),
        }

    def _logprobs(self, tokens: Iterable[ShownToken]) -> dict[str, Any] | None:
        if not self._wants_logprobs:
            return None
        return chat_logprobs(tokens, self._texts, num_top=self._num_top)

    def _prompt(self, part: Part) -> list[dict[str, Any] | None]:
        assert part.prompt is not None
        return prompt_logprobs(part.prompt, self._texts, num_top=self._num_prompt_top)


def _reason(finish_reason: str, reader: CallReader | None) -> str:
    has_called = reader is not None and reader.num_calls and finish_reason == "stop"
    return "tool_calls" if has_called else finish_reason


def _delta_fields(part: tool_calls.Part) -> str:
    """Return the fields of a delta that carries *part*, as JSON without the braces."""
    if isinstance(part, Content):
        return f'"content":{json.dumps(part.text)}'
    if isinstance(part, CallArguments):
        return f'"tool_calls":[{json.dumps(_arguments(part))}]'
    return f'"content":null,"tool_calls":[{json.dumps(_opened(part))}]'


def _opened(part: CallOpened) -> dict[str, Any]:
    function = {"name": part.name, "arguments": ""}
    return {"index": part.index, "id": part.call_id, "type": "function", "function": function}


def _arguments(part: CallArguments) -> dict[str, Any]:
    return {"index": part.index, "function": {"arguments": part.text}}
