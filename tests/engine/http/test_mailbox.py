"""The way of events from the engine's thread to the loop."""

import asyncio
import threading

from failsoft.engine.http.mailbox import Mailbox
from failsoft.engine.request import EngineEvent, TokenEvent


def test_a_burst_wakes_the_loop_once() -> None:
    """A thousand events of a hundred requests while the loop is busy: one wake-up, in order."""

    async def main() -> tuple[int, list[int]]:
        loop = asyncio.get_running_loop()
        wakes = 0
        wake = loop.call_soon_threadsafe

        def counting(*args):  # type: ignore[no-untyped-def]
            nonlocal wakes
            wakes += 1
            return wake(*args)

        loop.call_soon_threadsafe = counting  # type: ignore[method-assign, assignment]
        mailbox = Mailbox()
        mailbox.open(loop)
        seen: list[EngineEvent] = []
        sinks = [mailbox.sink(seen.append) for _ in range(100)]

        def burst() -> None:
            for number in range(1000):
                sinks[number % 100](TokenEvent("r", number))

        thread = threading.Thread(target=burst)
        thread.start()
        thread.join()  # blocks the loop, as a busy one would
        await asyncio.sleep(0.01)
        return wakes, [event.token_id for event in seen if isinstance(event, TokenEvent)]

    wakes, tokens = asyncio.run(main())

    assert wakes == 1
    assert tokens == list(range(1000))


def test_no_event_is_lost_between_bursts() -> None:
    """A thread that posts while the loop empties the box: all arrive, in order."""

    async def main() -> list[int]:
        mailbox = Mailbox()
        mailbox.open(asyncio.get_running_loop())
        seen: list[int] = []
        done = asyncio.Event()

        def deliver(event: EngineEvent) -> None:
            assert isinstance(event, TokenEvent)
            seen.append(event.token_id)
            if len(seen) == 20_000:
                done.set()

        sink = mailbox.sink(deliver)
        thread = threading.Thread(
            target=lambda: [sink(TokenEvent("r", number)) for number in range(20_000)]
        )
        thread.start()
        await asyncio.wait_for(done.wait(), 10)
        thread.join()
        return seen

    assert asyncio.run(main()) == list(range(20_000))


def test_events_after_the_loop_closed_are_dropped() -> None:
    """The engine's thread must not fail because the server is gone."""
    loop = asyncio.new_event_loop()
    mailbox = Mailbox()
    mailbox.open(loop)
    seen: list[EngineEvent] = []
    sink = mailbox.sink(seen.append)
    loop.close()

    sink(TokenEvent("r", 1))
    sink(TokenEvent("r", 2))

    assert seen == []
