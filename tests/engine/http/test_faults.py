"""Faults of the engine as status codes, or as an event in the middle of a stream."""

import json
import threading
import time

import openai
import pytest

from failsoft.engine.http.errors import fault_of
from failsoft.errors import (
    BodyTooSlowError,
    DeadlineExceededError,
    EngineError,
    EngineStoppedError,
    FailsoftError,
    ForwardError,
    InvalidRequestError,
    ModelError,
    QueueFullError,
    RequestTooLongError,
    UnknownModelError,
)
from failsoft.records import FinishReason
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import MODEL, Rig, events_of, ids_of, running, wait_until

OOM = ForwardError("the forward ran out of memory", kind="out_of_memory")
BAD_LOGITS = ForwardError("the logits are not finite", kind="bad_logits")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidRequestError("x", param="top_p"), 400, None),
        (
            RequestTooLongError(num_tokens=9, limit=5, what="x", param="prompt"),
            400,
            "context_length_exceeded",
        ),
        (UnknownModelError(model="a", served="b"), 404, "model_not_found"),
        (BodyTooSlowError(limit_s=30), 408, "body_too_slow"),
        (QueueFullError(num_waiting=1, limit=1, retry_after_s=0.1), 503, "queue_full"),
        (EngineStoppedError("x"), 503, "engine_stopped"),
        (DeadlineExceededError(late_s=1), 504, "deadline_exceeded"),
        (OOM, 500, "out_of_memory"),
        (BAD_LOGITS, 500, "bad_logits"),
        (ForwardError("x", kind="grammar"), 400, "grammar"),
        (ForwardError("x", kind="no_token"), 400, "no_token"),
        (EngineError("x"), 500, "engine_error"),
    ],
)
def test_each_engine_error_has_its_status(error: EngineError, status: int, code: str) -> None:
    """And OpenAI's type: the caller's fault below 500, the server's from there."""
    fault = fault_of(error)

    assert (fault.status, fault.code) == (status, code)
    expected = "invalid_request_error" if status < 500 else "server_error"
    assert fault.body["error"]["type"] == expected


def test_no_engine_error_is_forgotten() -> None:
    """Every error below EngineError maps to something; model errors never reach a request."""

    def below(kind: type[FailsoftError]) -> set[type[FailsoftError]]:
        return {kind}.union(*(below(child) for child in kind.__subclasses__()))

    named = {"InvalidRequestError", "RequestTooLongError", "UnknownModelError", "QueueFullError"}
    named |= {"EngineStoppedError", "DeadlineExceededError", "ForwardError", "BodyTooSlowError"}
    named |= {"EngineError", "OutOfBlocksError"}  # a bug: 500 without a code of its own

    assert {kind.__name__ for kind in below(EngineError) - below(ModelError)} == named


def test_a_full_queue_is_503_with_a_time_to_come_back() -> None:
    """Two running or waiting, room for none more."""
    engine = FakeEngine(lambda r: ids_of("x" * 400), step_s=0.01, max_running=1, max_waiting=1)
    with running(engine) as rig:
        threads = [threading.Thread(target=rig.chat) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert wait_until(lambda: len(engine.submitted) == 2)

        reply = rig.chat(stream=True)
        for request in engine.submitted:
            engine.abort(request.request_id, FinishReason.ABORT)
        for thread in threads:
            thread.join()

    assert reply.status_code == 503
    assert reply.json()["error"]["code"] == "queue_full"
    assert reply.headers["retry-after"] == "2"


def test_prompts_are_queued_all_or_none() -> None:
    """The third of three does not fit: the first two are taken back."""
    engine = FakeEngine(lambda r: ids_of("x" * 400), step_s=0.01, max_running=1, max_waiting=1)
    with running(engine) as rig:
        reply = rig.post("/v1/completions", json={"prompt": ["a", "b", "c"]})

        assert reply.status_code == 503
        assert len(engine.aborted) == 2
        assert wait_until(lambda: engine.stats().num_running == 0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_deadline_that_passes_in_the_queue_is_504(stream: bool) -> None:
    """Before any token, so also a stream gets its status; the client must not retry."""
    engine = FakeEngine(lambda r: ids_of("x" * 400), step_s=0.005, max_running=1)
    with running(engine) as rig:
        thread = threading.Thread(target=rig.chat)
        thread.start()
        assert wait_until(lambda: len(engine.submitted) == 1)

        start_s = time.monotonic()
        reply = rig.client.post(
            "/v1/chat/completions",
            json={"messages": [{"role": "user", "content": "hi"}], "stream": stream},
            headers={"x-failsoft-deadline-ms": "150"},
        )
        took_s = time.monotonic() - start_s
        engine.abort(engine.submitted[0].request_id, FinishReason.ABORT)
        thread.join()

    assert reply.status_code == 504
    assert reply.headers["x-should-retry"] == "false"
    assert reply.json()["error"]["code"] == "deadline_exceeded"
    assert 0.1 < took_s < 2
    assert engine.finished[0].num_output_tokens == 0


@pytest.mark.parametrize(("error", "retry"), [(OOM, None), (BAD_LOGITS, "false")])
@pytest.mark.parametrize("stream", [False, True])
def test_a_failed_forward_before_any_token_is_500(
    error: ForwardError, retry: str | None, stream: bool
) -> None:
    """The code is the kind; what would repeat is not to be retried."""
    with running(FakeEngine(lambda r: [error])) as rig:
        reply = rig.chat(stream=stream)

    assert reply.status_code == 500
    assert reply.json()["error"]["code"] == error.kind
    assert reply.headers.get("x-should-retry") == retry


def test_a_failed_forward_in_a_stream_is_an_error_event() -> None:
    """The text before it came out, [DONE] did not, and the client raises."""
    with running(FakeEngine(lambda r: [*ids_of("so far"), OOM], step_s=0.002)) as rig:
        events = [json.loads(event) for event in events_of(rig.chat(stream=True).text)]
        with (
            openai.OpenAI(base_url=f"{rig.url}/v1", api_key="x", max_retries=0) as client,
            pytest.raises(openai.APIError, match="out of memory"),
        ):
            list(
                client.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
                )
            )

    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1])
    assert text == "so far"
    assert events[-1]["error"]["code"] == "out_of_memory"


def test_one_failed_prompt_of_several_fails_the_answer() -> None:
    """The others are taken back: half an answer is none."""

    def script(request: object) -> list[int | EngineError]:
        is_second = getattr(request, "request_id", "").endswith("-1")
        return [OOM] if is_second else [*ids_of("x" * 400)]

    with running(FakeEngine(script, step_s=0.005)) as rig:
        reply = rig.post("/v1/completions", json={"prompt": ["a", "b"]})

        assert reply.status_code == 500
        assert wait_until(lambda: rig.engine.stats().num_running == 0)


def test_a_bug_is_a_500_that_tells_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """In OpenAI's shape, with the request id; the traceback goes to the log only."""

    def explode() -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(rig.engine, "stats", explode)

    reply = rig.get("/health/ready", headers={"x-request-id": "abc"})

    assert reply.status_code == 500
    assert reply.json()["error"]["code"] == "internal_error"
    assert "secret" not in reply.text
    assert reply.headers["connection"] == "close"
    assert reply.headers["x-request-id"] == "abc"
