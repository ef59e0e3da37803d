"""Which engines run: one for each slot, and beside it for a while the one that replaces it.

A slot whose pin is being moved is *held*: settings leave it alone, and who moves it says what
sits there. Knows nothing of settings files. One event loop owns it.
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
    trial: Keeper | None = None
    is_held: bool = False


class Roster:
    """Starts, replaces and stops engines.

    Args:
        make: Returns a keeper that starts an engine under the given name.
        handover_s: Between a successor's being ready and its predecessor's stop: who had
            just looked the old one up still gets its answer.
        on_change: Called when an engine has left or got another name.
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
        seated = (seated.keeper for seated in self._seated())
        return list(dict.fromkeys([*seated, *self._leaving]))

    @property
    def leaving(self) -> list[Keeper]:
        """Those that were told to end, and have not yet."""
        return [keeper for keeper in self._leaving if not keeper.task.done()]

    def follow(self, needs: Sequence[EngineNeed]) -> Change:
        """Bring the engines in line with *needs*; returns at once."""
        wanted = {need.slot: need for need in needs}
        held = [slot for slot, seat in self._seats.items() if seat.is_held]
        stopped = [slot for slot in self._seats if slot not in wanted and slot not in held]
        for slot in stopped:
            self._vacate(self._seats.pop(slot), is_renamed=True)
        started = [slot for slot in wanted if slot not in self._seats]
        for slot in started:
            self._seats[slot] = _Seat(Seated(wanted[slot], self._make(wanted[slot], slot)))
        replaced = [
            slot
            for slot in wanted
            if slot not in held and self._replace(self._seats[slot], wanted[slot])
        ]
        return Change(tuple(started), tuple(replaced), tuple(stopped))

    def note_ready(self, keeper: Keeper) -> None:
        """Have a successor that is ready take its predecessor's seat."""
        for slot, seat in self._seats.items():
            if seat.successor is not None and seat.successor.keeper is keeper:
                before, seat.current, seat.successor = seat.current, seat.successor, None
                self._call_old(before.keeper, slot)
                keeper.name = slot
                self._see_off(before.keeper, after_s=self._handover_s)
                return

    # Moves.

    def hold(self, slot: str) -> bool:
        """Have settings leave *slot* alone until `release`; False when nothing can be moved there.

        That is so where no engine sits, or another replaces it already. One that was given up
        replaces nothing, and goes: else settings whose engine does not start would keep
        everybody from moving the slot away from them.
        """
        seat = self._seats.get(slot)
        if seat is None:
            return False
        if seat.successor is not None:
            if seat.successor.keeper.phase != "gave_up":
                return False
            self._see_off(seat.successor.keeper)
            seat.successor = None
        seat.is_held = True
        return True

    def release(self, slot: str) -> None:
        """Have *slot* follow the settings again."""
        if (seat := self._seats.get(slot)) is not None:
            seat.is_held = False

    def is_settled(self, slot: str) -> bool:
        """Return whether what sits at *slot* is what the settings ask for, as far as they say."""
        seat = self._seats.get(slot)
        return seat is not None and seat.successor is None

    def seated(self, slot: str) -> Seated | None:
        """Return who sits at *slot*."""
        seat = self._seats.get(slot)
        return None if seat is None else seat.current

    def try_out(self, slot: str, keeper: Keeper) -> None:
        """Count *keeper* among the engines: it is on trial for the held *slot*."""
        self._seats[slot].trial = keeper

    async def end_trial(self, slot: str) -> None:
        """Stop the engine that is on trial for *slot*, if there is one."""
        seat = self._seats.get(slot)
        if seat is not None and seat.trial is not None:
            await seat.trial.stop()
            seat.trial = None
            self._on_change()

    def install(self, slot: str, need: EngineNeed) -> Keeper:
        """Have the engine on trial take the held *slot*'s seat; return the one that leaves."""
        seat = self._seats[slot]
        assert seat.trial is not None, "only what was tried out is installed"
        before, seat.current, seat.trial = seat.current, Seated(need, seat.trial), None
        self._call_old(before.keeper, slot)
        seat.current.keeper.name = slot
        self._see_off(before.keeper, after_s=self._handover_s)
        self._on_change()
        return before.keeper

    async def empty(self, slot: str) -> None:
        """Stop the engine at the held *slot*; return once it has ended.

        It is stopped also where nobody waits for that any more.
        """
        keeper = self._seats[slot].current.keeper
        self._call_old(keeper, slot)
        self._see_off(keeper)
        await asyncio.wait({keeper.task})

    def restart(self, slot: str) -> Keeper:
        """Start anew what sat at the held *slot*, which was emptied; return its keeper."""
        seat = self._seats[slot]
        seat.current = Seated(seat.current.need, self._make(seat.current.need, slot))
        return seat.current.keeper

    async def revive(self, slot: str) -> None:
        """Start anew what sits at *slot* if it was told to end, and nothing takes its place."""
        seat = self._seats.get(slot)
        if seat is None or seat.successor is not None or seat.current.keeper.phase != "stopping":
            return
        await self.empty(slot)
        self.restart(slot)

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
            if seat.trial is not None:
                yield Seated(seat.current.need, seat.trial)

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
            self._call_old(seat.current.keeper, seat.current.need.slot)
        self._see_off(seat.current.keeper)
        if seat.successor is not None:
            self._see_off(seat.successor.keeper)
        if seat.trial is not None:
            self._see_off(seat.trial)

    def _call_old(self, keeper: Keeper, slot: str) -> None:
        """Free the name of *slot* from *keeper*, which leaves; another one may still leave."""
        if keeper in self._leaving:
            return
        taken, number = {other.name for other in self._leaving}, 1
        while (name := f"{slot}.old{number if number > 1 else ''}") in taken:
            number += 1
        keeper.name = name

    def _see_off(self, keeper: Keeper, *, after_s: float = 0) -> None:
        if keeper in self._leaving or keeper.task.done():
            return

        async def leave() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(after_s):
                    await self._is_over.wait()
            await keeper.stop()
            del self._leaving[keeper]
            self._on_change()

        self._leaving[keeper] = asyncio.create_task(leave())
