"""No user's text and no key in what a program logs: messages, ``repr`` and tracebacks."""

import asyncio
import logging
import traceback
from dataclasses import replace

import pytest

from failsoft.call_records import CallText
from failsoft.config.settings import StoreConfig
from failsoft.errors import CallRefusedError, LadderExhaustedError, StreamInterruptedError
from failsoft.fallback.call import CallRequest
from failsoft.fallback.failure import status_failure
from failsoft.idempotency_records import IdempotencyEntry, IdempotencyState
from failsoft.reply_records import CachedReply
from tests.fallback.fault_server import Fault, FaultServer
from tests.fallback.faults import ERROR, ROLE, sse, whole
from tests.fallback.rig import ASK, PATIENT, TWICE, make_rig, settings_for

DELTA = 'data: {"choices": [{"index": 0, "delta": {"content": "SECRET-DELTA "}}]}\n\n'
HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
QUOTING: dict[str, Fault] = {
    "status": {"do": "status", "status": 500, "code": "bad"},
    "refusal": {"do": "status", "status": 400, "code": "bad"},
    "error-event": sse(ROLE, ERROR),
    "broken-json": whole('{"SECRET'),
    "broken-head": {"do": "raw", "bytes": "HTTP/1.1 200 OK\r\nSECRET broken\r\n\r\n"},
    "broken-chunk": {"do": "raw", "bytes": f"{HEAD}{len(DELTA):x}\r\n{DELTA}\r\nSECRET\r\n"},
    "cut": {"do": "cut", "tokens": 3, "how": "event"},
}


@pytest.mark.parametrize("fault", QUOTING.values(), ids=QUOTING.keys())
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_an_error_quotes_nobody_in_message_traceback_or_log(
    server_a: FaultServer, caplog: pytest.LogCaptureFixture, fault: Fault, is_stream: bool
) -> None:
    """The HTTP library's own words quote the bytes they could not read: they are left out."""
    caplog.set_level(logging.DEBUG, logger="failsoft")
    server_a.plan(default=fault)
    rig = make_rig(settings_for(("a", server_a.url), retry=TWICE, timeouts=PATIENT))

    async def run() -> str:
        async with rig.client as client:
            try:
                if is_stream:
                    async for _ in client.stream(ASK):
                        pass
                else:
                    await client.chat(ASK)
            except (CallRefusedError, LadderExhaustedError, StreamInterruptedError) as exc:
                cause = repr(getattr(exc, "cause", None))
                return "".join(traceback.format_exception(exc)) + repr(exc) + cause
        return "no error"

    words = asyncio.run(run())

    assert "Error" in words
    assert "SECRET" not in words
    assert "SECRET" not in caplog.text
    assert "SECRET" not in str(rig.recorder.records)


def test_a_repr_shows_no_text() -> None:
    """Objects that carry a user's words may end up in any log."""
    secret = "SECRET"
    objects = [
        status_failure(
            500, body={"error": {"message": secret}}, retry_after_s=None, should_retry=None
        ),
        CallRequest(
            kind="chat",
            body={"messages": [{"content": secret}]},
            ladder="chat",
            idempotency_key=secret,
        ),
        CallText(call_id="c", tenant="", at_ms=0, request_json=secret, reply_json=secret),
        CachedReply(
            key="k",
            tenant="",
            version_digest=None,
            ladder="chat",
            created_at_ms=0,
            reply_json=secret,
        ),
        IdempotencyEntry(
            state=IdempotencyState.DONE,
            key=secret,
            tenant="",
            fingerprint="f",
            reply_json=secret,
        ),
    ]

    assert all("SECRET" not in repr(one) for one in objects)


def test_kept_text_stands_in_no_repr_of_the_records(server_a: FaultServer) -> None:
    """Not even under ``keep_text = "all"``."""
    settings = settings_for(("a", server_a.url), "cache")
    rig = make_rig(replace(settings, store=StoreConfig(keep_text="all")))

    async def run() -> None:
        async with rig.client as client:
            await client.chat(ASK)

    asyncio.run(run())

    assert "SECRET-PROMPT" in rig.recorder.records.texts[0].request_json
    assert "SECRET-PROMPT" not in str(rig.recorder.records)
