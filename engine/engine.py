"""The engine: one thread that steps a scheduler and a model; callers on any thread.

Placeholder of the public face; the step loop follows.
"""

from typing import Protocol

from failsoft.engine.request import EventSink, GenerationRequest
from failsoft.records import EngineStats, FinishReason


class Engine(Protocol):
    """What the HTTP server needs of an engine; every method may be called on any thread."""

    def submit(self, request: GenerationRequest, on_event: EventSink) -> None:
        """Queue *request*; its events go to *on_event* on the engine's thread.

        Raises:
            InvalidRequestError: A token id is outside the model's vocabulary.
            RequestTooLongError: It can never fit.
            QueueFullError: ``max_waiting`` requests wait already.
            EngineStoppedError: The engine drains, is closed or has died.
        """

    def abort(self, request_id: str, reason: FinishReason) -> None:
        """End a request within one step; unknown ids are ignored (it may just have ended)."""

    def stats(self) -> EngineStats:
        """Return a snapshot."""

    def drain(self, timeout_s: float) -> bool:
        """Refuse new requests, wait for the others; True when all ended by themselves.

        What still runs at *timeout_s* is failed with EngineStoppedError.
        """

    def close(self) -> None:
        """Stop the thread; whatever still runs is failed with EngineStoppedError."""
