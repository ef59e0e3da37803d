"""Health and metrics tell what the engine does, not that HTTP answers."""

import threading
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from failsoft.engine.http.health import why_not_ready
from failsoft.errors import ForwardError
from failsoft.records import Distribution, EngineStats, StepStats
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import Rig, answer, ids_of, running, wait_until

FINE = EngineStats(
    is_alive=True,
    is_draining=False,
    num_running=1,
    num_waiting=0,
    num_blocks=10,
    num_blocks_used=1,
    num_blocks_cached=0,
    num_steps=5,
    seconds_since_progress=0.1,
    preemptions_total=0,
    prefix_queried_tokens_total=0,
    prefix_hit_tokens_total=0,
    forward_errors_total=0,
    failed_steps_in_a_row=0,
)


@pytest.mark.parametrize(
    ("stats", "is_draining", "reason"),
    [
        (FINE, False, None),
        (replace(FINE, num_running=0, seconds_since_progress=None), False, None),
        (replace(FINE, seconds_since_progress=11.0), False, "stuck"),
        (replace(FINE, num_running=0, num_waiting=2, seconds_since_progress=11.0), False, "stuck"),
        (replace(FINE, num_running=0, seconds_since_progress=11.0), False, None),
        (FINE, True, "draining"),
        (replace(FINE, is_draining=True), False, "draining"),
        (replace(FINE, is_alive=False), True, "engine_dead"),
        (replace(FINE, failed_steps_in_a_row=2), False, None),
        (replace(FINE, failed_steps_in_a_row=3), False, "failing"),
    ],
)
def test_ready_means_that_tokens_come(
    stats: EngineStats, is_draining: bool, reason: str | None
) -> None:
    """Idle is ready; work without a settled step for 10 s is not."""
    assert why_not_ready(stats, is_draining=is_draining, stuck_after_s=10.0) == reason


def samples(rig: Rig) -> dict[str, float]:
    """Every sample of /metrics, as ``name{label=value}`` without the model's name."""
    found = {}
    for family in text_string_to_metric_families(rig.get("/metrics").text):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k != "model_name"}
            assert sample.labels["model_name"] == "tiny-instruct"
            name = sample.name + "".join(f"{{{k}={v}}}" for k, v in sorted(labels.items()))
            found[name] = sample.value
    return found


def test_a_hanging_engine_is_live_but_not_ready() -> None:
    """HTTP answers all the while."""
    engine = FakeEngine(lambda r: ids_of("x" * 400), step_s=0.002)
    with running(engine, stuck_after_s=0.2) as rig:
        assert rig.get("/health/ready").json() == {"status": "ready"}
        engine.is_frozen = True
        thread = threading.Thread(target=rig.chat)
        thread.start()

        assert wait_until(lambda: rig.get("/health/ready").status_code == 503)
        assert rig.get("/health/ready").json()["reason"] == "stuck"
        assert rig.get("/health/live").status_code == rig.get("/health").status_code == 200
        engine.is_frozen = False
        assert wait_until(lambda: rig.get("/health/ready").status_code == 200)
        thread.join()


def test_a_dead_engine_is_not_ready() -> None:
    """And takes no requests: 503, so that a ladder steps down."""
    with running(FakeEngine(lambda r: answer("ok"))) as rig:
        rig.engine.close()

        assert rig.get("/health/ready").json()["reason"] == "engine_dead"
        assert rig.chat().status_code == 503
        assert samples(rig)["failsoft_engine_alive"] == 0


def test_answered_requests_are_counted_with_their_tokens_and_times() -> None:
    """Two answers, one of them cut by max_tokens, and one refusal."""
    with running(FakeEngine(lambda r: answer("hello there"))) as rig:
        first, second = rig.chat().json(), rig.chat(max_tokens=2).json()
        rig.chat(best_of=3)
        rig.chat("the " * 600)
        found = samples(rig)

    usages = [first["usage"], second["usage"]]
    assert found["failsoft_request_success_total{finished_reason=stop}"] == 1
    assert found["failsoft_request_success_total{finished_reason=length}"] == 1
    assert found["failsoft_prompt_tokens_total"] == sum(u["prompt_tokens"] for u in usages)
    assert found["failsoft_generation_tokens_total"] == sum(u["completion_tokens"] for u in usages)
    assert found["failsoft_requests_rejected_total{reason=unsupported_parameter}"] == 1
    assert found["failsoft_requests_rejected_total{reason=context_length_exceeded}"] == 1
    for name in (
        "time_to_first_token",
        "request_time_per_output_token",
        "e2e_request_latency",
        "request_queue_time",
        "request_prefill_time",
        "request_decode_time",
        "request_inference_time",
    ):
        assert found[f"failsoft_{name}_seconds_count"] == 2
    assert found["failsoft_request_prompt_tokens_sum"] == sum(u["prompt_tokens"] for u in usages)
    generated = [u["completion_tokens"] for u in usages]
    assert found["failsoft_request_generation_tokens_sum"] == sum(generated)
    assert found["failsoft_request_params_max_tokens_count"] == 2
    assert found["failsoft_request_params_max_tokens_bucket{le=2.0}"] == 1


