"""JSON from an endpoint."""

import pytest

from failsoft.fallback.outside_json import parse_json


def test_json_is_parsed() -> None:
    """From text or bytes."""
    assert parse_json(b'{"a": [1]}') == parse_json('{"a": [1]}') == {"a": [1]}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property"),
        (b'"\xff"', "codec"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 5000, "digits"),
    ],
)
def test_what_is_no_json_is_one_error(raw: bytes, words: str) -> None:
    """A text of brackets alone used to end the call with a RecursionError."""
    with pytest.raises(ValueError, match=words):
        parse_json(raw)
