"""What a front says of itself: readiness, the status for our processes, metrics."""

import os
from pathlib import Path
from typing import Any

import pytest

from failsoft.call_records import AttemptOutcome, AttemptRecord
from failsoft.fallback.discovery import RunningEngine, publish_engine
from failsoft.fallback.memory_store import MemoryRecorder
from failsoft.serving.front.recorder import MAX_CALLS, CountingRecorder
from tests.fallback.fault_server import FaultServer
from tests.serving.front.rig import FrontProcess, front, toml

LOCAL = """
[pins]
primary = "smollm2-135m-instruct"
[endpoints.local]
pin = "primary"
[ladders.chat]
rungs = ["local", "cache"]
"""
DIGEST = "ab" * 32


def publish(process: FrontProcess, server: FaultServer, *, pid: int | None = None) -> None:
    """Put *server* where a local engine would say that it listens."""
    engine = RunningEngine(
        slot="primary",
        url=server.url,
        pid=pid or os.getpid(),
        version="running-v1",
        token="boot-secret",
        version_digest=DIGEST,
        max_model_len=2048,
    )
    publish_engine(process.home, engine)


def test_a_front_without_its_engines_is_not_ready_and_says_why(tmp_path: Path) -> None:
    """Until one is published: then it is ready at once and asks it with its token."""
    with FaultServer("A") as server, front(tmp_path, LOCAL) as process:
        before = process.get("/health/ready")
        refused = process.post()
        rung = process.status()["ladders"][0]["rungs"][0]
        publish(process, server)
        after = process.get("/health/ready")
        reply = process.post()
        running = process.status()["ladders"][0]["rungs"][0]

        assert before.status_code == 503
        assert "no engine is published for slot primary" in before.json()["reasons"][0]
        assert refused.status_code == 503
        assert (rung["can_serve"], rung["slot"], rung["kind"]) == (False, "primary", "engine")
        assert rung["version_name"] == "smollm2-135m-instruct"
        assert rung["why_not"] == before.json()["reasons"][0].removeprefix("chat: local: ")
        assert rung["last_error"]["outcome"] == "connect_failed"
        assert after.status_code == 200
        assert reply.headers["x-failsoft-rung"] == "local"
        sent = server.stats()["requests"][0]
        assert sent["headers"]["authorization"] == "bearer boot-secret"  # the server lowers it
        assert (running["can_serve"], running["version_name"]) == (True, "running-v1")
        assert running["version_digest"] == DIGEST


def test_two_tenants_get_two_salts_that_no_body_can_forge(tmp_path: Path) -> None:
    """An engine's prefix cache tells neither by its timing what the other asked."""
    with FaultServer("A") as server, front(tmp_path, LOCAL) as process:
        publish(process, server)
        for tenant in ("t1", "t2"):
            process.post(headers={"x-failsoft-tenant": tenant, "x-failsoft-cache": "off"})
        salts = [request["body"]["cache_salt"] for request in server.stats()["requests"]]
        process.post(
            headers={"x-failsoft-tenant": "t2", "x-failsoft-cache": "off"}, cache_salt=salts[0]
        )
        forged = server.stats()["requests"][2]["body"]["cache_salt"]

    assert len({*salts, forged}) == 3
    assert all(len(salt) == 64 for salt in (*salts, forged))


def test_an_open_breaker_makes_the_front_not_ready_until_a_probe_is_due(tmp_path: Path) -> None:
    """Its only model fails; the breaker's state and wait are in status and metrics."""
    with FaultServer("A") as server:
        settings = toml(server, cache=False)
        settings = settings.replace("min_calls = 100000", "min_calls = 2\nopen_s = 60")
        server.plan(default={"do": "status", "status": 500})
        with front(tmp_path, settings) as process:
            for _ in range(2):
                process.post()
            ready = process.get("/health/ready")
            rung = process.status()["ladders"][0]["rungs"][0]

            assert ready.status_code == 503
            assert "left alone after failures" in ready.json()["reasons"][0]
            assert rung["breaker"] == "open"
            assert 50 < rung["retry_in_s"] <= 66
            line = 'failsoft_breaker_state{endpoint="a",ladder="chat",state="%s"}'
            assert [process.metric(line % s) for s in ("open", "closed", "half_open")] == [1, 0, 0]


