"""One choice of a reply: merged from deltas, and turned back into them.

Knows nothing of streams or faults. Tool calls merge by their index, arguments
append; log probabilities append list by list; a field nobody knows keeps its last value.
vLLM's fields beside a choice's own are kept as they come.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")
_BESIDE = ("prompt_logprobs", "stop_reason")
"""vLLM's fields of a choice; neither is said twice."""
_KNOWN = frozenset({*_TEXT_FIELDS, "role", "tool_calls", "function_call"})


class Choice:
    """One choice under construction."""

    __slots__ = (
        "_beside",
        "_calls",
        "_extra",
        "_logprobs",
        "_texts",
        "finish_reason",
        "has_content",
    )

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._logprobs: dict[str, Any] | None = None
        self._extra: dict[str, Any] = {}
        self._beside: dict[str, Any] = {}
        self.finish_reason: str | None = None
        self.has_content = False

    @property
    def text(self) -> str:
        """Its text so far."""
        return "".join(self._texts.get("content", ()))

    @property
    def has_calls(self) -> bool:
        """Whether it called a tool."""
        return bool(self._calls)

    def add_text(self, raw: Mapping[str, Any]) -> bool | None:
        """Take a completion's piece in; None when it is malformed."""
        text = raw.get("text", "")
        if not isinstance(text, str):
            return None
        self._add_beside(raw)
        return self._append("content", text)

    def add_delta(self, raw: Mapping[str, Any]) -> bool | None:
        """Take a chat delta in; whether it carried content, None when it is malformed."""
        delta = raw.get("delta")
        if delta is None:
            delta = {}
        if not isinstance(delta, Mapping):
            return None
        self._add_beside(raw)
        is_content = False
        for name, value in delta.items():
            if value is None:
                continue
            if name in _TEXT_FIELDS:
                if not isinstance(value, str):
                    return None
                is_content = self._append(name, value) or is_content
            elif name == "tool_calls" or name == "function_call":
                added = self._add_calls(value if name == "tool_calls" else [{"function": value}])
                if added is None:
                    return None
                is_content = added or is_content
            elif name not in _KNOWN:
                self._extra[name] = value
        return is_content

    def _append(self, name: str, text: str) -> bool:
        if not text:
            return False
        self._texts.setdefault(name, []).append(text)
        self.has_content = True
        return True

    def _add_calls(self, calls: object) -> bool | None:
        if not isinstance(calls, list):
            return None
        for position, part in enumerate(calls):
            piece = _call_piece(part, position)
            if piece is None:
                return None
            call = self._calls.setdefault(piece.place, {"function": {"name": "", "arguments": ""}})
            call.update({k: v for k, v in part.items() if k not in ("index", "function") and v})
            call["function"]["name"] += piece.name
            call["function"]["arguments"] += piece.arguments
            self.has_content = True
        return bool(calls)

    def _add_beside(self, raw: Mapping[str, Any]) -> None:
        """Take in what stands beside the text."""
        for name in _BESIDE:
            if raw.get(name) is not None:
                self._beside[name] = raw[name]
        logprobs = raw.get("logprobs")
        if not isinstance(logprobs, Mapping):
            return
        merged = self._logprobs = self._logprobs or {}
        for name, value in logprobs.items():
            if not isinstance(value, list):
                merged[name] = value
            elif isinstance(known := merged.get(name), list):
                known.extend(value)
            else:
                merged[name] = list(value)  # its chunk goes on to the caller as it came

    def as_message(self, index: int) -> dict[str, Any]:
        """Return the chat choice."""
        content = self._texts.get("content")
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(content or ()) if content or not self._calls else None,
        }
        for name in _TEXT_FIELDS[1:]:
            if name in self._texts:
                message[name] = "".join(self._texts[name])
        if self._calls:
            calls = [call for _, call in sorted(self._calls.items())]
            message["tool_calls"] = [{"type": "function", **call} for call in calls]
        message.update(self._extra)
        return {
            "index": index,
            "message": message,
            "logprobs": self._logprobs,
            "finish_reason": self.finish_reason,
            **self._beside,
        }

    def as_text(self, index: int) -> dict[str, Any]:
        """Return the completion choice."""
        return {
            "index": index,
            "text": self.text,
            "logprobs": self._logprobs,
            "finish_reason": self.finish_reason,
            **self._beside,
        }


class _CallPiece(NamedTuple):
    place: int
    name: str
    arguments: str


def _call_piece(part: object, position: int) -> _CallPiece | None:
    """Return what one piece of a tool call adds; None when it is malformed."""
    function = (part.get("function") or {}) if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or not isinstance(function, Mapping):
        return None
    index = part.get("index")
    piece = (
        position if index is None else index,
        function.get("name") or "",
        function.get("arguments") or "",
    )
    is_well_formed = all(map(isinstance, piece, (int, str, str)))
    return _CallPiece(*piece) if is_well_formed else None


def choices_of(body: object) -> list[Any] | None:
    """Return the choices of a whole reply; None when it has none."""
    choices = body.get("choices") if isinstance(body, Mapping) else None
    return choices if isinstance(choices, list) and choices else None


def completion_choice(choice: object) -> object:
    """Return a whole reply's choice in the shape of one delta."""
    if not isinstance(choice, Mapping) or "message" not in choice:
        return choice
    delta = {**choice, "delta": choice["message"]}
    del delta["message"]
    return delta


def chunks_of(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a whole reply as stream chunks: one with the text, one with the end and the usage."""
    is_chat = body.get("object") == "chat.completion"
    head = {k: v for k, v in body.items() if k not in ("choices", "usage", *_BESIDE)}
    head["object"] = "chat.completion.chunk" if is_chat else "text_completion"
    choices = body["choices"]
    once = {k: body[k] for k in _BESIDE if k in body}
    for choice in choices:
        delta = {**_as_delta(choice, is_chat), "finish_reason": None}
        yield {**head, "choices": [delta], **once}
        once = {}
    for choice in choices:
        end: dict[str, Any] = {"delta": {}} if is_chat else {"text": ""}
        end.update(index=choice["index"], logprobs=None, finish_reason=choice["finish_reason"])
        yield {**head, "choices": [end]}
    if body.get("usage") is not None:
        yield {**head, "choices": [], "usage": body["usage"]}


def _as_delta(choice: Mapping[str, Any], is_chat: bool) -> dict[str, Any]:
    if not is_chat:
        return dict(choice)
    delta = dict(choice["message"])
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(delta["tool_calls"])]
    own = {"index": choice["index"], "delta": delta, "logprobs": choice.get("logprobs")}
    return {**own, **{k: choice[k] for k in _BESIDE if k in choice}}
