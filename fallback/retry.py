"""When tenacity asks the same rung again, and after how long.

The only retries anywhere in the ladder: the transport makes none, and an answer
tells our own engine's clients not to. tenacity calls *wait* before *stop*, so stop
knows the wait. Units: seconds.
"""

from collections.abc import Callable

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from failsoft.config.settings import RetryConfig
from failsoft.errors import RungFailedError
from failsoft.fallback.failure import Action, Failure, cause_of
from failsoft.fallback.surroundings import Surroundings


def full_jitter_s(
    num_failed: int, *, base_s: float, cap_s: float, random: Callable[[], float]
) -> float:
    """Return ``random(0, min(cap, base * 2**n))`` (AWS, "Exponential Backoff And Jitter").

    Args:
        num_failed: Attempts that failed so far, at least 1; the first wait has n = 0.
        base_s: First ceiling, > 0.
        cap_s: Highest ceiling.
        random: Uniform draw from [0, 1).
    """
    ceiling_s = min(cap_s, base_s * 2.0 ** min(num_failed - 1, 64))
    return random() * ceiling_s


def failure_of(state: RetryCallState) -> Failure | None:
    """Return the failure of the attempt that just ended; None when it did not fail by one."""
    exc = state.outcome.exception() if state.outcome is not None else None
    return cause_of(exc) if isinstance(exc, RungFailedError) else None


def is_retried(exc: BaseException) -> bool:
    """Return whether *exc* is a failure that the same rung may mend."""
    return isinstance(exc, RungFailedError) and cause_of(exc).action is Action.RETRY


def make_retrying(
    config: RetryConfig,
    *,
    may_wait: Callable[[float], bool],
    may_spend: Callable[[], bool],
    surroundings: Surroundings,
) -> AsyncRetrying:
    """Return the policy of one rung for one call.

    Args:
        config: Attempts, base and cap.
        may_wait: Whether the call can wait so many seconds here and still be served.
        may_spend: Takes one retry from the budget, if there is one.
        surroundings: Chance and sleep.
    """

    def wait(state: RetryCallState) -> float:
        failure = failure_of(state)
        jitter_s = full_jitter_s(
            state.attempt_number,
            base_s=config.base_s,
            cap_s=config.cap_s,
            random=surroundings.random,
        )
        asked_s = failure.retry_after_s if failure is not None else None
        # What the server asks is a floor; the jitter on top keeps its clients apart.
        return jitter_s if asked_s is None else asked_s + min(jitter_s, config.base_s)

    def stop(state: RetryCallState) -> bool:
        if state.attempt_number >= config.attempts:
            return True
        # The budget is asked last: what it grants is spent.
        return not may_wait(state.upcoming_sleep) or not may_spend()

    return AsyncRetrying(
        wait=wait,
        stop=stop,
        retry=retry_if_exception(is_retried),
        sleep=surroundings.sleep,
        reraise=True,
    )
