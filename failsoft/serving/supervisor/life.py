"""One run of one process, from its start to its end: is it ready, does it still work?

Kills what hangs; what to do after an end is not its business.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from failsoft.serving.supervisor.child import Child, Exit
from failsoft.serving.supervisor.plan import ChildPlan
from failsoft.serving.supervisor.probe import ask_health, cpu_seconds
from failsoft.serving.supervisor.watch import HealthWatch

_FIND_S = 0.1
"""Between two looks for what a starting process tells of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended."""

    exit: Exit
    hung: str | None = None
    """In words why it was killed; None when it ended by itself."""
    ready_for_s: float | None = None
    """How long it had been ready; None when it never was."""
    at_s: float
    """Monotonic."""

    @property
    def words(self) -> str:
        """Return why it ended, without anything it said."""
        return self.exit.words if self.hung is None else f"{self.hung}, and was killed"

    @property
    def start_words(self) -> str:
        """Return why it ended with its last line: until it is ready it has no user's text."""
        if self.ready_for_s is not None or not self.exit.last_line:
            return self.words
        return f"{self.words}: {self.exit.last_line}"


class Life:
    """One run.

    Args:
        plan: The process.
        child: It runs already.
        on_ready: Given the seconds that its start took.
    """

    def __init__(self, plan: ChildPlan, child: Child, *, on_ready: Callable[[float], None]) -> None:
        self._plan = plan
        self._child = child
        self._on_ready = on_ready
        self.is_judged = plan.is_judged
        """Unset while it stops: it need not answer any more."""
        self._started_s = time.monotonic()
        self._ready_s: float | None = None
        self._hung: str | None = None

    async def run(self) -> Ended:
        """Return how it ended, once it has."""
        waiting = asyncio.create_task(self._child.wait())
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait({waiting, watching}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()  # a bug of ours ends the supervisor, loudly
            exit_ = await waiting
        finally:
            watching.cancel()
            await asyncio.wait({watching})
        now_s = time.monotonic()
        ready_for_s = None if self._ready_s is None else now_s - self._ready_s
        return Ended(exit=exit_, hung=self._hung, ready_for_s=ready_for_s, at_s=now_s)

    async def _watch(self) -> None:
        """Say when the process is ready, and kill it when it hangs."""
        rules = self._plan.watch
        url = await self._find()
        if url is None:
            self._kill(f"its start took longer than {rules.start_s:.0f} s")
            return
        self._ready_s = time.monotonic()
        self._on_ready(self._ready_s - self._started_s)
        pid = self._child.pid
        watch = HealthWatch(rules, now_s=self._ready_s, cpu_s=cpu_seconds(pid))
        while self.is_judged:
            await asyncio.sleep(rules.every_s)
            answer = await ask_health(url, timeout_s=rules.timeout_s)
            why = watch.verdict(answer, now_s=time.monotonic(), cpu_s=cpu_seconds(pid))
            if why is not None and self.is_judged:
                self._kill(why)
                return

    async def _find(self) -> str | None:
        """Return where the process tells its health, once it does; None when that takes too long.

        No verdict before: a first start may download for minutes.
        """
        rules = self._plan.watch
        while time.monotonic() - self._started_s < rules.start_s:
            url = self._plan.health_url(self._child.pid)
            if url and await ask_health(url, timeout_s=rules.timeout_s) != "silent":
                return url
            await asyncio.sleep(_FIND_S)
        return None

    def _kill(self, why: str) -> None:
        self._hung = why
        self._child.kill()
