"""Versions as people read them: lines of at most 80 columns where their content allows it.

Knows nothing of stores. Texts of several lines (templates, prompts) are shown in one, with
their line ends escaped.
"""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher

_WORD = re.compile(r"\s+|\w+|[^\w\s]")
_CONTEXT = 24
"""Characters shown on each side of words that differ."""
_SHORT = 60
"""A text that is no longer is shown whole."""
_ALIKE = 0.6
"""Share of two texts' words that both have, in order, from which a comparison is readable."""
_HEX_SHOWN = 12


def value_text(value: object) -> str:
    """Return *value* in few words; None, an empty list and an empty table are a dash.

    >>> value_text({"temperature": 0.2, "top_p": 0.9})
    'temperature 0.2, top_p 0.9'
    >>> value_text(["User:", "###"])
    '"User:", "###"'
    """
    if value is None or value in ([], {}):
        return "-"
    if isinstance(value, Mapping):
        shown = {key: item for key, item in value.items() if item is not None}
        return ", ".join(f"{key} {_plain(item)}" for key, item in shown.items())
    if isinstance(value, list):
        return ", ".join(json.dumps(item, ensure_ascii=False) for item in value)
    return _plain(value)


def long_text(text: str) -> str:
    """Return the beginning of *text* and how long it is, or all of it when it is short."""
    line = json.dumps(text, ensure_ascii=False)
    if len(line) <= _SHORT:
        return line
    return f"{line[: _SHORT - 20]}…, {len(text)} characters"


def difference_lines(key: str, a: object, b: object) -> Iterator[str]:
    """Yield the lines that say how *key* differs: word by word where two long texts are alike."""
    hunks = list(word_hunks(a, b)) if _is_prose(a) and _is_prose(b) else []
    if hunks:
        yield f"{key}:"
        yield from (f"  {hunk}" for hunk in hunks)
    elif isinstance(a, dict) and isinstance(b, dict):
        for name in dict.fromkeys([*a, *b]):
            if a.get(name) != b.get(name):
                yield f"{key} {name}: {_one(a.get(name))} -> {_one(b.get(name))}"
    else:
        yield f"{key}: {_one(a)} -> {_one(b)}"


def word_hunks(a: object, b: object) -> Iterator[str]:
    """Yield each place where the words of two texts differ, with what stands around it.

    Nothing for texts that have little in common: that would be harder to read than both.

    >>> list(word_hunks("Answer in one sentence.", "Answer in two sentences."))
    ['Answer in [-one-]{+two+} [-sentence-]{+sentences+}.']
    """
    words_a, words_b = _WORD.findall(str(a)), _WORD.findall(str(b))
    matcher = SequenceMatcher(None, words_a, words_b, autojunk=False)
    if matcher.ratio() < _ALIKE:
        return
    hunk = ""
    for kind, start_a, end_a, start_b, end_b in matcher.get_opcodes():
        old, new = "".join(words_a[start_a:end_a]), "".join(words_b[start_b:end_b])
        if kind != "equal":
            hunk += f"[-{old}-]" * bool(old) + f"{{+{new}+}}" * bool(new)
        elif len(old) <= 2 * _CONTEXT:
            hunk += old
        else:  # far from one difference to the next: what is between is left out
            if hunk:
                yield _in_one_line(f"{hunk}{old[:_CONTEXT]}…")
            hunk = f"…{old[-_CONTEXT:]}"
    if kind != "equal" or len(old) <= 2 * _CONTEXT:
        yield _in_one_line(hunk)


def _is_prose(value: object) -> bool:
    return isinstance(value, str) and len(value) > _SHORT and " " in value


def _in_one_line(text: str) -> str:
    return text.replace("\n", "⏎")


def _one(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
        return value[:_HEX_SHOWN]
    if isinstance(value, str) and " " not in value:
        return value if len(value) <= _SHORT else f"{value[:_SHORT]}…"
    return long_text(value) if isinstance(value, str) else value_text(value)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
