"""One HTTP request's work in the engine: submit, follow, turn tokens into text, end.

Holds a choice for each request to the engine: several for each prompt under ``n``. Lives
on the event loop; the engine's events reach it through the mailbox.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from failsoft.engine.http.choice import Choice, Part, TextOptions
from failsoft.engine.http.served import ServerState
from failsoft.engine.request import (
    EngineEvent,
    FinishedEvent,
    GenerationRequest,
    PromptEvent,
    TokenEvent,
)
from failsoft.errors import DeadlineExceededError, EngineError, EngineStoppedError, ForwardError
from failsoft.records import FinishReason, RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What is new of one choice; nothing to send where a token's text is held."""

    index: int
    part: Part
    num_tokens: int
    """Tokens the engine has sampled for this choice so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One choice is complete."""

    index: int
    finish_reason: str
    """``stop`` or ``length``, OpenAI's words."""
    record: RequestRecord


Update = Delta | Ended


class Generation:
    """The choices of one HTTP request.

    Args:
        requests: Choice indices follow their order.
        text: How their tokens become text.
    """

    def __init__(
        self, state: ServerState, requests: Sequence[GenerationRequest], text: TextOptions
    ) -> None:
        self.requests = requests
        self.is_cancelled = False
        self._stopped_by: EngineError | None = None
        self._state = state
        self._events: list[EngineEvent] = []
        self._num_sampled: list[int] = []
        """Tokens sampled for each choice that has ended."""
        self._wake = asyncio.Event()
        self._choices = {
            request.request_id: Choice(
                index,
                request,
                state.served.codec.detokenizer(is_special_shown=text.is_special_shown),
                options=text,
                echo=text.echoes[index] if text.echoes else None,
                end_token_ids=state.served.eos_token_ids,
            )
            for index, request in enumerate(requests)
        }

    def start(self) -> None:
        """Submit all requests, or none.

        Raises:
            EngineError: The engine refuses one; those before it are taken back.
        """
        sink = self._state.mailbox.sink(self._deliver)
        for position, request in enumerate(self.requests):
            try:
                self._state.engine.submit(request, sink)
            except EngineError:
                for submitted in self.requests[:position]:
                    self._state.engine.abort(submitted.request_id, FinishReason.ABORT)
                raise
        self._state.open_answers.add(self)

    def cancel(self) -> None:
        """Take back what still runs; the engine ends it within one step. Idempotent."""
        for request_id, choice in self._choices.items():
            if choice.is_open:
                self._state.engine.abort(request_id, FinishReason.ABORT)
        self._state.open_answers.discard(self)
        self.is_cancelled = True
        self._wake.set()

    def stop(self, error: EngineError) -> None:
        """End with *error* after what is there already: the engine does not end it in time."""
        self._stopped_by = error
        self._wake.set()

    async def updates(self) -> AsyncIterator[list[Update]]:
        """Yield what is new, a list for each burst of events, until all choices ended.

        Stops early, without an error, once cancelled.

        Raises:
            EngineError: The engine failed a choice; the updates before that came out first.
        """
        while any(choice.is_open for choice in self._choices.values()):
            await self._wake.wait()
            self._wake.clear()
            if self.is_cancelled:
                return
            events, self._events = self._events, []
            updates, error = self._digest(events)
            if updates:
                yield updates
            if error is None and any(choice.is_open for choice in self._choices.values()):
                error = self._stopped_by
            if error is not None:
                raise error

    def _deliver(self, event: EngineEvent) -> None:
        self._events.append(event)
        # Counted here and not where updates are read: nobody reads once the caller is gone.
        if isinstance(event, FinishedEvent):
            self._state.metrics.observe(event)
            self._num_sampled.append(event.record.num_output_tokens)
            if len(self._num_sampled) == len(self.requests):
                self._state.metrics.observe_answer(self._num_sampled)
        elif self.is_cancelled and isinstance(event, TokenEvent):
            self._state.metrics.count_waste()
        self._wake.set()

    def _digest(self, events: list[EngineEvent]) -> tuple[list[Update], EngineError | None]:
        """Fold events into at most one delta and one end for each choice."""
        parts: dict[Choice, Part] = {}
        fed: set[Choice] = set()
        ends: list[Update] = []
        error: EngineError | None = None
        for event in events:
            choice = self._choices[event.request_id]
            if isinstance(event, PromptEvent):
                choice.note_prompt(event.logprobs)
                continue
            part = self._read(choice, event)
            parts[choice] = parts[choice].then(part) if choice in parts else part
            if isinstance(event, TokenEvent):
                fed.add(choice)
                continue
            error = error or _error_of(event, choice)
            if error is None:
                ends.append(_ended(event, choice))
        deltas = [
            Delta(index=choice.index, part=part, num_tokens=choice.num_tokens)
            for choice, part in parts.items()
            if choice in fed or not part.is_empty
        ]
        return [*deltas, *ends], error

    def _read(self, choice: Choice, event: TokenEvent | FinishedEvent) -> Part:
        """Return what *event* lets out; the engine is told where a stop string ends it."""
        if isinstance(event, FinishedEvent):
            return choice.end(event)
        was_cut = choice.is_cut
        part = choice.take(event)
        if was_cut:
            self._state.metrics.count_waste()
        elif choice.is_cut:
            self._state.engine.abort(event.request_id, FinishReason.STOP)
        return part


def _ended(event: FinishedEvent, choice: Choice) -> Ended:
    # Behind a stop string the engine may have reached the limit in the same step.
    is_length = event.record.finish_reason is FinishReason.LENGTH and not choice.is_cut
    return Ended(
        index=choice.index,
        finish_reason="length" if is_length else "stop",
        record=event.record,
    )


def _error_of(event: FinishedEvent, choice: Choice) -> EngineError | None:
    """Return why a choice has no proper end, or None when it has one."""
    reason = event.record.finish_reason
    if choice.is_cut:
        return None  # the text is complete, whatever happened behind the stop string
    if event.error is not None:
        return event.error
    if reason in (FinishReason.STOP, FinishReason.LENGTH):
        return None
    if reason is FinishReason.DEADLINE:
        return DeadlineExceededError(late_s=0.0)
    if reason is FinishReason.ABORT:
        return EngineStoppedError("the engine took the request back; send it again")
    return ForwardError("the engine failed the request without saying why", kind="exception")
