"""``failsoft demo``: watch the ladder's rungs shift while its first engine is killed.

Exit 0 when every call got an answer, 1 when one failed, 130 after Ctrl-C, else 128 and the signal.
"""

import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from failsoft.cli.demo_board import Board
    from failsoft.serving.demo.play import Moment

_READY_S = 1_800.0
"""A first start fetches and converts a model."""


def demo(
    seconds: Annotated[float, typer.Option(min=1, help="How long to play.")] = 120,
    kill_every: Annotated[
        float, typer.Option(min=1, help="Seconds from one kill of the first engine to the next.")
    ] = 40,
    callers: Annotated[int, typer.Option(min=1, max=64, help="Callers at a time.")] = 4,
) -> None:
    """Run traffic through a `failsoft up` of its own, and kill its first engine on a timer."""
    from failsoft.cli.demo_board import make_board

    for number in (signal.SIGTERM, signal.SIGHUP):  # as when the terminal is closed
        if signal.getsignal(number) is not signal.SIG_IGN:  # by nohup
            signal.signal(number, _leave)
    board = make_board(is_terminal=sys.stdout.isatty(), seconds=seconds)
    last: list[Moment] = []
    try:
        _play(board, last, seconds=seconds, kill_every=kill_every, num_callers=callers)
    finally:
        if last:
            board.summary(last[0])
    if last and last[0].tally.num_failed:
        raise typer.Exit(1)


def _play(
    board: "Board", last: "list[Moment]", *, seconds: float, kill_every: float, num_callers: int
) -> None:
    """Play to the end, the newest moment kept in *last*; whatever ends it, nothing runs on."""
    from failsoft.config.schema import load_settings
    from failsoft.serving.demo.play import Plan, play
    from failsoft.serving.demo.scenes import KillEngine
    from failsoft.serving.demo.stage import Stage

    with Stage(os.environ) as stage:
        state = stage.wait_until_ready(limit_s=_READY_S, on_wait=board.waiting)
        settings = load_settings(stage.home / "failsoft.toml")
        ladder = next(iter(settings.ladders.values()))
        first = settings.endpoints[ladder.rungs[0]]
        assert first.pin is not None, "the built-in settings begin with a local engine"
        plan = Plan(
            ladder=ladder.name,
            rungs=ladder.rungs,
            num_callers=num_callers,
            seconds=seconds,
            scenes=(KillEngine(first.pin, every_s=kill_every),),
        )
        with board.playing(state.ops_url):
            for moment in play(stage, state.api_url, plan):
                last[:] = [moment]
                board.show(moment)


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)
