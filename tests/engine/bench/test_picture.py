"""The picture: everything drawn, nothing loaded, nothing believed."""

import re

from failsoft.engine.bench.figures import figures
from failsoft.engine.bench.picture import picture
from failsoft.engine.bench.slots import Work
from tests.engine.bench.builders import make_run, served, span

SPANS = (
    span(0, 0, Work.PREFILL, 0, 1),
    span(0, 0, Work.DECODE, 1, 6),
    span(0, 0, Work.KEPT, 6, 10),
    span(1, 1, Work.DECODE, 0, 4),
)


def draw(title: str = "ragged") -> str:
    callers = (served(3, 5, ttft_s=1, e2e_s=6), served(3, 5, ttft_s=1, e2e_s=4))
    runs = [
        make_run(*callers, mode="static", spans=SPANS),
        make_run(*callers, mode="continuous", wall_s=5.0, spans=SPANS[:2]),
    ]
    return picture(runs, {run.mode: figures(run) for run in runs}, title=title)


def test_every_span_is_a_box_with_its_numbers() -> None:
    """Kept rows are hatched; the idle ground lies beneath."""
    html = draw()

    assert len(re.findall(r"<title>request \d", html)) == 6
    assert html.count('class="kept"') == 1
    assert html.count('class="idle"') == 2
    assert "request 0: kept from 6.00 to 10.00 s; 3 prompt and 5 output tokens" in html


def test_all_bands_have_one_time_scale() -> None:
    """So the mode that is done first is seen to be."""
    widths = [
        float(width) for width in re.findall(r'class="idle" x="64" y="0" width="(.+?)"', draw())
    ]

    assert widths[0] == 2 * widths[1]


def test_it_loads_nothing_and_runs_nothing() -> None:
    """It may be mailed, and be looked at on a machine without a network."""
    html = draw()

    assert not re.search(r"https?://|<script|<link|@import|src=", html)


def test_names_are_text() -> None:
    """A workload's name may hold anything."""
    html = draw(title='<img src=x onerror="alert(1)">')

    assert "<img" not in html
    assert html.count("&lt;img src=x onerror=&quot;alert(1)&quot;&gt;") == 2
