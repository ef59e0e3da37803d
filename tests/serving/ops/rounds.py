"""Rounds of fingerprint checks over a store and a home of their own."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from failsoft.config.settings import EndpointConfig, Settings, StoreConfig
from failsoft.fallback.discovery import RunningEngine, publish_engine
from failsoft.fingerprint_status import FingerprintStanding
from failsoft.serving.ops.fingerprint_round import FingerprintRound
from failsoft.store import Store
from tests.fallback.fingerprint.foreign import Foreign

EVERY_S = 300
"""Between two rounds of `look`."""


class Clock:
    """A clock that a test sets; UTC epoch seconds."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


class Rounds:
    """Rounds over one endpoint elsewhere, and one of a slot that may have an engine."""

    def __init__(self, folder: Path, foreign: Foreign) -> None:
        self.home = folder
        self.settings = Settings(
            store=StoreConfig(url=f"sqlite:///{folder}/failsoft.db"),
            pins={"primary": "smollm2-135m-instruct"},
            endpoints={
                "hosted": EndpointConfig(name="hosted", url=foreign.url, model="m"),
                "local": EndpointConfig(name="local", pin="primary"),
                "twin": EndpointConfig(name="twin", pin="primary"),
            },
        )

    def run(self, **changes: Any) -> dict[str, FingerprintStanding]:
        """Run one round as a process that has just started would."""
        settings = replace(self.settings, **changes)
        with Store(settings.store) as store:
            one = FingerprintRound(settings, home=self.home, environ={})
            return asyncio.run(one.run(store))

    def events(self) -> list[tuple[str, str]]:
        """Return kind and endpoint of every event, the oldest first."""
        with Store(self.settings.store) as store:
            return [(event.kind, event.subject) for event in reversed(store.reader.events())]

    def publish(self, foreign: Foreign, digest: str) -> None:
        """Say that the engine of the slot runs; *foreign* stands in for it."""
        foreign.headers["x-failsoft-version"] = digest
        engine = RunningEngine(
            slot="primary",
            url=foreign.url,
            pid=os.getpid(),
            version="v",
            version_digest=digest,
        )
        publish_engine(self.home, engine)


def look(rounds: Rounds, clock: Clock) -> FingerprintStanding:
    """Run one round; return where the endpoint elsewhere stands. Five minutes go by."""
    with Store(rounds.settings.store) as store:
        one = FingerprintRound(rounds.settings, home=rounds.home, environ={}, clock=clock)
        standing = asyncio.run(one.run(store))["hosted"]
    clock.now_s += EVERY_S
    return standing
