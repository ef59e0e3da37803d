"""What an endpoint's status does: retry, step down or give up, and how often the wire is hit."""

import asyncio
import time
from collections.abc import Callable

import pytest

from failsoft.config.settings import BreakerConfig, RetryConfig
from failsoft.errors import CallRefusedError, LadderExhaustedError
from tests.fallback.fault_server import Fault, FaultServer
from tests.fallback.rig import ASK, TWICE, ask, make_rig, refused_port, settings_for


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("reset", "reset"),
        ("close", "reset"),
        ({"do": "status", "status": 500}, "http_status"),
        ({"do": "status", "status": 529}, "http_status"),
        ({"do": "status", "status": 429}, "throttled"),
        ({"do": "cut", "tokens": 0}, "cut"),
    ],
)
def test_passing_trouble_is_retried_on_the_same_rung(
    server_a: FaultServer, server_b: FaultServer, fault: Fault | str, outcome: str
) -> None:
    """The better model answers after one retry."""
    server_a.plan(fault)
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), retry=TWICE))

    reply = ask(rig)

    assert reply.text == "A0 A1 A2 "
    assert rig.sent == [f"a {outcome}", "a ok"]
    assert (server_a.hits, server_b.hits) == (2, 0)


def test_a_refused_connection_is_retried_and_never_counts_as_sent(server_b: FaultServer) -> None:
    """The wire saw nothing, and the ledger says so."""
    with refused_port() as port:
        settings = settings_for(
            ("a", f"http://127.0.0.1:{port}/v1"), ("b", server_b.url), retry=TWICE
        )
        rig = make_rig(settings)

        reply = ask(rig)

    assert reply.text == "B0 B1 B2 "
    assert rig.ledger == ["a connect_failed", "a connect_failed", "b ok"]
    assert rig.sent == ["b ok"]


@pytest.mark.parametrize("status", [401, 402, 403, 404, 410])
def test_a_key_or_model_problem_goes_to_the_next_rung_at_once(
    server_a: FaultServer, server_b: FaultServer, status: int
) -> None:
    """Our trouble, not the caller's: no wait, no second try."""
    server_a.plan(default={"do": "status", "status": status})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), retry=TWICE))

    reply = ask(rig)

    assert reply.rung == "b"
    assert server_a.hits == 1


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_callers_fault_goes_nowhere_else(
    server_a: FaultServer, server_b: FaultServer, status: int
) -> None:
    """A leading gateway sends a 400 to the fallback too."""
    server_a.plan(default={"do": "status", "status": status, "code": "bad_thing"})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), "cache", retry=TWICE))

    with pytest.raises(CallRefusedError) as caught:
        ask(rig)

    assert (caught.value.status, caught.value.code) == (status, "bad_thing")
    assert caught.value.body is not None
    assert "SECRET" not in str(caught.value)
    assert (server_a.hits, server_b.hits) == (1, 0)
    assert rig.recorder.records.calls[0].outcome == "rejected"


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [(429, "insufficient_quota", "quota"), (503, "queue_full", "queue_full")],
)
def test_spent_quota_and_a_full_queue_step_down_without_retry(
    server_a: FaultServer, server_b: FaultServer, status: int, code: str, outcome: str
) -> None:
    """Waiting helps neither, and neither is illness: the breaker stays closed."""
    server_a.plan(default={"do": "status", "status": status, "code": code})
    breaker = BreakerConfig(min_calls=2)
    rig = make_rig(
        settings_for(("a", server_a.url), ("b", server_b.url), retry=TWICE, breaker=breaker)
    )

    async def run() -> None:
        async with rig.client as client:
            for _ in range(4):
                assert (await client.chat(ASK)).rung == "b"

    asyncio.run(run())

    assert server_a.hits == 4
    assert rig.ledger == [f"a {outcome}", "b ok"] * 4


def test_wire_count_is_attempts_on_each_rung(
    server_a: FaultServer, server_b: FaultServer, record_property: Callable[[str, object], None]
) -> None:
    """Always 503, 3 attempts, 2 models, and traffic that earned the budget: exactly 3 + 3."""
    retry = RetryConfig(attempts=3, base_s=0.002, cap_s=0.01)
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), retry=retry))

    async def run() -> None:
        async with rig.client as client:
            for _ in range(60):
                await client.chat(ASK)
            server_a.plan(default={"do": "status", "status": 503})
            server_b.plan(default={"do": "status", "status": 503})
            with pytest.raises(LadderExhaustedError) as caught:
                await client.chat(ASK)
            assert caught.value.status == 503
            assert len(caught.value.attempts) == 6

    asyncio.run(run())

    record_property("upstream calls", f"{server_a.hits}+{server_b.hits}")
    assert (server_a.hits, server_b.hits) == (3, 3)


