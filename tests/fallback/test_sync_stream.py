"""One streamed reply, read without an event loop."""

import time

import pytest

from failsoft.errors import StreamInterruptedError
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import ASK, PATIENT, make_client, settings_for

TEXT = "A0 A1 A2 "


def test_a_sync_stream_gives_deltas_and_a_reply(server_a: FaultServer) -> None:
    """As the async one does."""
    with make_client(settings_for(("a", server_a.url), timeouts=PATIENT)) as client:
        stream = client.stream(ASK)
        with pytest.raises(RuntimeError):
            _ = stream.reply
        deltas = list(stream)

        assert "".join(deltas) == stream.reply.text == TEXT
        assert deltas[0].chunk["model"] == "model-A"


def test_a_sync_stream_that_breaks_raises_after_its_deltas(server_a: FaultServer) -> None:
    """What was delivered is in hand and in the error."""
    server_a.plan(default={"do": "cut", "tokens": 5})
    seen: list[str] = []
    with make_client(settings_for(("a", server_a.url), timeouts=PATIENT)) as client:
        stream = client.stream(ASK)
        with pytest.raises(StreamInterruptedError) as caught:
            seen.extend(stream)

    assert "".join(seen) == caught.value.text == "A0 A1 A2 A3 A4 "


def test_breaking_out_of_a_sync_stream_cancels_it(server_a: FaultServer) -> None:
    """Long before any clock of the ladder; it takes milliseconds, the rest is slack."""
    server_a.plan(default={"do": "stall", "at": "token"})
    with make_client(settings_for(("a", server_a.url), timeouts=PATIENT)) as client:
        for _ in client.stream(ASK):
            break
        left_s = time.monotonic()

        closed_s = server_a.wait_closed(1)

    assert closed_s is not None
    assert closed_s - left_s < 1


def test_a_stream_that_was_left_yields_nothing_more(server_a: FaultServer) -> None:
    """Reading on used to raise asyncio's CancelledError out of a sync call."""
    server_a.plan(default={"do": "stall", "at": "token"})
    with make_client(settings_for(("a", server_a.url), timeouts=PATIENT)) as client:
        stream = client.stream(ASK)
        for _ in stream:
            break

        assert list(stream) == []
        with pytest.raises(RuntimeError):
            _ = stream.reply


def test_a_stream_that_was_closed_before_its_first_delta_asks_nothing(
    server_a: FaultServer,
) -> None:
    """Nothing is asked before the first is read."""
    with (
        make_client(settings_for(("a", server_a.url), timeouts=PATIENT)) as client,
        client.stream(ASK) as stream,
    ):
        stream.close()

        assert list(stream) == []
    assert server_a.hits == 0
