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
   │  └─ FirstLookError                           and what its reference had asked is lost
   └─ ClientClosedError
```

Third-party errors are translated where a part meets them (``raise … from exc``).
"""

from failsoft.errors.base import (
    AlreadyRunningError,
    BenchError,
    ConfigError,
    DemoError,
    FailsoftError,
    PinConflictError,
    PinError,
    StoreError,
)
from failsoft.errors.engine import (
    BodyTooSlowError,
    DeadlineExceededError,
    EngineError,
    EngineStoppedError,
    ForwardError,
    InvalidRequestError,
    ModelError,
    ModelFileError,
    ModelSourceError,
    OutOfBlocksError,
    QueueFullError,
    RequestTooLongError,
    UnknownModelError,
    UnsupportedModelError,
)
from failsoft.errors.fallback import (
    CallRefusedError,
    CandidateGoneError,
    ClientClosedError,
    FallbackError,
    FingerprintError,
    FirstLookError,
    FrontStoppedError,
    IdempotencyConflictError,
    IdempotencyRunningError,
    InvalidCallError,
    LadderExhaustedError,
    RungFailedError,
    StreamInterruptedError,
    UnknownLadderError,
)

__all__ = [
    "AlreadyRunningError",
    "BenchError",
    "BodyTooSlowError",
    "CallRefusedError",
    "CandidateGoneError",
    "ClientClosedError",
    "ConfigError",
    "DeadlineExceededError",
    "DemoError",
    "EngineError",
    "EngineStoppedError",
    "FailsoftError",
    "FallbackError",
    "FingerprintError",
    "FirstLookError",
    "ForwardError",
    "FrontStoppedError",
    "IdempotencyConflictError",
    "IdempotencyRunningError",
    "InvalidCallError",
    "InvalidRequestError",
    "LadderExhaustedError",
    "ModelError",
    "ModelFileError",
    "ModelSourceError",
    "OutOfBlocksError",
    "PinConflictError",
    "PinError",
    "QueueFullError",
    "RequestTooLongError",
    "RungFailedError",
    "StoreError",
    "StreamInterruptedError",
    "UnknownLadderError",
    "UnknownModelError",
    "UnsupportedModelError",
]
