"""What the engine raises: models, requests, forwards."""

import math
import shlex

from failsoft.errors.base import FailsoftError


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
