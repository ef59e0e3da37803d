"""Events out of bytes, however they are cut."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.fallback.sse import MAX_EVENT_BYTES, SSEParser

STREAM = b': hi\n\ndata: {"a": 1}\n\nevent: x\ndata: b\ndata: c\n\nid: 3\n\n\ndata:d\n\n'
EVENTS = [b'{"a": 1}', b"b\nc", b"d"]


def parse(pieces: list[bytes]) -> list[bytes]:
    """Feed *pieces* to one parser."""
    parser = SSEParser()
    return [event for piece in pieces for event in parser.feed(piece)]


@given(
    st.lists(st.integers(0, len(STREAM)), max_size=10),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_where_bytes_are_cut_changes_no_event(cuts: list[int], newline: bytes) -> None:
    """LF, CRLF and CR; also a cut between CR and LF."""
    stream = STREAM.replace(b"\n", newline)
    points = sorted({0, *(min(c, len(stream)) for c in cuts), len(stream)})

    pieces = [stream[a:b] for a, b in pairwise(points)]

    assert parse(pieces) == EVENTS


def test_an_event_without_its_blank_line_was_never_sent() -> None:
    """What is left tells that the stream was cut inside an event."""
    parser = SSEParser()

    assert parser.feed(b"data: a\n") == []
    assert parser.has_rest


def test_comments_are_nothing() -> None:
    """Keep-alives must reset no clock."""
    assert parse([b": ping\n\n", b":\n\n"]) == []


def test_a_byte_order_mark_is_no_data() -> None:
    """Some servers send one."""
    assert parse([b"\xef\xbb\xbfdata: a\n\n"]) == [b"a"]


def test_an_event_without_end_is_noticed() -> None:
    """A peer that never ends a line must not fill memory."""
    parser = SSEParser()
    parser.feed(b"data: " + b"x" * MAX_EVENT_BYTES)

    assert parser.is_overlong


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_a_byte_order_mark_may_come_in_pieces(cut: int) -> None:
    """A packet may end inside it; the first event used to be lost."""
    stream = b"\xef\xbb\xbfdata: a\n\n"

    assert parse([b"", stream[:cut], stream[cut:]]) == [b"a"]
    assert parse([stream[i : i + 1] for i in range(len(stream))]) == [b"a"]


def test_half_a_byte_order_mark_is_the_beginning_of_something_else() -> None:
    """Nothing is dropped that is none, and alone it is a stream that was cut."""
    parser = SSEParser()

    assert parser.feed(b"\xef\xbb") == []
    assert parser.has_rest
    assert parser.feed(b"\n\ndata: a\n\n") == [b"a"]


def test_a_long_event_in_small_pieces_costs_its_length_once() -> None:
    """It used to be copied and searched from its start for every piece: seconds of the loop."""
    data = b"x" * (MAX_EVENT_BYTES - 100)
    stream = b"data: " + data + b"\n\n"
    began_s = time.monotonic()

    events = parse([stream[i : i + 512] for i in range(0, len(stream), 512)])

    assert events == [data]
    assert time.monotonic() - began_s < 1
