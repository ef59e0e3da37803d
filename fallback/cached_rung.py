"""The cached rung: an earlier reply to the very same request, when its place allows one.

Placed first it saves calls, so it may answer only what the models would answer the
same: temperature 0, unless the ladder opts in. Placed below models it answers only
what they could not, whatever the sampling, and then a stale reply beats none
(RFC 5861). Never for tools, never for a caller who opted out. Units: seconds.
"""

from collections.abc import Callable

from failsoft.call_records import AttemptOutcome as Outcome
from failsoft.call_records import AttemptRecord
from failsoft.config.settings import CACHE_RUNG, CacheConfig
from failsoft.errors import RungFailedError, StoreError
from failsoft.fallback.answer import KeptAnswer, LiveAnswer
from failsoft.fallback.cache_key import reply_key
from failsoft.fallback.call import Call, CallRequest
from failsoft.fallback.compact_json import compact_json
from failsoft.fallback.context_check import uses_tools
from failsoft.fallback.endpoint import Version
from failsoft.fallback.failure import Action, Failure
from failsoft.fallback.pins.pin_book import PinBook
from failsoft.fallback.reply import Reply, Usage, kept_body
from failsoft.fallback.store_threads import StoreThreads
from failsoft.reply_records import CachedReply, ReplyStore, ServedVersion

MIN_READ_S = 0.05
"""Reading may take this long even at the deadline: it is the last thing left to try."""
MAX_READ_S = 0.25
"""What reading may take where a model stands below: that one must still get its time."""


