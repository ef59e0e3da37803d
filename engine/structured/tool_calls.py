"""Tool calls in a reply's text, found while it streams.

Two readers, one notation (`failsoft.engine.text.tool_turns`). `ForcedCalls` reads a reply
whose grammar allows only calls, and passes a call's arguments on as they come. `FreeCalls`
reads a reply that may call: it holds a call back until it is whole and proves to be one, or
cannot be one any more, for what is not a call is text, and text must not be lost. Knows nothing
of tokens or HTTP.
"""

import json
import re
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from failsoft.engine.text.tool_turns import CALL_CLOSE, CALL_OPEN

_HEAD = re.compile(
    re.escape(CALL_OPEN) + r'\n\{"name": ("(?:[^"\\]|\\.)*"), "arguments": (?=\{)', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class CallOpened:
    """A call begins."""

    index: int
    """Its place among the reply's calls, from 0."""
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the arguments of the call opened last, as JSON text."""

    index: int
    text: str


Part = Content | CallOpened | CallArguments


class CallReader(Protocol):
    """Reads one reply."""

    num_calls: int
    """Calls opened so far."""

    @property
    def is_in_call(self) -> bool:
        """Whether the call opened last is not whole yet."""

    def push(self, text: str) -> list[Part]:
        """Take text in and return what is certain now."""

    def flush(self) -> list[Part]:
        """Return what was still held, now that no more text comes."""


class ForcedCalls:
    """Reads a reply of calls alone, written as their grammar writes them."""

    def __init__(self) -> None:
        self.num_calls = 0
        self._held = ""
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False

    @property
    def is_in_call(self) -> bool:
        """See `CallReader.is_in_call`."""
        return self._depth > 0

    def push(self, text: str) -> list[Part]:
        """See `CallReader.push`."""
        parts: list[Part] = []
        self._held += text
        while self._held:
            if not self._depth:
                found = _HEAD.search(self._held)
                if found is None:
                    break
                parts.append(self._open(json.loads(found[1])))
                self._held = self._held[found.end() :]
            end = self._end_of_arguments()
            parts.append(CallArguments(self.num_calls - 1, self._held[:end]))
            self._held = self._held[end:]
        return parts

    def flush(self) -> list[Part]:
        """See `CallReader.flush`; a first call cut before its arguments is no call but text.

        Behind a call there is only notation: its end, and the head of a next one that was cut.
        """
        rest, self._held = self._held, ""
        return [Content(rest)] if rest and not self.num_calls else []

    def _open(self, name: str) -> CallOpened:
        self.num_calls += 1
        return CallOpened(self.num_calls - 1, new_call_id(), name)

    def _end_of_arguments(self) -> int:
        """Return where the arguments end in the held text, or its length; follows the braces."""
        for place, char in enumerate(self._held):
            if self._is_in_string:
                if self._is_escaped:
                    self._is_escaped = False
                elif char == "\\":
                    self._is_escaped = True
                elif char == '"':
                    self._is_in_string = False
            elif char == '"':
                self._is_in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if not self._depth:
                    return place + 1
        return len(self._held)


class FreeCalls:
    """Reads a reply that may call tools, and says nothing of how it is written otherwise.

    Args:
        names: Tools that may be called; a call of another is text.
    """

    is_in_call = False
    """A call is opened once it is whole."""

    def __init__(self, names: Collection[str]) -> None:
        self.num_calls = 0
        self._names = frozenset(names)
        self._held = ""
        self._is_in_call = False
        self._has_text = False
        """Whether text that is not blank came since the beginning, or since a call."""
        self._blanks = ""
        """What was left out before the call under way; it comes back if that is none."""

    def push(self, text: str) -> list[Part]:
        """See `CallReader.push`."""
        parts: list[Part] = []
        self._held += text
        while True:
            if self._is_in_call and _begins_otherwise(self._held):
                parts += self._end_no_call(CALL_OPEN)
                self._is_in_call = False
            tag = CALL_CLOSE if self._is_in_call else CALL_OPEN
            place = self._held.find(tag)
            if place < 0:
                break
            before, self._held = self._held[:place], self._held[place + len(tag) :]
            if self._is_in_call:
                parts += self._end_call(before, f"{CALL_OPEN}{before}{CALL_CLOSE}")
            else:
                parts += self._let_out(before, is_before_call=True)
            self._is_in_call = not self._is_in_call
        if not self._is_in_call:
            keep = _num_begun(self._held, CALL_OPEN)
            sure, self._held = (
                self._held[: len(self._held) - keep],
                self._held[-keep:] if keep else "",
            )
            parts += self._let_out(sure, is_before_call=False)
        return parts

    def flush(self) -> list[Part]:
        """See `CallReader.flush`; a last call without its closing tag may still be whole."""
        rest, self._held = self._held, ""
        if self._is_in_call:
            self._is_in_call = False
            return self._end_call(rest, CALL_OPEN + rest)
        return self._text(rest) if rest.strip() or not self.num_calls else []

    def _let_out(self, text: str, *, is_before_call: bool) -> list[Part]:
        """Return *text* as content; blanks around calls separate, and are part of nothing."""
        if self._has_text or text.strip():
            return self._text(text)
        if is_before_call:
            self._blanks = text
        else:
            self._held = text + self._held
        return []

    def _text(self, text: str) -> list[Part]:
        self._has_text = self._has_text or bool(text.strip())
        return [Content(text)] if text else []

    def _end_call(self, body: str, written: str) -> list[Part]:
        """Return the calls that *body* holds, or what was *written* when it holds none."""
        calls = _parse_calls(body, self._names)
        if calls is None:
            return self._end_no_call(written)
        self._blanks = ""
        self._has_text = False
        parts: list[Part] = []
        for name, arguments in calls:
            parts.append(CallOpened(self.num_calls, new_call_id(), name))
            parts.append(CallArguments(self.num_calls, arguments))
            self.num_calls += 1
        return parts

    def _end_no_call(self, written: str) -> list[Part]:
        blanks, self._blanks = self._blanks, ""
        return self._text(blanks + written)


def whole_calls(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return the calls in *parts* as OpenAI writes them in a whole message."""
    calls: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, CallOpened):
            function = {"name": part.name, "arguments": ""}
            calls.append({"id": part.call_id, "type": "function", "function": function})
        elif isinstance(part, CallArguments):
            calls[part.index]["function"]["arguments"] += part.text
    return calls


