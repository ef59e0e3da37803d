"""The arithmetic of documents, against sums made by hand."""

import pytest

from failsoft.engine.bench.documents import (
    Shape,
    account,
    check_count,
    key_values,
    to_document,
    window,
)
from failsoft.engine.bench.run import ModeRun
from failsoft.errors import ConfigError
from tests.engine.bench.builders import make_run, served, step

CALLERS = (
    served(10, 4, ttft_s=1, e2e_s=4),
    served(20, 2, ttft_s=1, e2e_s=3),
    served(6, 6, ttft_s=2, e2e_s=6),
)
STEPS = (
    step(1.0, num_rows=3, num_tokens=100, num_blocks=3),
    step(0.5, num_rows=3, num_tokens=3, num_blocks=5),
    step(0.3, num_rows=2, num_tokens=2, num_blocks=4),
    step(0.4, num_rows=1, num_tokens=1, num_blocks=2),
)


def run_of(mode: str, *, num_slots: int = 3) -> ModeRun:
    return make_run(*CALLERS, mode=mode, num_slots=num_slots, steps=STEPS)


@pytest.mark.parametrize(
    ("mode", "num_slots", "num_prefill", "num_steps"),
    [
        ("sequential", 3, 36, 12 - 3),
        ("padded", 3, 3 * 20, 6 - 1),
        ("padded", 2, 2 * 20 + 6, (4 - 1) + (6 - 1)),
        ("continuous", 3, 36, 6 - 1),
        ("continuous", 1, 36, 12 - 3),
    ],
)
def test_the_sum_of_each_mode(mode: str, num_slots: int, num_prefill: int, num_steps: int) -> None:
    """Prompt places at the cost of one, then forwards of single tokens at their median."""
    found = account(run_of(mode, num_slots=num_slots))

    assert (found.num_prefill, found.num_steps) == (num_prefill, num_steps)
    assert found.expected_s == pytest.approx(num_prefill * 0.01 + num_steps * 0.4)
    assert found.measured_s == 10.0
    assert found.reply_s.p50 == 4


def test_without_a_forward_of_its_kind_there_is_no_sum() -> None:
    """One document of one token decodes nothing."""
    run = make_run(served(3, 1, ttft_s=1, e2e_s=1), mode="sequential", steps=STEPS[:1])

    assert account(run).expected_s is None


def test_padding_is_what_the_rectangle_adds() -> None:
    """In tokens, and as a share of all places."""
    shape = Shape.of(run_of("sequential"))

    assert (shape.prompt_padding, shape.output_padding) == (60 - 36, 18 - 12)
    assert shape.padding_share == pytest.approx(30 / 78)


def test_keys_and_values_as_a_rectangle_packed_and_held() -> None:
    """The pool has 10 blocks of 4 tokens of 100 bytes; a row of the rectangle has 26 tokens."""
    kv = key_values([run_of("padded"), run_of("continuous")])

    assert (kv.rectangle, kv.packed, kv.peak) == (3 * 26 * 100, 48 * 100, 5 * 4 * 100)
    assert (kv.pool, kv.num_fitting) == (4000, 1)


def test_what_was_not_run_has_no_figure() -> None:
    """None, also in the document."""
    runs = [run_of("padded")]
    kv, waiting = key_values(runs), window(runs, window_s=0.1)

    document = to_document([account(run) for run in runs], Shape.of(runs[0]), kv, waiting)

    assert document["kv_bytes"]["peak"] is document["kv_bytes"]["pool"] is None
    assert document["window_s"] == {"mean": 0.05, "most": 0.1, "step_p50": None, "step_p95": None}


def test_more_documents_than_there_are_is_refused() -> None:
    """The line says how many there are."""
    with pytest.raises(ConfigError, match=r"--count = 101 .*1\.\.100"):
        check_count(101, 100)
