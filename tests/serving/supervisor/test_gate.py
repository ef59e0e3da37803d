"""Few engines load at a time, in the order of asking."""

import asyncio

from failsoft.serving.supervisor.gate import StartGate


def test_the_next_one_comes_in_when_the_first_is_ready() -> None:
    """Giving a ticket back twice frees one place only."""

    async def run() -> list[str]:
        gate, order = StartGate(width=1, patience_s=5), list[str]()
        first = await gate.enter()

        async def load(name: str) -> None:
            ticket = await gate.enter()
            order.append(name)
            await asyncio.sleep(0)
            ticket.give_back()

        waiting = [asyncio.create_task(load(name)) for name in ("second", "third")]
        await asyncio.sleep(0.01)
        order.append("first ready")
        first.give_back()
        first.give_back()
        await asyncio.gather(*waiting)
        return order

    assert asyncio.run(run()) == ["first ready", "second", "third"]


def test_patience_ends() -> None:
    """Who waited long enough comes in beside the one that downloads, and frees nobody's place."""

    async def run() -> bool:
        gate = StartGate(width=1, patience_s=0.01)
        await gate.enter()
        impatient = await gate.enter()
        impatient.give_back()
        return gate._places.locked()

    assert asyncio.run(run())
