"""Which engines run: one for each slot, and beside it for a while the one that replaces it.

Knows nothing of settings files. One event loop owns it.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from failsoft.serving.supervisor.keeper import Keeper
from failsoft.serving.supervisor.needs import EngineNeed


class Change(NamedTuple):
    """What new settings do to the engines; slots."""

    started: tuple[str, ...]
    replaced: tuple[str, ...]
    stopped: tuple[str, ...]

    @property
    def words(self) -> str:
        """Return it in words."""
        parts = zip(self._fields, self, strict=True)
        said = [f"{what}: {', '.join(slots)}" for what, slots in parts if slots]
        return "; ".join(said) or "no engine changes"


class Seated(NamedTuple):
    """An engine and what it runs."""

    need: EngineNeed
    keeper: Keeper


@dataclass(slots=True)
class _Seat:
    current: Seated
    successor: Seated | None = None


class Roster:
    """Starts, replaces and stops engines.

    Args:
        make: Returns a keeper that starts an engine under the given name.
        handover_s: Between a successor's being ready and its predecessor's stop: who had
            just looked the old one up still gets its answer.
        on_change: Called when an engine has left.
    """

    def __init__(
        self,
        make: Callable[[EngineNeed, str], Keeper],
        *,
        handover_s: float,
        on_change: Callable[[], None],
    ) -> None:
        self._make = make
        self._handover_s = handover_s
        self._on_change = on_change
        self._seats: dict[str, _Seat] = {}
        self._leaving: dict[Keeper, asyncio.Task[None]] = {}
        self._is_over = asyncio.Event()

    @property
    def keepers(self) -> list[Keeper]:
        """Every engine's, those that leave last."""
        return [*(seated.keeper for seated in self._seated()), *self._leaving]

    def follow(self, needs: Sequence[EngineNeed]) -> Change:
        """Bring the engines in line with *needs*; returns at once."""
        wanted = {need.slot: need for need in needs}
        stopped = [slot for slot in self._seats if slot not in wanted]
        for slot in stopped:
            self._vacate(self._seats.pop(slot), is_renamed=True)
        started = [slot for slot in wanted if slot not in self._seats]
        for slot in started:
            self._seats[slot] = _Seat(Seated(wanted[slot], self._make(wanted[slot], slot)))
        replaced = [slot for slot in wanted if self._replace(self._seats[slot], wanted[slot])]
        return Change(tuple(started), tuple(replaced), tuple(stopped))

    def note_ready(self, keeper: Keeper) -> None:
        """Have a successor that is ready take its predecessor's seat."""
        for slot, seat in self._seats.items():
            if seat.successor is not None and seat.successor.keeper is keeper:
                before, seat.current, seat.successor = seat.current, seat.successor, None
                before.keeper.name, keeper.name = f"{slot}.old", slot
                self._see_off(before.keeper, after_s=self._handover_s)
                return

    def retry(self) -> None:
        """Try again what was given up or waits."""
        for seated in self._seated():
            seated.keeper.retry()

    async def stop(self) -> None:
        """End every engine."""
        for seat in self._seats.values():
            self._vacate(seat)
        self._seats.clear()
        self._is_over.set()
        await asyncio.gather(*self._leaving.values())

    def _seated(self) -> Iterator[Seated]:
        for seat in self._seats.values():
            yield seat.current
            if seat.successor is not None:
                yield seat.successor

    def _replace(self, seat: _Seat, need: EngineNeed) -> bool:
        """Have *seat* run *need*; return whether that takes another engine than it has now."""
        if seat.successor is not None and seat.successor.need != need:
            self._see_off(seat.successor.keeper)
            seat.successor = None
        if seat.current.need == need:
            return False
        if seat.current.keeper.phase != "running":  # it serves nobody, so nobody misses it
            heir, seat.successor = seat.successor, None  # it may have loaded for a while
            self._vacate(seat, is_renamed=True)
            seat.current = heir or Seated(need, self._make(need, need.slot))
            seat.current.keeper.name = need.slot
        elif seat.successor is None:
            seat.successor = Seated(need, self._make(need, f"{need.slot}.new"))
        return True

    def _vacate(self, seat: _Seat, *, is_renamed: bool = False) -> None:
        """See off who sits there; *is_renamed* when another engine may take the name."""
        if is_renamed:
            seat.current.keeper.name = f"{seat.current.need.slot}.old"
        self._see_off(seat.current.keeper)
        if seat.successor is not None:
            self._see_off(seat.successor.keeper)

    def _see_off(self, keeper: Keeper, *, after_s: float = 0) -> None:
        async def leave() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(after_s):
                    await self._is_over.wait()
            await keeper.stop()
            del self._leaving[keeper]
            self._on_change()

        self._leaving[keeper] = asyncio.create_task(leave())
