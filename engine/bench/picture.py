"""Who sat in which slot when, drawn as one HTML file that loads nothing.

One band for each mode, all on one time scale; a row is a slot, a box is a request in it,
grey is a slot in which nobody's tokens were made. Plain SVG: a browser shows a box's numbers
when the pointer rests on it. Knows nothing of where the runs come from.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from failsoft.engine.bench.figures import ModeFigures
from failsoft.engine.bench.run import ModeRun
from failsoft.engine.bench.slots import Span, Work

_WIDTH = 1120
_LEFT = 64
_RIGHT = 16
_MAX_ROW = 14
"""Points of a slot's height; less where there are many."""
_BAND = 240
"""Points of a mode's height at most."""
_LABEL_WIDTH = 7
"""Points that a digit of a box's label needs."""
_GAP = 0.5
_NUM_TICKS = 8

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --soft: #667; --page: #fff; --idle: #d9dce1;
  --thrown: #b4b9c2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ee; --soft: #9aa3b2; --page: #15181e; --idle: #353b45; --thrown: #545c69; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 1120px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .2rem; }
p { margin: .2rem 0; color: var(--soft); }
svg { width: 100%; height: auto; display: block; }
svg text { font: 10px system-ui, sans-serif; fill: var(--soft); }
svg .name { fill: #14181f; pointer-events: none; }
.idle { fill: var(--idle); } .kept { fill: url(#thrown); }
.thrown { fill: var(--idle); } .thrown-line { stroke: var(--thrown); stroke-width: 2; }
.end { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 3 2; }
.key span { display: inline-block; width: 1.1em; height: .8em; margin: 0 .3em 0 1em;
  vertical-align: baseline; border-radius: 2px; }
"""


def picture(runs: Sequence[ModeRun], found: Mapping[str, ModeFigures], *, title: str) -> str:
    """Return the HTML page of *runs*.

    Args:
        runs: What is drawn, a band each, in order.
        found: The figures of each by its name.
        title: A heading; plain text.
    """
    longest_s = max(run.wall_s for run in runs)
    bands = "\n".join(_band(run, found[run.mode], longest_s=longest_s) for run in runs)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p>{escape(_what(runs[0]))}</p>
<p class="key">A row is a slot of the forward, a box is the request that sat in it.
<span style="background:{_colour(0, Work.PREFILL)}"></span>prompt
<span style="background:{_colour(0, Work.DECODE)}"></span>tokens for its caller
<span style="background:repeating-linear-gradient(45deg,var(--idle) 0 3px,var(--thrown) 3px 5px)">
</span>tokens that are thrown away
<span style="background:var(--idle)"></span>idle</p>
<svg style="height:0"><defs><pattern id="thrown" width="6" height="6"
 patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect class="thrown" width="6" height="6"/>
<line class="thrown-line" x1="0" y1="0" x2="0" y2="6"/></pattern></defs></svg>
{bands}
</body>
</html>
"""


def _what(run: ModeRun) -> str:
    facts = run.facts
    return (
        f"{len(run.served)} requests at once, {run.num_slots} slots, {facts.version} in "
        f"{facts.dtype}, {facts.num_threads} threads; every band has the same time scale"
    )


def _band(run: ModeRun, figure: ModeFigures, *, longest_s: float) -> str:
    """Return one mode: a heading, its figures, its slots."""
    row = min(_MAX_ROW, _BAND / run.num_slots)
    height = row * run.num_slots
    scale = (_WIDTH - _LEFT - _RIGHT) / longest_s
    boxes = "\n".join(_boxes(run, row=row, scale=scale))
    end = _LEFT + run.wall_s * scale
    label = f"{run.mode}: {_figures(figure)}"
    return f"""<section>
<h2>{escape(run.mode)}</h2>
<p>{escape(_figures(figure))}</p>
<svg viewBox="0 0 {_WIDTH} {height + 22:.1f}" role="img" aria-label="{escape(label)}">
<text x="0" y="10">slot 1</text><text x="0" y="{height - 2:.1f}">slot {run.num_slots}</text>
<rect class="idle" x="{_LEFT}" y="0" width="{run.wall_s * scale:.2f}" height="{height:.1f}"/>
{boxes}
<line class="end" x1="{end:.2f}" y1="0" x2="{end:.2f}" y2="{height:.1f}"/>
{_axis(longest_s, scale=scale, top=height)}
</svg>
</section>"""


def _figures(figure: ModeFigures) -> str:
    e2e_s = figure.e2e_s.p50
    return (
        f"{figure.wall_s:.1f} s, {figure.output_tokens_per_s:.0f} tokens/s, slots idle "
        f"{100 * figure.slot_idle_ratio:.0f} %"
        + ("" if e2e_s is None else f", median E2E {e2e_s:.1f} s")
    )


def _boxes(run: ModeRun, *, row: float, scale: float) -> Iterator[str]:
    for span in run.spans:
        x, width = _LEFT + span.from_s * scale, (span.to_s - span.from_s) * scale
        y = span.slot * row + _GAP
        paint = (
            'class="kept"'
            if span.work is Work.KEPT
            else f'fill="{_colour(span.request, span.work)}"'
        )
        yield (
            f'<rect {paint} x="{x:.2f}" y="{y:.2f}" width="{max(width - _GAP, 0.3):.2f}" '
            f'height="{row - 2 * _GAP:.2f}"><title>{escape(_about(run, span))}</title></rect>'
        )
        name = str(span.request)
        if span.work is Work.DECODE and row >= 10 and width > _LABEL_WIDTH * len(name) + 4:
            yield f'<text class="name" x="{x + 3:.2f}" y="{y + row - 4:.2f}">{name}</text>'


def _about(run: ModeRun, span: Span) -> str:
    served = run.served[span.request]
    return (
        f"request {span.request}: {span.work.value} from {span.from_s:.2f} to {span.to_s:.2f} s; "
        f"{served.num_prompt_tokens} prompt and {served.num_output_tokens} output tokens, "
        f"reply after {served.e2e_s:.2f} s"
    )


def _axis(longest_s: float, *, scale: float, top: float) -> str:
    step_s = _tick_s(longest_s)
    ticks = []
    for number in range(int(longest_s / step_s) + 1):
        x = _LEFT + number * step_s * scale
        ticks.append(
            f'<line x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{top + 4:.1f}" '
            f'stroke="currentColor"/><text x="{x:.1f}" y="{top + 15:.1f}" text-anchor="middle">'
            f"{number * step_s:g} s</text>"
        )
    return "".join(ticks)


def _tick_s(longest_s: float) -> float:
    """Return a round distance that gives about `_NUM_TICKS` ticks."""
    wanted = longest_s / _NUM_TICKS
    unit = 1.0
    while unit > wanted:
        unit /= 10
    while unit * 10 <= wanted:
        unit *= 10
    return next((unit * factor for factor in (1, 2, 5) if unit * factor >= wanted), unit * 10)


def _colour(request: int, work: Work) -> str:
    """Return a request's own colour; neighbours in the queue differ most (golden angle)."""
    hue = (request * 137.508 + 200) % 360
    return f"hsl({hue:.0f} 45% 45%)" if work is Work.PREFILL else f"hsl({hue:.0f} 60% 68%)"
