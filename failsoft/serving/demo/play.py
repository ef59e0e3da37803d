"""The demo's run: callers call, scenes act, and each moment is handed out.

Knows nothing of terminals. Units: seconds.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from failsoft.run_state import ChildState
from failsoft.serving.demo.callers import Callers
from failsoft.serving.demo.scenes import Scene
from failsoft.serving.demo.score import Score, Tally
from failsoft.serving.demo.stage import Stage

_STEP_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is played."""

    ladder: str
    rungs: tuple[str, ...]
    """The ladder's, in order."""
    num_callers: int
    seconds: float
    scenes: tuple[Scene, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where the play stands."""

    elapsed_s: float
    tally: Tally
    num_acts: int
    """How often a scene acted."""
    num_restarts: int
    """How often a process came back, all together."""
    news: tuple[str, ...]
    """What happened since the moment before, in words."""


def play(stage: Stage, url: str, plan: Plan) -> Iterator[Moment]:
    """Yield a moment about ten times a second, the last one at the end.

    Args:
        stage: Ready.
        url: The API's base URL, ``/v1`` included.
        plan: What to play.

    Raises:
        DemoError: Everything ended by itself.
    """
    news: list[str] = []
    score = Score(plan.rungs, on_shift=lambda rung: news.append(f"{rung} answers now"))
    begun_s = time.monotonic()
    with Callers(url, ladder=plan.ladder, num=plan.num_callers, score=score):
        while (elapsed_s := time.monotonic() - begun_s) < plan.seconds:
            stage.check()
            acts = [scene.step(stage, elapsed_s=elapsed_s) for scene in plan.scenes]
            news += [act for act in acts if act is not None]
            yield _moment(stage, plan.scenes, score, elapsed_s, news)
            time.sleep(_STEP_S)
    yield _moment(stage, plan.scenes, score, plan.seconds, news)


def _moment(
    stage: Stage, scenes: Sequence[Scene], score: Score, elapsed_s: float, news: list[str]
) -> Moment:
    state = stage.state()
    told = tuple(news)
    del news[: len(told)]  # callers' threads may append meanwhile
    return Moment(
        elapsed_s=elapsed_s,
        tally=score.tally(),
        num_acts=sum(scene.num_acts for scene in scenes),
        num_restarts=sum(map(_times_back, state.children)) if state else 0,
        news=told,
    )


def _times_back(child: ChildState) -> int:
    """Return how often *child* runs again; one that only starts is not back yet."""
    is_back = child.phase == "running" or child.num_restarts == 0
    return child.num_restarts - (not is_back)
