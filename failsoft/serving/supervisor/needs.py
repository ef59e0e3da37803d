"""Which engines the settings ask for, in the order of their importance.

Knows nothing of processes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from failsoft.config.settings import CACHE_RUNG, Settings
from failsoft.config.versions import VersionSettings, find_version
from failsoft.serving.supervisor.threads import threads_per_engine


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNeed:
    """One engine that the settings ask for."""

    slot: str
    version: str
    """Its name."""
    settings: VersionSettings | None
    """What the name means, price apart; another meaning is another engine."""
    threads: int | None = field(default=None, compare=False)
    """CPU threads; None leaves them to the version's own options. A change of these alone
    replaces no engine."""


def engines_needed(settings: Settings, *, num_cores: int) -> list[EngineNeed]:
    """Return the engines of the slots that some ladder uses, the most important first.

    First rungs come before second ones, whichever ladder they are of; rungs that are no local
    engine do not count.
    """
    rows = [_slots(settings, ladder.rungs) for ladder in settings.ladders.values()]
    first = {row[0] for row in rows if row}
    order = [slot for row in zip_longest(*rows) for slot in row if slot is not None]
    used = list(dict.fromkeys(order))
    threads = threads_per_engine(num_cores=num_cores, are_first=[slot in first for slot in used])
    return [_need(settings, slot, num) for slot, num in zip(used, threads, strict=True)]


def _slots(settings: Settings, rungs: Sequence[str]) -> list[str]:
    """Return the slots that local engines serve a ladder from, in its order."""
    pins = [settings.endpoints[name].pin for name in rungs if name != CACHE_RUNG]
    return [pin for pin in pins if pin is not None]


def _need(settings: Settings, slot: str, threads: int) -> EngineNeed:
    name = settings.pins[slot]
    version = find_version(name, settings.versions)
    is_own = version is not None and version.engine_options.get("num_threads") is not None
    return EngineNeed(
        slot=slot,
        version=name,
        settings=None if version is None else replace(version, price=None),
        threads=None if is_own else threads,
    )
