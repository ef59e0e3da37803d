"""Builds ladders out of settings: endpoints with their breakers, rungs in their places."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from failsoft.call_records import EventRecord, Recorder
from failsoft.config.settings import CACHE_RUNG, EndpointConfig, LadderConfig, Settings
from failsoft.fallback.breaker import Breaker, BreakerState
from failsoft.fallback.cached_rung import CachedRung
from failsoft.fallback.discovery import EngineFinder
from failsoft.fallback.endpoint import Endpoint, Target, Version
from failsoft.fallback.engine_locator import EngineLocator
from failsoft.fallback.fixed_target import fixed_target
from failsoft.fallback.ladder import Ladder, Rung
from failsoft.fallback.pins.pin_book import PinBook
from failsoft.fallback.retry_budget import RetryBudget
from failsoft.fallback.rung import EndpointRung, Place
from failsoft.fallback.store_threads import StoreThreads
from failsoft.fallback.surroundings import Surroundings
from failsoft.fallback.transport import Transport
from failsoft.reply_records import ReplyStore

MIN_LEASE_S = 10.0


class _Whereabouts(NamedTuple):
    locate: Callable[[], Target | str]
    version: Callable[[], Version]
    name: Callable[[], str] | None


class Builder:
    """Builds the ladders of one client.

    Args:
        settings: What to build.
        finder: Finds local engines.
        recorder: Gets an event for each change of a breaker.
        replies: The reply cache; None leaves every cached rung out.
        threads: What asks the reply cache.
        book: What moves pinned since the settings were written.
        transport: Returns the running event loop's transport.
        on_answer: Told after each answer of an endpoint.
        environ: Where API keys are.
        surroundings: Clocks, chance and sleep.

    Raises:
        ConfigError: An API key's variable is not set, or holds no key.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        finder: EngineFinder,
        recorder: Recorder,
        replies: ReplyStore | None,
        threads: StoreThreads,
        book: PinBook,
        transport: Callable[[], Transport],
        on_answer: Callable[[Endpoint, Target], None],
        environ: Mapping[str, str],
        surroundings: Surroundings,
    ) -> None:
        self._settings = settings
        self._finder = finder
        self._recorder = recorder
        self._replies = replies
        self._threads = threads
        self._book = book
        self._transport = transport
        self._on_answer = on_answer
        self._environ = environ
        self._surroundings = surroundings
        self.endpoints: dict[tuple[object, ...], Endpoint] = {}
        self._before: dict[tuple[object, ...], Endpoint] = {}

    def build(self, *, after: "Builder | None" = None) -> dict[str, Ladder]:
        """Return every ladder by name.

        Two ladders share an endpoint's standing and breaker when they judge it alike.

        Args:
            after: Whose endpoints' standing goes on, where they stay what they were.
        """
        self.endpoints = {}
        self._before = after.endpoints if after is not None else {}
        return {name: self._ladder(config) for name, config in self._settings.ladders.items()}

    def _ladder(self, config: LadderConfig) -> Ladder:
        budget = RetryBudget(ratio=config.retry.budget_ratio, clock=self._surroundings.clock)
        models = [name for name in config.rungs if name != CACHE_RUNG]
        endpoints = {name: self._endpoint(name, config) for name in models}
        rungs: list[Rung] = []
        for index, name in enumerate(config.rungs):
            below = config.rungs[index + 1 :]
            if name != CACHE_RUNG:
                place = Place(
                    index=index,
                    is_last_model=not any(other != CACHE_RUNG for other in below),
                    cache_below=CACHE_RUNG in below,
                    models_below=tuple(endpoints[n] for n in below if n != CACHE_RUNG),
                )
                rungs.append(self._model_rung(endpoints[name], place, config, budget))
            elif self._replies is not None and self._settings.serves_cache(config):
                above = [n for n in config.rungs[:index] if n != CACHE_RUNG] or models
                runs = [endpoints[n] for n in above]
                rungs.append(self._cached_rung(index, config, runs, store=self._replies))
        return Ladder(config, rungs=tuple(rungs), budget=budget)

    def _model_rung(
        self, endpoint: Endpoint, place: Place, config: LadderConfig, budget: RetryBudget
    ) -> EndpointRung:
        return EndpointRung(
            endpoint,
            place=place,
            config=config,
            budget=budget,
            transport=self._transport,
            on_answer=self._on_answer,
            surroundings=self._surroundings,
        )

    def _cached_rung(
        self, index: int, config: LadderConfig, endpoints: list[Endpoint], *, store: ReplyStore
    ) -> CachedRung:
        return CachedRung(
            index=index,
            ladder=config.name,
            config=config.cache,
            store=store,
            threads=self._threads,
            book=self._book,
            has_models_below=index < len(config.rungs) - 1,
            versions=lambda: [endpoint.version() for endpoint in endpoints],
        )

    def _endpoint(self, name: str, ladder: LadderConfig) -> Endpoint:
        key = (name, ladder.breaker, ladder.timeouts)
        if key not in self.endpoints:
            config = self._settings.endpoints[name]
            where = self._whereabouts(config)
            self.endpoints[key] = Endpoint(
                config,
                locate=where.locate,
                version=where.version,
                make_breaker=partial(self._breaker, name, ladder),
                clock=self._surroundings.clock,
                version_name=where.name,
            )
            if (before := self._before.get(key)) is not None:
                self.endpoints[key].go_on_from(before)
        return self.endpoints[key]

    def _breaker(self, name: str, ladder: LadderConfig) -> Breaker:
        def on_change(state: BreakerState, why: str) -> None:
            endpoint = self.endpoints[name, ladder.breaker, ladder.timeouts]
            detail = {"ladder": ladder.name, "why": why, "version": endpoint.version().digest}
            self._recorder.record_event(
                EventRecord(
                    kind=f"breaker.{state}",
                    at_ms=self._surroundings.wall_ms(),
                    subject=name,
                    detail_json=json.dumps(detail),
                )
            )

        silent_s = ladder.timeouts.first_token_s
        return Breaker(
            ladder.breaker,
            slow_s=ladder.slow_first_token_s,
            silent_s=silent_s,
            # A probe that is alive has its first token by then; one that is not was lost.
            lease_s=max(MIN_LEASE_S, ladder.timeouts.connect_s + silent_s),
            clock=self._surroundings.clock,
            random=self._surroundings.random,
            on_change=on_change,
        )

    def _whereabouts(self, config: EndpointConfig) -> _Whereabouts:
        if config.pin is not None:
            locator = EngineLocator(
                self._settings, slot=config.pin, finder=self._finder, book=self._book
            )
            return _Whereabouts(locator.locate, locator.version, locator.name)
        target = fixed_target(config, environ=self._environ)
        return _Whereabouts(lambda: target, lambda: target.version, None)