def test_wire_count_is_less_when_the_budget_says_so(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """A lone call has a floor of 3 extra calls: two above, what is left on the last rung."""
    retry = RetryConfig(attempts=3, base_s=0.002, cap_s=0.01)
    server_a.plan(default={"do": "status", "status": 503})
    server_b.plan(default={"do": "status", "status": 503})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), retry=retry))

    with pytest.raises(LadderExhaustedError):
        ask(rig)

    assert (server_a.hits, server_b.hits) == (3, 2)
    assert rig.ledger[-1] == "b skipped_budget"


def test_retry_after_is_obeyed_within_the_deadline(server_a: FaultServer) -> None:
    """Not asked again before it said."""
    server_a.plan({"do": "status", "status": 429, "headers": {"retry-after-ms": "300"}})
    retry = RetryConfig(attempts=2, base_s=0.01, cap_s=1.0)
    rig = make_rig(settings_for(("a", server_a.url), retry=retry))

    began_s = time.monotonic()
    reply = ask(rig)

    assert reply.rung == "a"
    assert 0.3 <= time.monotonic() - began_s < 2


@pytest.mark.parametrize("wait", ["30", "2"])
def test_retry_after_beyond_reach_steps_down_at_once(
    server_a: FaultServer, server_b: FaultServer, wait: str
) -> None:
    """A leading gateway sleeps 30 s past a healthy fallback."""
    server_a.plan(default={"do": "status", "status": 429, "headers": {"retry-after": wait}})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), retry=TWICE))

    began_s = time.monotonic()
    reply = ask(rig)

    assert reply.rung == "b"
    assert time.monotonic() - began_s < 1.5  # the shorter wait is 2 s
    assert server_a.hits == 1


def test_x_should_retry_false_is_believed(server_a: FaultServer, server_b: FaultServer) -> None:
    """The failure will repeat, says the endpoint."""
    no = {"x-should-retry": "false"}
    server_a.plan(default={"do": "status", "status": 503, "headers": no})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), retry=TWICE))

    assert ask(rig).rung == "b"
    assert server_a.hits == 1


def test_the_last_answer_carries_every_cause_and_no_users_text(
    server_a: FaultServer, server_b: FaultServer
) -> None:
    """Honest, and fit for a log."""
    server_a.plan(default={"do": "status", "status": 500})
    server_b.plan(default={"do": "status", "status": 429, "headers": {"retry-after": "60"}})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), "cache"))

    with pytest.raises(LadderExhaustedError) as caught:
        ask(rig)

    error = caught.value
    assert [getattr(a, "outcome", None) for a in error.attempts] == [
        "http_status",
        "throttled",
        "cache_miss",
    ]
    assert (error.status, error.retry_after_s) == (503, 60.0)
    assert "SECRET" not in str(error)
    assert "a: http_status 500" in str(error)


def test_429_from_everybody_is_a_429(server_a: FaultServer, server_b: FaultServer) -> None:
    """The caller's rate, not our room."""
    server_a.plan(default={"do": "status", "status": 429})
    server_b.plan(default={"do": "status", "status": 429})
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url)))

    with pytest.raises(LadderExhaustedError) as caught:
        ask(rig)

    assert caught.value.status == 429


@pytest.mark.parametrize(
    "other",
    [{"do": "status", "status": 503, "headers": {"retry-after": "5"}}, "reset"],
    ids=["503-with-retry-after", "reset"],
)
def test_429_from_one_of_them_is_no_429(
    server_a: FaultServer, server_b: FaultServer, other: Fault | str
) -> None:
    """The other one is down, which is not the caller's rate."""
    server_a.plan(default={"do": "status", "status": 429})
    server_b.plan(default=other)
    rig = make_rig(settings_for(("a", server_a.url), ("b", server_b.url), "cache"))

    with pytest.raises(LadderExhaustedError) as caught:
        ask(rig)

    assert caught.value.status == 503


def test_a_rung_whose_breaker_this_call_opened_is_not_asked_again(server_a: FaultServer) -> None:
    """It was asked: only a rung that nobody asked is tried past its open breaker."""
    server_a.plan(default={"do": "status", "status": 500})
    retry = RetryConfig(attempts=3, base_s=0.002, cap_s=0.01)
    rig = make_rig(
        settings_for(("a", server_a.url), retry=retry, breaker=BreakerConfig(min_calls=1))
    )

    with pytest.raises(LadderExhaustedError):
        ask(rig)

    assert rig.ledger == ["a http_status", "a breaker_open"]
    assert server_a.hits == 1
