"""What the client and its ladder raise; no message holds a user's text."""

import math

from failsoft.errors.base import FailsoftError


class FallbackError(FailsoftError):
    """Root of what the client and its ladder raise; no message holds a user's text."""


class InvalidCallError(FallbackError):
    """The call is wrong in itself; no rung was asked (HTTP 400).

    Attributes:
        param: The argument or body field at fault.
    """

    def __init__(self, message: str, *, param: str) -> None:
        super().__init__(message)
        self.param = param


class UnknownLadderError(InvalidCallError):
    """The call names no ladder of the settings (HTTP 404).

    Attributes:
        ladder: What was asked for.
        known: The ladders there are.
    """

    def __init__(self, ladder: str, *, known: tuple[str, ...], param: str = "ladder") -> None:
        super().__init__(
            f"no ladder {ladder!r}: give one of {', '.join(known) or 'none, for none is set'}",
            param=param,
        )
        self.ladder = ladder
        self.known = known


class CallRefusedError(FallbackError):
    """An endpoint says the call is the caller's fault, so no other rung was asked.

    Attributes:
        rung: The endpoint that said so.
        status: Its HTTP status.
        code: Its machine-readable word, or None.
        param: The body field it names, or None.
        body: Its ``error`` object as it came; it may quote the caller, so it is not in the message.
    """

    def __init__(
        self,
        *,
        rung: str,
        status: int,
        code: str | None,
        param: str | None,
        body: dict[str, object] | None,
    ) -> None:
        where = f" (param {param})" if param else ""
        super().__init__(
            f"{rung} refused the call with HTTP {status} {code or 'invalid_request'}{where}; "
            "change the call, the same one will always be refused"
        )
        self.rung = rung
        self.status = status
        self.code = code
        self.param = param
        self.body = body


class RungFailedError(FallbackError):
    """One attempt on one rung failed.

    Attributes:
        rung: The endpoint's name.
        cause: What failed and what may be done about it (`failsoft.fallback.failure.Failure`).
    """

    def __init__(self, *, rung: str, cause: object) -> None:
        super().__init__(f"{rung}: {cause}")
        self.rung = rung
        self.cause = cause


class LadderExhaustedError(FallbackError):
    """No rung could answer: the honest last answer.

    Attributes:
        ladder: Its name.
        attempts: Every attempt and every rung passed over, in order
            (`failsoft.call_records.AttemptRecord`).
        status: The HTTP status a server would say: 504 when the deadline ended it, 429 when
            every endpoint asked said so, else 503.
        retry_after_s: When an endpoint expects room or may be asked again, in seconds; None
            when nobody knows.
    """

    def __init__(
        self,
        *,
        ladder: str,
        attempts: tuple[object, ...],
        causes: tuple[str, ...],
        status: int,
        retry_after_s: float | None,
    ) -> None:
        what = "the deadline passed" if status == 504 else "no rung could answer"
        super().__init__(
            f"ladder {ladder}: {what} ({'; '.join(causes) or 'nothing was tried'}); "
            "call again later, or give the ladder another rung"
        )
        self.ladder = ladder
        self.attempts = attempts
        self.status = status
        self.retry_after_s = retry_after_s


class StreamInterruptedError(FallbackError):
    """A stream broke after its first content delta; nobody else may finish that text.

    Attributes:
        text: What was delivered of the first choice.
        attempt_id: ``call_id/attempt`` of the attempt that broke.
        num_tokens: Output tokens received and charged.
        cause: What failed (`failsoft.fallback.failure.Failure`).
    """

    def __init__(self, *, text: str, attempt_id: str, num_tokens: int, cause: object) -> None:
        super().__init__(
            f"the stream of attempt {attempt_id} broke after {num_tokens} tokens: {cause}; "
            "what was delivered is incomplete, call again for a whole reply"
        )
        self.text = text
        self.attempt_id = attempt_id
        self.num_tokens = num_tokens
        self.cause = cause


class IdempotencyConflictError(FallbackError):
    """An idempotency key came again with another body (HTTP 422)."""

    def __init__(self) -> None:
        super().__init__(
            "this idempotency key was used with another body; use a new key for a new call"
        )


class IdempotencyRunningError(FallbackError):
    """The first call with this idempotency key still runs (HTTP 409).

    Attributes:
        retry_after_s: When to ask again, in seconds.
    """

    def __init__(self, *, retry_after_s: float) -> None:
        super().__init__(
            f"a call with this idempotency key still runs; ask again in {retry_after_s:.0f} s"
        )
        self.retry_after_s = retry_after_s


class FrontStoppedError(FallbackError):
    """The front drains or ends: it takes no new calls, and ends what outlives the drain.

    Attributes:
        retry_after_s: When another one has its place, in seconds.
    """

    def __init__(self, *, retry_after_s: float) -> None:
        super().__init__(f"this front is being stopped; call again in {math.ceil(retry_after_s)} s")
        self.retry_after_s = retry_after_s


class CandidateGoneError(FallbackError):
    """An engine that was to take over a slot cannot: it ended, or another one took its place.

    Attributes:
        slot: The slot, which is as it was.
        pid: The engine's process.
    """

    def __init__(self, *, slot: str, pid: int, reason: str) -> None:
        super().__init__(
            f"the candidate for slot {slot}, process {pid}, cannot take over: {reason}; "
            "the slot is as it was, start a new candidate"
        )
        self.slot = slot
        self.pid = pid


class FingerprintError(FallbackError):
    """A fingerprint could not be taken; it says nothing about the weights.

    Attributes:
        status: HTTP status of the answer that was of no use; None when none came, or when what
            came cannot be used whatever its status.
        is_down: Whether asking again later may help: nobody answers there now, or one version
            was just replaced by another.
    """

    def __init__(self, message: str, *, status: int | None = None, is_down: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.is_down = is_down


class FirstLookError(FingerprintError):
    """A reference was begun and not finished, or not kept: what it had asked is paid in vain."""


class ClientClosedError(FallbackError):
    """The client was closed, before the call or under it."""

    def __init__(self) -> None:
        super().__init__("the client was closed; make a new one")
