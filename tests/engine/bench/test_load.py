"""Load over HTTP, against a server that fails on command and against our own."""

import asyncio
import math
from typing import Any

import pytest

from failsoft.engine.bench.arrivals import arrivals_s, made_up_items, parse_rates, taken
from failsoft.engine.bench.figures import Limits
from failsoft.engine.bench.load import (
    LoadPlan,
    RateFigures,
    check,
    check_url,
    find_model,
    rate_figures,
    run_rate,
)
from failsoft.engine.bench.stream_client import Outcome, Target, body_of, parse_endpoint, target_of
from failsoft.engine.bench.workload import Item
from failsoft.errors import BenchError, ConfigError
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import MODEL, answer, running
from tests.fallback.fault_server import FaultServer

TEXT = Item(text="hello", output_len=8, is_exact=False)
IDS = Item(prompt_ids=(5, 6, 7), output_len=4)


def load(
    url: str,
    items: list[Item],
    *,
    model: str = "m",
    rate_rps: float = math.inf,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    timeout_s: float = 5.0,
    max_s: float = 20.0,
    api_key: str | None = None,
) -> RateFigures:
    target = Target(url=url, model=model, is_chat=None)
    plan = LoadPlan(rate_rps=rate_rps, items=tuple(items), seed=1, timeout_s=timeout_s, max_s=max_s)
    return asyncio.run(run_rate(target, plan, api_key=api_key, limits=limits))


def test_every_reply_is_timed_and_its_tokens_counted_by_the_server(server_a: FaultServer) -> None:
    """The role comes at once and is no first token; the usage chunk is no last one."""
    server_a.plan(default={"do": "ok", "tokens": 4, "first_s": 0.05, "gap_s": 0.02})

    found = load(server_a.url, [TEXT] * 5)

    assert (found.num_ok, found.errors, found.are_tokens_counted) == (5, {}, True)
    assert found.ttft_s.p50 is not None
    assert found.tpot_s.p50 is not None
    assert found.e2e_s.p50 is not None
    assert found.ttft_s.p50 >= 0.05
    assert found.e2e_s.p50 >= 0.05 + 3 * 0.02
    assert found.tpot_s.p50 == pytest.approx((found.e2e_s.p50 - found.ttft_s.p50) / 3, rel=0.5)
    assert found.output_tokens_per_s == pytest.approx(20 / found.wall_s)


def test_without_usage_pieces_are_counted_and_it_says_so(server_a: FaultServer) -> None:
    """A separator of lines inside a text is no separator of events."""
    delta = {"choices": [{"index": 0, "delta": {"content": "a\u2028b"}}]}
    server_a.plan(default={"do": "events", "events": [delta, delta, delta, "[DONE]"]})

    found = load(server_a.url, [TEXT])

    assert (found.num_ok, found.are_tokens_counted) == (1, False)
    assert found.output_tokens_per_s == pytest.approx(3 / found.wall_s)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"do": "status", "status": 503}, "HTTP 503"),
        ({"do": "status", "status": 429}, "HTTP 429"),
        ({"do": "cut", "how": "eof"}, "cut off"),
        ({"do": "cut", "how": "json"}, "no OpenAI stream"),
        ({"do": "cut", "how": "event"}, "error event"),
        ({"do": "cut", "how": "rst"}, "broken connection"),
        ({"do": "cut", "how": "done", "tokens": 0}, "no text"),
        ({"do": "reset"}, "broken connection"),
        ({"do": "stall", "at": "headers"}, "timeout"),
        ({"do": "plain", "body": "<html>"}, "cut off"),
    ],
    ids=str,
)
def test_a_failure_is_counted_by_its_kind(
    server_a: FaultServer, fault: dict[str, Any], kind: str
) -> None:
    """Its neighbours' figures stay; nothing is retried."""
    server_a.plan(fault)

    found = load(server_a.url, [TEXT] * 3, timeout_s=0.3)

    assert found.errors == {kind: 1}
    assert found.num_ok == 2
    assert server_a.hits == 3


def test_what_runs_when_the_time_is_up_is_cancelled(server_a: FaultServer) -> None:
    """And what was to be sent later never is."""
    server_a.plan(default={"do": "stall", "at": "token"})

    found = load(server_a.url, [TEXT] * 40, rate_rps=20, max_s=1.0, timeout_s=60)

    assert set(found.errors) == {"unfinished", "not sent in time"}
    assert sum(found.errors.values()) == 40
    assert found.num_ok == 0
    assert found.output_tokens_per_s is None
    assert found.wall_s < 5


def test_goodput_counts_replies_within_all_limits(server_a: FaultServer) -> None:
    """One of four is late."""
    server_a.plan({"do": "ok", "first_s": 0.4})

    found = load(server_a.url, [TEXT] * 4, limits=Limits(ttft_s=0.3, tpot_s=5))

    assert found.num_ok == 4
    assert found.goodput_rps == pytest.approx(3 / found.wall_s)


