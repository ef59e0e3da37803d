"""Chunks as they came and as they go on."""

import pytest

from failsoft.fallback.chunk import WireChunk, chunk_bytes, parse_chunk


def parsed(data: bytes) -> WireChunk:
    """The chunk of one event's data."""
    chunk = parse_chunk(data)
    assert isinstance(chunk, WireChunk)
    return chunk


@pytest.mark.parametrize(
    "data", [b'{"choices": [ ]}', '{"text":"é 漢 🙂"}'.encode(), b'{"text":"a\\nb\\u2028"}']
)
def test_a_chunk_goes_on_byte_for_byte(data: bytes) -> None:
    """Spaces, key order and escapes of its endpoint included."""
    assert chunk_bytes(parsed(data)) == data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a":\n1}', b'{"a":1}'),
        ('{"a":"x\u2028y"}'.encode(), b'{"a":"x\\u2028y"}'),
        ('{"a":"x\u2029y"}'.encode(), b'{"a":"x\\u2029y"}'),
        ('{"a":"x\x85y"}'.encode(), b'{"a":"x\\u0085y"}'),
    ],
)
def test_a_chunk_that_is_no_single_line_is_written_anew(data: bytes, expected: bytes) -> None:
    """Data of several lines, or characters at which ``str.splitlines`` splits."""
    assert chunk_bytes(parsed(data)) == expected


def test_a_chunk_of_ours_is_written_in_ascii() -> None:
    """Out of the cache; half a surrogate pair stays an escape."""
    assert chunk_bytes({"a": "é\ud83d"}) == b'{"a":"\\u00e9\\ud83d"}'


@pytest.mark.parametrize("data", [b"", b"{", b"\xff{}", b'{"a":"\xed\xa0\xbd"}', b"\xef\xbb\xbf{}"])
def test_what_is_no_json_in_utf8_is_refused(data: bytes) -> None:
    """Half a surrogate pair in bytes too: no strict client could read it."""
    with pytest.raises(ValueError, match=r".*"):
        parse_chunk(data)


@pytest.mark.parametrize("data", [b"[]", b'"text"', b"7", b"null"])
def test_json_that_is_no_object_is_handed_on_for_judgement(data: bytes) -> None:
    """The assembly says what is wrong with it."""
    assert not isinstance(parse_chunk(data), dict)
