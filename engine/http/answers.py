"""What both completion routes do: admit a request, then stream it or collect it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from failsoft.engine.http import latency
from failsoft.engine.http.body import read_json
from failsoft.engine.http.choice import Part
from failsoft.engine.http.disconnect import cancel_when_gone
from failsoft.engine.http.generation import Delta, Ended, Generation
from failsoft.engine.http.grammars import may_need_grammar
from failsoft.engine.http.params import Arrival, read_arrival, read_progress
from failsoft.engine.http.schemas import GenerationBody
from failsoft.engine.http.served import ServedModel, ServerState
from failsoft.engine.http.sse import MAX_INLINE_SCORED, ChoiceShape, EventStream, StreamUsage
from failsoft.engine.http.usage import Usage
from failsoft.errors import EngineError, EngineStoppedError

MAX_INLINE_CHARS = 4000
"""Text up to this long is tokenised on the loop (well under a millisecond); longer
text goes to a thread, so that open streams do not wait for it."""


class Ask(NamedTuple):
    """An admitted request: its generation runs."""

    answer_id: str
    created: int
    body: GenerationBody
    generation: Generation
    wants_progress: bool
    """Whether a stream says that tokens come while their text is held."""


Prepare = Callable[[dict[str, Any], ServerState, str, Arrival], tuple[GenerationBody, Generation]]
"""(body, state, answer id, arrival) to a checked body and its generation, not started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedChoice:
    """One finished choice."""

    index: int
    part: Part
    finish_reason: str


async def admit(request: Request, id_prefix: str, prepare: Prepare) -> Ask:
    """Read, check, tokenise and submit a request, before the first byte of its answer.

    Raises:
        EngineError: The request is refused; it was counted and nothing of it runs.
    """
    state: ServerState = request.app.state.server
    arrival_s = time.monotonic()
    answer_id = f"{id_prefix}-{uuid4().hex}"
    try:
        if state.is_draining:
            raise EngineStoppedError("the engine drains and takes no more requests; ask another")
        arrival = read_arrival(request.headers, arrival_s)
        wants_progress = read_progress(request.headers)
        raw = await read_json(request, config=state.config)
        if may_need_grammar(raw):
            work = partial(prepare, raw, state, answer_id, arrival)
            loop = asyncio.get_running_loop()
            body, generation = await loop.run_in_executor(state.compiling, work)
        elif _num_chars(raw) > MAX_INLINE_CHARS:
            body, generation = await asyncio.to_thread(prepare, raw, state, answer_id, arrival)
        else:
            body, generation = prepare(raw, state, answer_id, arrival)
        generation.start()
        state.metrics.count_taken(generation.requests, body.n or 1)
    except EngineError as exc:
        state.metrics.count_rejected(exc)
        raise
    return Ask(answer_id, int(time.time()), body, generation, wants_progress)


def stream(ask: Ask, served: ServedModel, kind: str, shape: ChoiceShape) -> EventStream:
    """Return the streaming answer to *ask*."""
    options = ask.body.stream_options
    usage = StreamUsage(
        Usage(ask.generation),
        is_last=bool(options and options.include_usage),
        is_each=bool(options and options.continuous_usage_stats),
        is_progress=ask.wants_progress,
    )
    return EventStream(
        ask.generation,
        headers=served.headers,
        head=head_of(ask, served, kind),
        shape=shape,
        usage=usage,
    )


async def collect(
    request: Request,
    ask: Ask,
    kind: str,
    write: Callable[[list[CollectedChoice]], dict[str, Any]],
) -> Response:
    """Return the whole answer to *ask*; an empty response nobody reads if its caller left.

    Args:
        request: Its connection.
        ask: What was admitted.
        kind: OpenAI's name of the answer's kind.
        write: Returns the fields that the choices fill.

    Raises:
        EngineError: The engine failed a choice.
    """
    usage = Usage(ask.generation)
    parts: dict[int, Part] = {}
    ends: dict[int, Ended] = {}
    async with cancel_when_gone(request.receive, ask.generation):
        async for updates in ask.generation.updates():
            for update in updates:
                usage.count(update)
                if isinstance(update, Delta):
                    parts[update.index] = parts.get(update.index, Part()).then(update.part)
                else:
                    ends[update.index] = update
        if ask.generation.is_cancelled:
            return Response(status_code=499)
    choices = [
        CollectedChoice(
            index=index, part=parts.get(index, Part()), finish_reason=ends[index].finish_reason
        )
        for index in sorted(ends)
    ]
    timings = [end.record.timing for end in ends.values()]
    served = request.app.state.server.served

    def respond() -> Response:
        body = {**head_of(ask, served, kind), **write(choices), "usage": usage.as_dict()}
        return JSONResponse(body, headers={**served.headers, **latency.split(timings)})

    is_long = sum(choice.part.num_scored for choice in choices) > MAX_INLINE_SCORED
    return await asyncio.to_thread(respond) if is_long else respond()


def head_of(ask: Ask, served: ServedModel, kind: str) -> dict[str, Any]:
    """Return the fields that every answer and chunk begins with."""
    return {
        "id": ask.answer_id,
        "object": kind,
        "created": ask.created,
        "model": served.name,
        "system_fingerprint": served.system_fingerprint,
    }


def _num_chars(body: dict[str, Any]) -> int:
    """Return roughly how much text there is to tokenise."""
    return len(repr(body.get("messages") or body.get("prompt") or ""))
