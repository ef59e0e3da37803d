"""Every error failsoft raises, in one tree; each carries its evidence as attributes.

```text
FailsoftError
├─ ConfigError(key, value, allowed)               never retried
├─ StoreError(url)                                the database refused; no call fails of it
├─ DemoError(log)                                 the demo could not be staged
├─ BenchError                                     a benchmark could not be run to its end
├─ EngineError
│  ├─ ModelError                                  about stored files, never about a request
│  │  ├─ ModelSourceError(source)                 cannot be resolved or is not pinned
│  │  ├─ ModelFileError(path, expected, actual)   the bytes are not the promised ones
│  │  └─ UnsupportedModelError(model, reason)     cannot be served right, so not served
│  ├─ InvalidRequestError(param, code)            the caller's fault, HTTP 400
│  │  ├─ RequestTooLongError(num_tokens, limit)
│  │  └─ UnknownModelError(model, served)         HTTP 404
│  ├─ BodyTooSlowError(limit_s)                   HTTP 408, the upload took too long
│  ├─ QueueFullError(num_waiting, limit)          HTTP 503, another engine may have room
│  ├─ EngineStoppedError                          HTTP 503, draining or closed
│  ├─ DeadlineExceededError(late_s)               HTTP 504, must not be retried
│  ├─ ForwardError(kind)                          HTTP 500 or 400, one forward failed
│  └─ OutOfBlocksError(needed, free)              our own accounting is wrong: a bug
├─ AlreadyRunningError(home, pid, url)             a second `failsoft up` on one folder
├─ PinError(slot)                                 a pin cannot be moved, or not so
│  └─ PinConflictError(slot, move)                another move of the slot is under way
└─ FallbackError
   ├─ InvalidCallError(param)                     HTTP 400, refused before any rung was asked
   │  └─ UnknownLadderError(ladder, known)        HTTP 404
   ├─ CallRefusedError(rung, status, code)        the caller's fault as an endpoint sees it
   ├─ RungFailedError(rung, cause)                one attempt failed; the ladder goes on
   ├─ LadderExhaustedError(attempts)              HTTP 503, 429 or 504: nothing could answer
   ├─ StreamInterruptedError(text, attempt_id)    cut after its first content delta
   ├─ IdempotencyConflictError                    HTTP 422, the key came with another body
   ├─ IdempotencyRunningError(retry_after_s)      HTTP 409, the key's first call still runs
   ├─ FrontStoppedError(retry_after_s)            HTTP 503, the front drains or ends
   ├─ CandidateGoneError(slot, pid)               an engine ended before it took its slot over
   ├─ FingerprintError(status)                    an endpoint's weights could not be looked at
   └─ ClientClosedError
```

Third-party errors are translated where a part meets them (``raise … from exc``).
"""

import math
import shlex


class FailsoftError(Exception):
    """Root of everything failsoft raises on purpose.

    The message is one line, names what was wrong and says the next step.
    """


