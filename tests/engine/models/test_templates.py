"""The plain template, rendered as transformers renders templates."""

from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from failsoft.engine.models.templates import PLAIN


def render(messages: list[dict[str, str]], **options: Any) -> str:
    """Render one chat."""
    texts, _ = render_jinja_template([messages], chat_template=PLAIN.text, **options)
    return str(texts[0])


def test_dialogue_is_written_as_plain_lines() -> None:
    """The last line is left open, without a space: the answer's first token brings it."""
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": " Hi "},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Bye"},
    ]

    text = render(messages, add_generation_prompt=True, bos_token="<bos>")

    assert text == "<bos>Be kind.\n\nUser: Hi\nAssistant: Hello\nUser: Bye\nAssistant:"


def test_tokenizer_without_a_beginning_token_adds_none() -> None:
    """An unset ``bos_token`` writes nothing."""
    assert render([{"role": "user", "content": "Hi"}]) == "User: Hi\n"


def test_stop_string_is_where_the_next_turn_would_begin() -> None:
    """A base model goes on to write the user's part; that is cut."""
    messages = [{"role": r, "content": "x"} for r in ("user", "assistant", "user")]

    assert PLAIN.stop_strings[0] in render(messages)


def test_unknown_role_is_an_error() -> None:
    """A tool's message would otherwise vanish from the prompt."""
    with pytest.raises(Exception, match="not tool"):
        render([{"role": "tool", "content": "x"}])
