"""What the HTTP server needs of an engine, and all that it knows of one.

A protocol, so that this package loads no torch and its tests need no model.
"""

from typing import Protocol

from failsoft.engine.request import EventSink, GenerationRequest
from failsoft.records import EngineStats, FinishReason


class EnginePort(Protocol):
    """Every method may be called on any thread; only `drain` and `close` may block."""

    def submit(self, request: GenerationRequest, on_event: EventSink) -> None:
        """Queue *request*; its events go to *on_event* on the engine's thread.

        Raises:
            InvalidRequestError: A token id is outside the model's vocabulary.
            RequestTooLongError: It can never fit.
            QueueFullError: The queue is at its bound.
            EngineStoppedError: The engine drains, is closed or has died.
        """

    def abort(self, request_id: str, reason: FinishReason) -> None:
        """End a request within one step; unknown ids are ignored."""

    def stats(self) -> EngineStats:
        """Return a snapshot."""

    def drain(self, timeout_s: float) -> bool:
        """Refuse new requests and wait; what runs at *timeout_s* fails. True when none did."""

    def close(self) -> None:
        """Stop; what still runs fails with EngineStoppedError. Idempotent."""