def test_our_own_server_is_asked_for_ids_and_exact_lengths() -> None:
    """The key goes along, and is told apart from a wrong one."""
    with running(FakeEngine(lambda request: [9] * 50), api_key="s3cret") as rig:
        url = f"{rig.url}/v1"
        model = find_model(url, api_key="s3cret")
        found = load(url, [IDS] * 3, model=model, api_key="s3cret")
        refused = load(url, [IDS], model=model, api_key="wrong")

    assert model == MODEL
    assert (found.num_ok, found.are_tokens_counted) == (3, True)
    assert [request.prompt_ids for request in rig.engine.submitted] == [(5, 6, 7)] * 3
    assert all(request.sampling.ignore_eos for request in rig.engine.submitted)
    assert refused.errors == {"HTTP 401": 1}


def test_our_own_server_is_asked_for_texts_by_chat() -> None:
    """A reply may end before its limit."""
    with running(FakeEngine(lambda request: answer("hi there"))) as rig:
        found = load(f"{rig.url}/v1", [TEXT] * 2, model=MODEL)

    assert found.errors == {}
    assert not any(request.sampling.ignore_eos for request in rig.engine.submitted)


def test_a_full_queue_is_seen_as_such() -> None:
    """An overloaded server is a result, not a crash of the client."""
    engine = FakeEngine(lambda request: [9] * 50, step_s=0.01, max_running=1, max_waiting=2)
    with running(engine) as rig:
        found = load(f"{rig.url}/v1", [IDS] * 12, model=MODEL)

    assert found.errors["HTTP 503"] >= 1
    assert "queue is full" in found.examples["HTTP 503"]
    assert found.num_ok >= 3


def test_nobody_there_is_one_line() -> None:
    """With what to do."""
    with pytest.raises(BenchError, match=r"nobody answers at http://127\.0\.0\.1:9/v1"):
        find_model("http://127.0.0.1:9/v1", api_key=None)


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1/v1", "127.0.0.1:8000", "http://", "http://x:y", ""]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    """Before a model is asked for."""
    with pytest.raises(ConfigError, match="--url"):
        check_url(url)


def test_what_is_wrong_with_every_request_is_said_once(server_a: FaultServer) -> None:
    """Before anything is measured."""
    server_a.plan(default={"do": "status", "status": 400})
    target = Target(url=server_a.url, model="m", is_chat=None)

    with pytest.raises(BenchError, match="HTTP 400"):
        asyncio.run(check(target, TEXT, api_key=None, timeout_s=5))

    assert server_a.hits == 1


def test_the_same_seed_gives_the_same_arrivals_at_the_given_rate() -> None:
    """200 gaps of mean 1/4 s: their sum has a standard deviation of 7 %, so 3.5 of them is rare."""
    stamps = arrivals_s(rate_rps=4, count=201, seed=3)

    assert stamps == arrivals_s(rate_rps=4, count=201, seed=3)
    assert stamps != arrivals_s(rate_rps=4, count=201, seed=4)
    assert stamps[0] == 0
    assert stamps[-1] == pytest.approx(50, rel=0.25)


def test_made_up_texts_are_ragged_and_repeatable() -> None:
    """And a workload begins anew where it runs out."""
    items = made_up_items(count=20, seed=5)

    assert items == made_up_items(count=20, seed=5)
    assert len({item.output_len for item in items}) > 5
    assert taken([TEXT, IDS], 3) == [TEXT, IDS, TEXT]


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "1,,2", "fast"])
def test_a_rate_that_is_none_is_refused(text: str) -> None:
    """The line names the option."""
    with pytest.raises(ConfigError, match="--rate"):
        parse_rates(text)


def test_the_endpoint_follows_the_prompt_unless_told() -> None:
    """Ids cannot be chatted."""
    auto = Target(url="u", model="m", is_chat=parse_endpoint("auto"))
    completions = Target(url="u", model="m", is_chat=parse_endpoint("completions"))

    assert body_of(auto, TEXT)[0] == "chat/completions"
    assert body_of(auto, IDS)[0] == "completions"
    assert body_of(completions, TEXT)[1]["prompt"] == "hello"
    with pytest.raises(ConfigError, match="--endpoint"):
        parse_endpoint("responses")
    with pytest.raises(ConfigError, match="token ids"):
        target_of("u", model="m", is_chat=True, items=[IDS])


@pytest.mark.parametrize(
    ("busy_share", "late_s", "is_bound"),
    [(0.2, 0.001, False), (0.9, 0.001, True), (0.2, 0.05, True)],
)
def test_the_client_knows_when_it_is_the_bottleneck(
    busy_share: float, late_s: float, is_bound: bool
) -> None:
    """By its processor, and by how late it sent."""
    outcome = Outcome(
        sent_s=1, ended_s=2, late_s=late_s, ttft_s=0.1, e2e_s=1, num_tokens=1, is_counted=True
    )

    found = rate_figures(1.0, [outcome], num_planned=1, busy_share=busy_share, limits=Limits())

    assert found.is_client_bound is is_bound