def new_call_id() -> str:
    """Return an id that no other call has."""
    return f"call_{secrets.token_hex(12)}"


def _begins_otherwise(body: str) -> bool:
    """Return whether *body* begins as no call does, with neither an object nor a list."""
    begun = body.lstrip(" \t\n\r")
    return bool(begun) and begun[0] not in "{["


def _parse_calls(body: str, names: Collection[str]) -> list[tuple[str, str]] | None:
    """Return (name, arguments as JSON text) of each call in *body*; None when one is none."""
    try:
        parsed = json.loads(body)
        calls = [_parse_call(call) for call in (parsed if isinstance(parsed, list) else [parsed])]
    except (ValueError, RecursionError):
        return None
    sound = [call for call in calls if call is not None and call[0] in names]
    return sound if sound and len(sound) == len(calls) else None


def _parse_call(call: Any) -> tuple[str, str] | None:
    """Return a call's name and arguments; None when it has no name, or they are no object.

    Raises:
        ValueError: Its arguments are text that is not JSON, or hold a number that JSON has not.
    """
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", call.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(arguments, dict):
        return None
    written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    if not _is_unicode(written):  # half of a surrogate pair: only as the escape that it came as
        written = json.dumps(arguments, allow_nan=False)
    return call["name"], written


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _num_begun(text: str, tag: str) -> int:
    """Return the length of the longest end of *text* that *tag* begins with."""
    longest = min(len(tag) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if tag.startswith(text[-n:])), 0)