class ConfigError(FailsoftError):
    """A setting is unknown, missing or out of range; never retried.

    Attributes:
        key: Dotted name of the setting, as the user writes it.
        value: What was given; None when nothing was.
        allowed: The allowed values or range, in words.
    """

    def __init__(
        self, *, key: str, value: object, allowed: str, message: str | None = None
    ) -> None:
        super().__init__(message or f"{key} = {value!r} is not allowed: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


class StoreError(FailsoftError):
    """The database could not be opened, read or written.

    Attributes:
        url: Which database, its password masked.
    """

    def __init__(self, message: str, *, url: str) -> None:
        super().__init__(message)
        self.url = url


class DemoError(FailsoftError):
    """The demo could not be staged, or what it started ended by itself.

    Attributes:
        log: The last lines that ``failsoft up`` wrote.
    """

    def __init__(self, message: str, *, log: tuple[str, ...]) -> None:
        last = next((line for line in reversed(log) if line.strip()), None)
        said = f", its last words were: {last.strip()}" if last else ""
        super().__init__(f"{message}{said}; run `failsoft up` by itself to see all it says")
        self.log = log


class BenchError(FailsoftError):
    """A benchmark could not be run to its end; a figure of half a run would be none."""


class EngineError(FailsoftError):
    """Root of what the engine part raises."""


class ModelError(EngineError):
    """Root of errors about stored model files."""


class ModelSourceError(ModelError):
    """A model source is malformed, not pinned, or cannot be fetched."""

    def __init__(self, message: str, *, source: str) -> None:
        super().__init__(message)
        self.source = source


class ModelFileError(ModelError):
    """A model file's bytes are not the ones its digest promises.

    Attributes:
        path: The file.
        expected: Promised sha256 in hex.
        actual: Measured sha256 in hex, or None when the file is missing.
        step: What to do next; None as long as nobody knows the model's name.
    """

    def __init__(
        self, *, path: str, expected: str, actual: str | None, step: str | None = None
    ) -> None:
        found = f"sha256 {actual}" if actual else "no file"
        super().__init__(
            f"{path}: expected sha256 {expected}, found {found}; "
            + (step or "run `failsoft models verify`, which says how to repair it")
        )
        self.path = path
        self.expected = expected
        self.actual = actual
        self.step = step

    def named(self, model: str) -> "ModelFileError":
        """Return the error with the command that repairs *model*, unless a step is known."""
        step = self.step or (f"run `failsoft models add {shlex.quote(model)}`, which makes it anew")
        return ModelFileError(path=self.path, expected=self.expected, actual=self.actual, step=step)


class UnsupportedModelError(ModelError):
    """The engine cannot serve this model right, so it refuses to serve it at all."""

    def __init__(self, *, model: str, reason: str) -> None:
        super().__init__(f"cannot serve {model}: {reason}")
        self.model = model
        self.reason = reason


class InvalidRequestError(EngineError):
    """The caller's request is wrong; the same request will always be wrong (HTTP 400).

    Attributes:
        param: The field at fault, dotted as the caller wrote it; None when it is the whole body.
        code: A machine-readable word in OpenAI's vocabulary, or None.
    """

    def __init__(self, message: str, *, param: str | None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class RequestTooLongError(InvalidRequestError):
    """Prompt plus output cannot ever fit this engine.

    Attributes:
        num_tokens: Tokens the request needs.
        limit: Tokens the engine has room for.
    """

    def __init__(self, *, num_tokens: int, limit: int, what: str, param: str) -> None:
        super().__init__(
            # LiteLLM and others know the case by OpenAI's own words for it.
            f"This model's maximum context length is {limit} tokens; {what} needs {num_tokens}. "
            "Shorten the prompt or ask for fewer output tokens",
            param=param,
            code="context_length_exceeded",
        )
        self.num_tokens = num_tokens
        self.limit = limit


class UnknownModelError(InvalidRequestError):
    """The request names a model that is not served here (HTTP 404).

    Attributes:
        model: What was asked for.
        served: What is served.
    """

    def __init__(self, *, model: str, served: str) -> None:
        super().__init__(
            f"no model {model!r} here; this engine serves {served!r}",
            param="model",
            code="model_not_found",
        )
        self.model = model
        self.served = served


class BodyTooSlowError(EngineError):
    """A request's body did not arrive in time; nothing was queued (HTTP 408).

    Attributes:
        limit_s: Seconds that a body may take.
    """

    def __init__(self, *, limit_s: float) -> None:
        super().__init__(
            f"the body did not arrive within {limit_s:g} s; send it again, or a shorter one"
        )
        self.limit_s = limit_s


class QueueFullError(EngineError):
    """The waiting queue is at its bound; nothing was queued.

    Attributes:
        num_waiting: Requests waiting now.
        limit: The bound.
        retry_after_s: When room is likely, in seconds.
    """

    def __init__(self, *, num_waiting: int, limit: int, retry_after_s: float) -> None:
        super().__init__(
            f"the queue is full (waiting: {num_waiting}, room: {limit}); ask another engine, "
            f"or this one again in {math.ceil(retry_after_s)} s"
        )
        self.num_waiting = num_waiting
        self.limit = limit
        self.retry_after_s = retry_after_s


class EngineStoppedError(EngineError):
    """The engine drains, is closed or has died, and takes no more requests."""


class DeadlineExceededError(EngineError):
    """The request's deadline passed before it was done.

    Attributes:
        late_s: Seconds past the deadline when that was noticed.
    """

    def __init__(self, *, late_s: float) -> None:
        super().__init__(f"the deadline passed {late_s:.3f} s ago; send a longer one")
        self.late_s = late_s


class ForwardError(EngineError):
    """One forward failed; only the requests it held are lost.

    Attributes:
        kind: ``"exception"``, ``"out_of_memory"``, ``"bad_logits"``, or ``"no_token"`` where the
            request itself has ruled out every token, or ``"grammar"`` where its grammar grew
            beyond what can be followed.
    """

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind

    @property
    def is_callers_doing(self) -> bool:
        """Whether the request itself made it fail, so that it says nothing of the model."""
        return self.kind in ("no_token", "grammar")


class OutOfBlocksError(EngineError):
    """A KV block was taken from an empty pool: the caller did not check, which is a bug.

    Attributes:
        needed: Blocks asked for.
        free: Blocks there were.
    """

    def __init__(self, *, needed: int, free: int) -> None:
        super().__init__(f"{needed} KV blocks asked for, {free} free")
        self.needed = needed
        self.free = free


class AlreadyRunningError(FailsoftError):
    """A `failsoft up` runs on this folder of failsoft already.

    Attributes:
        home: The folder.
        pid: Its process; None when it has only just begun.
        url: Its API; None when that is not up yet.
    """

    def __init__(self, *, home: str, pid: int | None, url: str | None) -> None:
        who = "just begins" if pid is None else f"pid {pid}"
        where = "" if url is None else f", {url}"
        super().__init__(
            f"`failsoft up` already runs on {home} ({who}{where}); stop that one first, or give "
            "this one another folder by FAILSOFT_HOME"
        )
        self.home = home
        self.pid = pid
        self.url = url


class PinError(FailsoftError):
    """A pin cannot be moved, or not in this way; it stays where it is.

    Attributes:
        slot: The slot.
    """

    def __init__(self, message: str, *, slot: str) -> None:
        super().__init__(message)
        self.slot = slot


class PinConflictError(PinError):
    """A move of this slot is under way; the first one wins.

    Attributes:
        move: It (`failsoft.pin_records.PinMove`).
    """

    def __init__(self, *, slot: str, move: object, words: str) -> None:
        super().__init__(
            f"pin {slot}: {words}; wait for its end (`failsoft pin show {slot}`) or take it back "
            f"(`failsoft pin abort {slot}`)",
            slot=slot,
        )
        self.move = move


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


class ClientClosedError(FallbackError):
    """The client was closed, before the call or under it."""

    def __init__(self) -> None:
        super().__init__("the client was closed; make a new one")
