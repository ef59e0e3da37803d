"""Figures: what there is none for is None, and each is what docs/bench.md says."""

import json

import pytest

from failsoft.engine.bench.figures import Limits, figures
from failsoft.engine.bench.run import ModeRun
from failsoft.engine.bench.slots import Work
from tests.engine.bench.builders import make_run, served, span, step


def test_the_document_has_exactly_the_promised_keys() -> None:
    """Programs read it."""
    document = figures(make_run(served(3, 5, ttft_s=1, e2e_s=3))).document()

    assert set(document) == {
        "wall_s",
        "output_tokens_per_s",
        "ttft_s",
        "tpot_s",
        "e2e_s",
        "slot_idle_ratio",
        "peak_rss_bytes",
        "preemptions",
        "goodput_rps",
    }
    assert document["ttft_s"] == {"p50": 1, "p95": 1}
    assert document["tpot_s"] == {"p50": 0.5, "p95": 0.5}
    assert document["output_tokens_per_s"] == 0.5


def test_what_there_is_no_figure_for_is_none() -> None:
    """0 would read as a record."""
    document = figures(make_run(served(3, 1, ttft_s=1, e2e_s=1))).document()

    assert document["tpot_s"] == {"p50": None, "p95": None}
    assert document["goodput_rps"] is None
    assert document["peak_rss_bytes"] is None


@pytest.mark.parametrize(
    ("limits", "num_good"),
    [
        (Limits(ttft_s=1.0), 2),
        (Limits(tpot_s=0.5), 2),
        (Limits(ttft_s=1.0, tpot_s=0.5), 1),
        (Limits(e2e_s=0.1), 0),
    ],
)
def test_goodput_counts_replies_that_keep_every_limit(limits: Limits, num_good: int) -> None:
    """A TPOT that does not exist keeps its limit; none that do is 0, and that is a figure."""
    run = make_run(
        served(3, 5, ttft_s=1, e2e_s=5),
        served(3, 1, ttft_s=1, e2e_s=1),
        served(3, 5, ttft_s=3, e2e_s=4),
    )

    assert figures(run, limits=limits).goodput_rps == pytest.approx(num_good / 10)


def test_a_kept_row_is_an_idle_slot() -> None:
    """Its tokens are nobody's; prompts are somebody's."""
    spans = (
        span(0, 0, Work.PREFILL, 0, 1),
        span(0, 0, Work.DECODE, 1, 6),
        span(0, 0, Work.KEPT, 6, 10),
        span(1, 1, Work.DECODE, 0, 4),
    )

    figure = figures(make_run(served(3, 5, ttft_s=1, e2e_s=6), spans=spans))

    assert figure.slot_idle_ratio == pytest.approx(0.5)


def test_the_shortest_quarter_is_the_quarter_with_the_fewest_output_tokens() -> None:
    """Below four requests there is none."""
    callers = [served(3, length, ttft_s=1, e2e_s=length) for length in (9, 2, 3, 8, 7, 6, 5, 4)]

    assert figures(make_run(*callers)).shortest_e2e_p50_s == 2.5
    assert figures(make_run(*callers[:3])).shortest_e2e_p50_s is None


def test_a_run_crosses_between_processes_unchanged() -> None:
    """As JSON."""
    run = make_run(
        served(3, 5, ttft_s=1, e2e_s=3),
        spans=(span(0, 0, Work.KEPT, 0, 1),),
        steps=(step(1.0, num_rows=1, num_tokens=3),),
    )

    assert ModeRun.from_document(json.loads(json.dumps(run.to_document()))) == run