class CachedRung:
    """The reply cache as a rung of one ladder.

    Args:
        index: Its place, from 0.
        ladder: The ladder's name.
        config: Times and matching.
        store: Where replies are.
        threads: What asks the store.
        book: Tells in time which version a pin was moved to.
        has_models_below: Whether a model rung stands below it.
        versions: Returns, best first, what the ladder's model rungs run now; those above it,
            or all of them when it stands first.
    """

    def __init__(
        self,
        *,
        index: int,
        ladder: str,
        config: CacheConfig,
        store: ReplyStore,
        threads: StoreThreads,
        book: PinBook,
        has_models_below: bool,
        versions: Callable[[], list[Version]],
    ) -> None:
        self.index = index
        self._ladder = ladder
        self._config = config
        self._store = store
        self._threads = threads
        self._book = book
        self._has_models_below = has_models_below
        self._versions = versions

    @property
    def is_first(self) -> bool:
        """Whether it stands above every model."""
        return self.index == 0

    def may_share(self, request: CallRequest) -> bool:
        """Return whether another caller's answer to the same request is as good as an own one."""
        return (
            request.cache == "on"
            and (self._config.sampled_first or request.body.get("temperature") == 0)
            and not uses_tools(request.body)
        )

    def key(self, request: CallRequest, version: Version, *, is_exact: bool = False) -> str:
        """Return the key of the reply that *version* gives to *request*.

        Args:
            request: The request.
            version: What answers it.
            is_exact: Every field counts, whatever the ladder's ``match`` leaves out.
        """
        return reply_key(
            request.body,
            kind=request.kind,
            tenant=request.tenant,
            version=version.key,
            match="exact" if is_exact else self._config.match,
        )

    async def ask(self, call: Call) -> KeptAnswer:
        """Return a kept reply.

        Raises:
            RungFailedError: There is none that may be served here.
        """
        request = call.request
        if self._forbids(request):
            raise self._passed(
                call, Outcome.CACHE_NOT_ALLOWED, "no cached reply for this call here"
            )
        began_s = call.surroundings.clock()
        until_s = began_s + self._reading_s(call)
        # What a version wrote must not answer once the slot was moved away from it.
        await self._book.freshen(timeout_s=until_s - began_s)
        versions = self._versions()
        outcome = Outcome.CACHE_MISS
        for version in versions[:1] if self.is_first else versions:
            kept = await self._read(call, version, until_s)
            if kept is None:
                continue
            age_s = max(0.0, call.surroundings.wall() - kept.created_at_ms / 1000)
            if age_s <= self._oldest_s:
                return self._serve(call, kept, age_s, began_s)
            outcome = Outcome.CACHE_EXPIRED
        is_old = outcome is Outcome.CACHE_EXPIRED
        raise self._passed(
            call, outcome, "every kept reply is too old" if is_old else "none is kept"
        )

    def keep(self, call: Call, answer: LiveAnswer, reply: Reply) -> None:
        """Keep *reply*, if a later call may be served with it."""
        request = call.request
        if not answer.is_storable or request.cache == "off" or uses_tools(request.body):
            return
        if self.is_first and not self.may_share(request) and request.cache == "on":
            return  # nobody would ever be given it
        version, now_ms = answer.version, call.surroundings.wall_ms()
        served = ServedVersion(source=version.source, version_digest=version.digest, at_ms=now_ms)
        self._store.note_served(served)
        self._store.put(
            CachedReply(
                key=self.key(request, version),
                tenant=request.tenant,
                version_digest=version.digest,
                ladder=self._ladder,
                created_at_ms=now_ms,
                reply_json=compact_json(reply.body),
            )
        )

    def _forbids(self, request: CallRequest) -> bool:
        if request.cache == "off" or uses_tools(request.body):
            return True
        return self.is_first and not self.may_share(request)

    @property
    def _oldest_s(self) -> float:
        stale_s = 0.0 if self.is_first else self._config.stale_if_error_s
        return self._config.ttl_s + stale_s

    def _reading_s(self, call: Call) -> float:
        remaining_s = call.deadline.remaining_s
        if self._has_models_below:
            return min(MAX_READ_S, remaining_s / 2)
        return max(MIN_READ_S, remaining_s)

    async def _read(self, call: Call, version: Version, until_s: float) -> CachedReply | None:
        try:
            return await self._threads.ask(
                lambda: self._find(call.request, version),
                timeout_s=max(0.0, until_s - call.surroundings.clock()),
            )
        except StoreError as exc:
            raise self._passed(call, Outcome.STORE_FAILED, "the store cannot be read") from exc
        except TimeoutError as exc:
            raise self._passed(call, Outcome.STORE_FAILED, "the store took too long") from exc

    def _find(self, request: CallRequest, version: Version) -> CachedReply | None:
        """Return what *version* answered; while it cannot be asked, under its last digest."""
        if version.digest is None:
            version = version.served_as(self._store.last_digest(version.source))
        return self._store.get(self.key(request, version))

    def _serve(self, call: Call, kept: CachedReply, age_s: float, began_s: float) -> KeptAnswer:
        try:
            body = kept_body(kept.reply_json)
        except ValueError:
            raise self._passed(
                call, Outcome.STORE_FAILED, "the kept reply cannot be read"
            ) from None
        call.record(
            AttemptRecord(
                call_id=call.call_id,
                attempt=call.next_attempt,
                rung=self.index,
                endpoint=CACHE_RUNG,
                outcome=Outcome.OK,
                started_at_ms=call.surroundings.wall_ms(),
                was_sent=False,
                total_s=call.surroundings.clock() - began_s,
                version_digest=kept.version_digest,
            )
        )
        return KeptAnswer(
            Reply(
                call_id=call.call_id,
                rung=CACHE_RUNG,
                rung_index=self.index,
                version=kept.version_digest,
                model=body.get("model"),
                body=body,
                attempts=tuple(call.attempts),
                usage=Usage.reported(body.get("usage")),
                cost=call.cost,
                age_s=age_s,
                is_stale=age_s > self._config.ttl_s,
            )
        )

    def _passed(self, call: Call, outcome: Outcome, detail: str) -> RungFailedError:
        failure = Failure(outcome=outcome, action=Action.STEP_DOWN, detail=detail)
        call.pass_over(rung=self.index, endpoint=CACHE_RUNG, failure=failure)
        return RungFailedError(rung=CACHE_RUNG, cause=failure)