def test_calls_attempts_and_hits_are_counted(
    shared: FrontProcess, server_a: FaultServer, server_b: FaultServer
) -> None:
    """By ladder, rung, outcome and version, from the records that go to the store."""
    lines = [
        'failsoft_replies_total{ladder="chat",rung="b",version="dddddddddddd"}',
        'failsoft_replies_total{ladder="chat",rung="cache",version="dddddddddddd"}',
        'failsoft_attempts_total{ladder="chat",outcome="http_status",rung="a",version=""}',
        'failsoft_attempts_total{ladder="chat",outcome="ok",rung="b",version="dddddddddddd"}',
        'failsoft_reply_cache_hits_total{freshness="fresh",ladder="chat",version="dddddddddddd"}',
        'failsoft_call_duration_seconds_count{ladder="chat",version="dddddddddddd"}',
        'failsoft_time_to_first_token_seconds_count{ladder="chat",version="dddddddddddd"}',
        'failsoft_requests_refused_total{reason="model_not_found"}',
    ]
    before = [shared.metric(line) or 0 for line in lines]
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "count me"}],
        "stream": True,
    }
    server_a.plan(default={"do": "status", "status": 500})
    server_b.plan(default={"do": "ok", "version": "d" * 64})
    shared.post(**body)
    server_b.plan(default={"do": "status", "status": 500})
    shared.post(**body)
    shared.post(model="nobody")

    counted = [(shared.metric(line) or 0) - n for line, n in zip(lines, before, strict=True)]

    assert counted == [1, 1, 2, 1, 1, 2, 2, 1]
    assert shared.metric("failsoft_open_calls") == 0
    assert shared.metric('failsoft_retry_budget_refused_total{ladder="chat"}') is not None


def attempt(call_id: str, outcome: AttemptOutcome = AttemptOutcome.OK) -> AttemptRecord:
    """A ledger row."""
    return AttemptRecord(
        call_id=call_id,
        attempt=0,
        rung=0,
        endpoint="a",
        outcome=outcome,
        started_at_ms=1000,
        was_sent=True,
        total_s=0.5,
        error_message="in words",
    )


@pytest.mark.parametrize(
    ("outcome", "is_error"),
    [
        (AttemptOutcome.HTTP_STATUS, True),
        (AttemptOutcome.STORE_FAILED, True),
        (AttemptOutcome.OK, False),
        (AttemptOutcome.CANCELLED, False),
        (AttemptOutcome.BAD_REQUEST, False),
        (AttemptOutcome.BREAKER_OPEN, False),
        (AttemptOutcome.CACHE_MISS, False),
    ],
)
def test_a_rungs_last_error_is_what_went_wrong_on_it(
    outcome: AttemptOutcome, is_error: bool
) -> None:
    """Not what a caller did, and not that it was passed over."""
    recorder = CountingRecorder(
        MemoryRecorder(), on_call=lambda _: None, on_attempt=lambda _ladder, _row: None
    )
    recorder.note_call("c1", "chat")

    recorder.record_attempt(attempt("c1", outcome))

    last = recorder.last_error("chat", "a")
    assert (last is not None) == is_error
    assert last is None or (last.at_ms, last.message) == (1500, "in words")


def test_a_recorder_remembers_the_ladders_of_the_last_calls_only() -> None:
    """Memory stays bounded; an attempt that ends long after its call has no ladder."""
    seen: list[str] = []
    recorder = CountingRecorder(
        MemoryRecorder(),
        on_call=lambda _: None,
        on_attempt=lambda ladder, _row: seen.append(ladder),
    )
    for number in range(MAX_CALLS + 1):
        recorder.note_call(f"c{number}", "chat")

    recorder.record_attempt(attempt("c0"))
    recorder.record_attempt(attempt("c1"))

    assert seen == ["unknown", "chat"]