def test_an_answer_of_several_choices_is_one_of_n() -> None:
    """Its choices are requests of their own; the longest is counted once."""
    with running(FakeEngine(lambda r: answer("a" * (1 + r.sampling.choice_index)))) as rig:
        rig.chat(n=3)
        found = samples(rig)

    assert found["failsoft_request_params_n_sum"] == 3
    assert found["failsoft_request_params_n_count"] == 1
    assert found["failsoft_request_generation_tokens_count"] == 3
    assert found["failsoft_request_max_num_generation_tokens_count"] == 1
    longest = found["failsoft_request_max_num_generation_tokens_sum"]
    assert longest == len(answer("aaa"))


def test_tokens_behind_a_stop_string_are_waste() -> None:
    """The engine samples on until it hears of the stop; nothing before it counts."""
    with running(FakeEngine(lambda r: ids_of("ab stop") + ids_of("x" * 400))) as rig:
        usage = rig.chat(stop="stop").json()["usage"]
        found = samples(rig)

    wanted = len(ids_of("ab stop"))
    assert found["failsoft_waste_tokens_total"] == usage["completion_tokens"] - wanted


def test_what_nobody_measured_is_absent(rig: Rig) -> None:
    """This engine counts no steps and had no self-test; idle, it lacks no progress."""
    found = samples(rig)

    assert not any(
        name.startswith(f"failsoft_{each}")
        for name in found
        for each in (
            "step_seconds",
            "batch_rows",
            "iteration_tokens",
            "inter_token",
            "model_selftest",
            "engine_seconds_since_progress",
        )
    )


def test_steps_are_shown_as_histograms() -> None:
    """Cumulative, as Prometheus wants them, and by what the step held."""
    of_steps = StepStats(
        seconds={"decode": Distribution(bounds=(0.1, 1.0), counts=(3, 1, 2), total=7.5)},
        tokens=Distribution(bounds=(1, 8), counts=(2, 0, 0), total=2),
        rows=Distribution(bounds=(1, 8), counts=(2, 0, 0), total=2),
        gaps_s=Distribution(bounds=(0.1,), counts=(0, 0), total=0),
    )
    engine = FakeEngine(lambda r: answer("ok"))
    with running(engine) as rig:
        engine.stats = lambda: replace(FINE, steps=of_steps, self_test_error=2e-6)  # type: ignore[method-assign]
        found = samples(rig)

    prefix = "failsoft_step_seconds_bucket{kind=decode}"
    buckets = {name: found[f"{prefix}{{le={name}}}"] for name in ("0.1", "1.0", "+Inf")}
    assert buckets == {"0.1": 3, "1.0": 4, "+Inf": 6}
    assert found["failsoft_step_seconds_sum{kind=decode}"] == 7.5
    assert found["failsoft_iteration_tokens_total_count"] == 2
    assert found["failsoft_inter_token_latency_seconds_count"] == 0
    assert found["failsoft_model_selftest_max_error"] == 2e-6


def test_a_whole_answer_says_where_its_time_went(rig: Rig) -> None:
    """Queue, prefill and decode in milliseconds, under the web's own header."""
    header = rig.chat().headers["server-timing"]

    parts = dict(part.strip().split(";dur=") for part in header.split(","))
    assert list(parts) == ["queue", "prefill", "decode"]
    assert all(float(value) >= 0 for value in parts.values())


def test_the_engines_own_numbers_are_read_at_scrape_time(rig: Rig) -> None:
    """Gauges and counters under vLLM's names."""
    found = samples(rig)

    assert found["failsoft_engine_alive"] == 1
    assert found["failsoft_num_requests_running"] == found["failsoft_num_requests_waiting"] == 0
    assert found["failsoft_kv_cache_usage_perc"] == 0
    assert found["failsoft_num_preemptions_total"] == 1
    assert found["failsoft_prefix_cache_queries_total"] == 20
    assert found["failsoft_prefix_cache_hits_total"] == 10


def test_failures_and_expiries_are_counted_apart() -> None:
    """By kind; neither is a success."""
    oom = ForwardError("out of memory", kind="out_of_memory")
    with running(
        FakeEngine(lambda r: [oom] if r.deadline_s is None else [1] * 400, step_s=0.01)
    ) as rig:
        rig.chat()
        reply = rig.client.post(
            "/v1/completions", json={"prompt": "a"}, headers={"x-failsoft-deadline-ms": "50"}
        )
        found = samples(rig)

    assert reply.status_code == 504
    assert found["failsoft_request_errors_total{kind=out_of_memory}"] == 1
    assert found["failsoft_requests_expired_total"] == 1
    assert not any(name.startswith("failsoft_request_success_total") for name in found)
    assert found["failsoft_e2e_request_latency_seconds_count"] == 0
