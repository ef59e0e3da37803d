"""One move as the store keeps it: what the store refuses is tried again, and nothing twice.

A write that failed may have been taken all the same, as when the connection broke under its
commit. So each try looks first at how far the move is.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from failsoft.errors import PinError, StoreError
from failsoft.pin_records import MoveState, PinMove, PinnedVersion
from failsoft.serving.supervisor.moves.desk import PinDesk

if TYPE_CHECKING:
    from failsoft.store.store import Store


class MoveLog:
    """Writes down one move; one event loop owns it.

    Args:
        move: As it is now.
        desk: Asks the store.
        retry_s: Between two tries.
    """

    def __init__(self, move: PinMove, *, desk: PinDesk, retry_s: float) -> None:
        self.move = move
        self._desk = desk
        self._retry_s = retry_s

    async def claim(self, *, owner: str) -> bool:
        """Take the asked move on for *owner*; False when another did, or it is over.

        Raises:
            StoreError: The store refused.
        """
        move_id = self.move.move_id

        def work(store: "Store") -> PinMove | None:
            claimed = store.pins.claim(move_id, owner=owner)
            now = claimed or store.pins.move(move_id)
            is_own = now is not None and now.state is MoveState.ASKED and now.owner == owner
            return now if is_own else None

        claimed = await self._desk.do(work)
        if claimed is None:
            return False
        self.move = claimed
        return True

    async def enter(
        self,
        state: MoveState,
        *,
        to: PinnedVersion | None = None,
        proof: Mapping[str, object] | None = None,
        patience_s: float | None,
    ) -> None:
        """Enter *state*.

        Args:
            state: One that neither ends nor switches.
            to: The target with what was learnt of it.
            proof: Replaces what is kept.
            patience_s: How long the store may refuse; None for ever.

        Raises:
            StoreError: It refused for longer.
            PinError: Another process went on with the move.
        """
        await self._insist(
            state,
            lambda store: store.pins.advance(self.move, state, to=to, proof=proof),
            patience_s,
        )

    async def switch(self, *, proof: Mapping[str, object], patience_s: float) -> bool:
        """Point the pin at the target; False when an abort came first.

        Raises:
            StoreError: It refused for longer than *patience_s*; whether it took the last try is
                not known then.
            PinError: Another process went on with the move.
        """
        state = MoveState.SWITCHING
        await self._insist(
            state, lambda store: store.pins.switch(self.move, proof=proof), patience_s
        )
        return self.move.state is state

    async def end(
        self,
        state: MoveState,
        *,
        reason: str | None = None,
        proof: Mapping[str, object] | None = None,
        patience_s: float | None = None,
    ) -> None:
        """End the move, from whatever state the store has it in.

        Raises:
            StoreError: It refused for longer than *patience_s*; None waits for ever.
            PinError: Another process went on with the move.
        """

        def work(store: "Store") -> PinMove:
            now = store.pins.move(self.move.move_id) or self.move
            if now.state.is_end:
                raise PinError(
                    f"the move is {now.state.value} already: {now.reason}", slot=now.slot
                )
            return store.pins.end(now, state, reason=reason, proof=proof)

        await self._insist(state, work, patience_s)

    async def look(self) -> None:
        """Read how far the move is, for as long as it takes."""
        while True:
            try:
                now = await self._desk.do(lambda store: store.pins.move(self.move.move_id))
                break
            except StoreError:
                await asyncio.sleep(self._retry_s)
        self.move = now or self.move

    async def _insist(
        self, state: MoveState, work: Callable[["Store"], PinMove], patience_s: float | None
    ) -> None:
        def unless_done(store: "Store") -> PinMove:
            now = store.pins.move(self.move.move_id)
            return now if now is not None and now.state is state else work(store)

        until_s = None if patience_s is None else time.monotonic() + patience_s
        while True:
            try:
                self.move = await self._desk.do(unless_done)
                return
            except StoreError:
                if until_s is not None and time.monotonic() >= until_s:
                    raise
            await asyncio.sleep(self._retry_s)
