"""Is it answering, from which rung, and since when: judged from what was measured.

Knows nothing of HTTP or the store; pure functions. The rules, first match wins:

1. The front stops: no.
2. The last `NUM_IN_A_ROW` calls got nothing, or all of the last minute and at least
   `MIN_FAILED`: no, whatever the rungs claim. Streams that were cut do not count here: a
   killed engine cuts several at once, and the next call is answered by the rung below.
3. The first model that can serve: yes if it is the ladder's first, but degraded where
   `NUM_DOUBTFUL` calls of the last minute failed, or where all its replies since the model
   can serve came from below it; a lower one: degraded.
4. Only kept replies: degraded, for new questions fail.
5. Nothing can serve: no; unknown if somebody may be able to and cannot be asked.

A kept reply in front of the models saves calls, so it decides nothing there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from failsoft.call_records import CallOutcome, EventRecord
from failsoft.dashboard.incidents import ABLE_KINDS, UNABLE_KINDS
from failsoft.dashboard.sources.ledger import is_broken
from failsoft.dashboard.standing import Answers, Engine, Rung, Unknown, Verdict, is_model
from failsoft.store.traffic import CallEnd

NUM_IN_A_ROW = 5
"""So many in a row are no chance; where a minute holds fewer calls, all of them are enough."""
MIN_FAILED = 3
"""One or two failed calls may be their own fault."""
NUM_DOUBTFUL = 2


def doubted(rung: Rung, engines: Mapping[str, Engine]) -> Rung:
    """Return *rung* as its own engine lets it stand: what cannot be confirmed is not believed.

    A breaker whose time is over lets a call through, which tells how the next call fares and
    not how it ends: without an engine to ask, that is not known.
    """
    if not rung.can_serve:
        return rung
    if rung.slot is None or rung.slot not in engines:
        if rung.breaker in (None, "closed"):
            return rung
        return replace(rung, can_serve=None, why_not="it failed, and was not asked again since")
    queue = engines[rung.slot].queue
    if isinstance(queue, Unknown):
        return replace(rung, can_serve=None, why_not=f"its engine cannot be asked: {queue.reason}")
    if queue.why_not_ready is not None:
        return replace(rung, can_serve=False, why_not=f"its engine says {queue.why_not_ready}")
    return rung


def judge(
    rungs: Sequence[Rung],
    *,
    is_draining: bool,
    recent: Sequence[CallEnd],
    events: Sequence[EventRecord],
    serving_since: Mapping[str, int],
    front_since_ms: int,
) -> Verdict:
    """Return how one ladder stands.

    Args:
        rungs: In order, doubts applied.
        is_draining: Whether the front takes no more calls.
        recent: Calls of the last minute, newest first; empty when not known.
        events: Newest first; empty when not known.
        serving_since: When each slot's engine began to serve, UTC epoch ms; only running ones.
        front_since_ms: When the front started.
    """
    if is_draining:
        return Verdict(answers=Answers.NO, reason="the front is stopping and takes no new calls")
    if (failing := _all_failed(recent)) is not None:
        return failing
    models = [rung for rung in rungs if is_model(rung)] or list(rungs)
    able = next((place for place, rung in enumerate(models) if rung.can_serve), None)
    if able is None:
        since_ms = _latest(_unable_since(rung, events) for rung in models)
        return _without_models(rungs, models, since_ms)
    rung = models[able]
    since_ms = _latest(
        [
            front_since_ms,
            _able_since(rung, events),
            serving_since.get(rung.slot or ""),
            *(_unable_since(above, events) for above in models[:able]),
        ]
    )
    if not able and (passed := _passed_over(rungs, rung, recent, since_ms)) is not None:
        return passed
    doubt = _why_passed(models[:able]) if able else _some_failed(recent)
    return Verdict(
        answers=Answers.DEGRADED if doubt else Answers.YES,
        reason=doubt or "the first model can answer",
        rung=rung.name,
        version_name=rung.version_name,
        version_digest=rung.version_digest,
        since_ms=since_ms,
    )


def by_calls(rungs: Sequence[Rung], recent: Sequence[CallEnd]) -> Verdict | None:
    """Return how a ladder stands that only embedded clients use: by their calls alone.

    Returns:
        None when the last minute holds too few calls to tell.
    """
    if (failing := _all_failed(recent)) is not None:
        return failing
    last = next((end for end in recent if end.outcome is CallOutcome.OK), None)
    if last is None:
        return None
    first = next((rung.name for rung in rungs if is_model(rung)), None)
    rung = next((rung for rung in rungs if rung.name == last.endpoint), None)
    return Verdict(
        answers=Answers.YES if last.endpoint == first else Answers.DEGRADED,
        reason="as the last minute's calls of embedded clients tell; no front runs here",
        rung=last.endpoint,
        version_name=rung.version_name if rung is not None else None,
    )


def worst(named: Mapping[str, Verdict]) -> Verdict | None:
    """Return the verdict to show first; None without any.

    Among several ladders the reason names the one that it is about.
    """
    if not named:
        return None
    name = min(named, key=lambda name: named[name].answers.severity)
    verdict = named[name]
    if len(named) == 1:
        return verdict
    return replace(verdict, reason=f"ladder {name}: {verdict.reason}")


def _without_models(rungs: Sequence[Rung], models: Sequence[Rung], since_ms: int | None) -> Verdict:
    kept = next((rung for rung in rungs if not is_model(rung) and rung.can_serve), None)
    why = _why_passed(models)
    unsure = [rung for rung in rungs if rung.can_serve is None]
    if unsure:
        return Verdict(answers=Answers.UNKNOWN, reason=why or "no rung could be asked")
    if kept is None:
        return Verdict(
            answers=Answers.NO, reason=why or "the ladder has no rung", since_ms=since_ms
        )
    return Verdict(
        answers=Answers.DEGRADED,
        reason=f"only kept replies, new questions fail; {why}",
        rung=kept.name,
        since_ms=since_ms,
    )


def _why_passed(rungs: Sequence[Rung]) -> str:
    return "; ".join(f"{rung.name}: {rung.why_not or 'cannot serve'}" for rung in rungs)


def _some_failed(recent: Sequence[CallEnd]) -> str:
    """Return in words how many calls failed; empty when too few did."""
    counted = [end for end in recent if is_broken(end) or end.endpoint is not None]
    num = sum(map(is_broken, counted))
    return f"{num} of the last {len(counted)} calls failed" if num >= NUM_DOUBTFUL else ""


def _passed_over(
    rungs: Sequence[Rung], first: Rung, recent: Sequence[CallEnd], since_ms: int | None
) -> Verdict | None:
    """Return the verdict when nobody was answered by *first*, though it can serve.

    Its breaker needs many calls to open: with few, each steps down and no rung looks broken.
    """
    places = {rung.name: rung for rung in rungs if rung.index >= first.index}
    replies = [
        places[end.endpoint]
        for end in recent
        if end.outcome is CallOutcome.OK and end.started_at_ms >= (since_ms or 0)
        if end.endpoint in places
    ]
    if not replies or first in replies:
        return None
    who = " and ".join(dict.fromkeys(rung.name for rung in replies))
    what = "the last reply" if len(replies) == 1 else f"the last {len(replies)} replies"
    return Verdict(
        answers=Answers.DEGRADED,
        reason=f"{first.name} can serve, but {what} came from {who}",
        rung=replies[0].name,
        version_name=replies[0].version_name,
        version_digest=replies[0].version_digest,
    )


def _all_failed(recent: Sequence[CallEnd]) -> Verdict | None:
    """Return the verdict when the newest calls got nothing; None when one got a reply."""
    told = (CallOutcome.OK, CallOutcome.FAILED, CallOutcome.DEADLINE)
    newest = [end for end in recent if end.outcome in told]
    num = next((n for n, end in enumerate(newest) if end.outcome is CallOutcome.OK), len(newest))
    if num < (MIN_FAILED if num == len(newest) else NUM_IN_A_ROW):
        return None
    return Verdict(
        answers=Answers.NO,
        reason=f"the last {num} calls all failed",
        # Without a reply before them they may go back further than was looked.
        since_ms=newest[num - 1].started_at_ms if num < len(newest) else None,
    )


def _about(rung: Rung, events: Sequence[EventRecord]) -> list[EventRecord]:
    subjects = {rung.name, rung.slot}
    known = ABLE_KINDS | UNABLE_KINDS
    return [event for event in events if event.kind in known and event.subject in subjects]


def _able_since(rung: Rung, events: Sequence[EventRecord]) -> int | None:
    """Return when the last thing that kept *rung* from serving was over; None if nothing tells."""
    about = _about(rung, events)
    return about[0].at_ms if about and about[0].kind in ABLE_KINDS else None


def _unable_since(rung: Rung, events: Sequence[EventRecord]) -> int | None:
    """Return when *rung* stopped serving: the first of the bad news that no good news ended."""
    since_ms = None
    for event in _about(rung, events):
        if event.kind in ABLE_KINDS:
            break
        since_ms = event.at_ms
    return since_ms


def _latest(stamps: Iterable[int | None]) -> int | None:
    return max((stamp for stamp in stamps if stamp is not None), default=None)
