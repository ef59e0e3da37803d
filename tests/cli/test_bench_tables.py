"""Figures in a terminal: ratios to static, dashes where there is no figure, doubts said."""

import pytest

from failsoft.cli.bench_modes import describe
from failsoft.cli.bench_tables import show_modes
from failsoft.engine.bench.figures import figures
from failsoft.engine.bench.run import ModeRun, Served
from failsoft.engine.bench.workload import Item, Workload
from tests.engine.bench.builders import make_run, served

WORKLOAD = Workload(
    name="[red]mine", model="tiny", max_running=2, items=(Item(prompt_ids=(1,), output_len=4),)
)
WHOLE = Served(num_prompt_tokens=3, num_output_tokens=10, ttft_s=20, tpot_s=None, e2e_s=20)


def show(*runs: ModeRun) -> None:
    show_modes(describe(runs, WORKLOAD, limits={}), {run.mode: figures(run) for run in runs})


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells of each line by its label; two blanks or more part cells."""
    lines = [[cell for cell in line.split("  ") if cell] for line in text.splitlines()]
    return {line[0].strip(): [cell.strip() for cell in line[1:]] for line in lines if line}


def test_modes_stand_side_by_side_with_ratios_to_static(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Static has no TPOT; without limits there is no row for goodput."""
    static = make_run(WHOLE, mode="static", wall_s=20)
    continuous = make_run(served(3, 10, ttft_s=1, e2e_s=10), wall_s=10)

    show(static, continuous)

    out = capsys.readouterr().out
    found = rows(out)
    assert out.startswith("[red]mine: 1 requests at once, 2 slots, tiny in float32")
    assert found["wall time"] == ["20.0 s", "10.0 s"]
    assert found["tokens/s"] == ["0.5", "1.0"]
    assert found["TPOT p50 / p95"] == ["-", "1.00 / 1.00 s"]
    assert "1.00x" in out
    assert "2.00x" in out
    assert "goodput" not in out
    assert "warning" not in out


def test_a_mode_that_shared_the_processor_is_doubted(capsys: pytest.CaptureFixture[str]) -> None:
    """Its figures cannot be compared, and the line says so."""
    fields = {**make_run(WHOLE, mode="static").to_document(), "other_cpu_share": 0.42}

    show(ModeRun.from_document(fields))

    assert "others used 42 % of the processor during static" in capsys.readouterr().out
