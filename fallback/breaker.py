"""The circuit breaker of one endpoint: when to leave it alone, and when to ask again.

Knows nothing of HTTP. Units: monotonic seconds. Not thread-safe: one event loop
owns it. Closed to open on a failure ratio over a rolling window with a minimum
sample, on some transport failures in a row, or when the endpoint is stuck
(requests wait, or streams have begun, and no token comes). After the open time one
leased probe goes out; everybody else goes to the next rung until it is back or its
lease ran out.
"""

from collections.abc import Callable
from enum import StrEnum

from failsoft.config.settings import BreakerConfig
from failsoft.fallback.rolling_window import RollingWindow

CONSECUTIVE_TRANSPORT = 5
"""Connections in a row without any reply that open it (Envoy's outlier default)."""
STUCK_RUNNING = 3
"""Requests that must wait for their first token before their silence counts as stuck."""
STUCK_STREAMS = 3
"""Streams that fall silent, with no token from the endpoint in between, that mean stuck: their
callers' next requests must not wait for a first token too."""
MAX_OPEN_DOUBLINGS = 5
MAX_OPEN_S = 300.0
JITTER_RATIO = 0.1
"""Open times spread by this share, so that many clients do not probe at once."""

_ASKED, _FAILED = 0, 1
_NO_GENERATION = -1


class BreakerState(StrEnum):
    """What the breaker lets through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    """One probe is out."""


class Permit:
    """Leave to make one attempt; say once how it went, later words are ignored."""

    __slots__ = ("_breaker", "_generation", "_is_done", "is_probe")

    def __init__(self, breaker: "Breaker", generation: int, *, is_probe: bool) -> None:
        self._breaker = breaker
        self._generation = generation
        self._is_done = False
        self.is_probe = is_probe

    def succeed(self, *, ttft_s: float | None = None) -> None:
        """The endpoint answered; a first token later than ``slow_s`` counts as a failure."""
        if self._settle():
            self._breaker._on_success(ttft_s)  # noqa: SLF001 - a permit is the breaker's own hand

    def fail(self, *, is_transport: bool = False, is_gap: bool = False) -> None:
        """The endpoint failed, and not through the caller; *is_gap*: a stream fell silent."""
        if self._settle():
            self._breaker._on_failure(is_transport=is_transport, is_gap=is_gap)  # noqa: SLF001

    def ignore(self) -> None:
        """Nothing was learnt: caller fault, caller gone, a shed, a deadline of the caller's own."""
        if self._settle() and self.is_probe:
            self._breaker._on_lost_probe()  # noqa: SLF001

    def _settle(self) -> bool:
        if self._is_done or self._generation != self._breaker.generation:
            return False
        self._is_done = True
        return True


class Breaker:
    """One endpoint's breaker.

    Args:
        config: Ratio, sample, window and open time.
        slow_s: A first token later than this counts as a failure.
        silent_s: No token for this long from an endpoint that requests wait for means stuck.
        lease_s: A probe that says nothing for this long is lost; the next caller probes.
        clock: Monotonic seconds.
        random: Uniform draw from [0, 1).
        on_change: Told the new state and why; must not raise.
    """

    def __init__(
        self,
        config: BreakerConfig,
        *,
        slow_s: float,
        silent_s: float,
        lease_s: float,
        clock: Callable[[], float],
        random: Callable[[], float],
        on_change: Callable[[BreakerState, str], None] | None = None,
    ) -> None:
        self._config = config
        self._slow_s = slow_s
        self._silent_s = silent_s
        self._lease_s = lease_s
        self._clock = clock
        self._random = random
        self._on_change = on_change
        self._window = RollingWindow(window_s=config.window_s, num_counts=2, clock=clock)
        self.state = BreakerState.CLOSED
        self.generation = 0
        """Grows with every change of state: what began before a change is no news after it."""
        self._num_transport = 0
        self._num_gaps = 0
        self._num_doublings = 0
        self._until_s = 0.0
        self._num_waiting = 0
        self._quiet_since_s = 0.0

    def acquire(self) -> Permit | None:
        """Return a permit for one attempt; None when the endpoint must be left alone now."""
        now_s = self._clock()
        if self.state is BreakerState.CLOSED:
            if self._num_waiting >= STUCK_RUNNING and now_s - self._quiet_since_s > self._silent_s:
                self._open("stuck: requests wait and no token comes")
                return None
            return Permit(self, self.generation, is_probe=False)
        if now_s < self._until_s:
            return None
        # Open time over, or the probe's lease ran out: this caller probes, alone.
        self._change(BreakerState.HALF_OPEN, "probe")
        self._until_s = now_s + self._lease_s
        return Permit(self, self.generation, is_probe=True)

    def unheeded(self) -> Permit:
        """Return leave for an attempt that goes out although the breaker is open.

        Its end changes nothing here: the probes alone say when the endpoint is back.
        """
        return Permit(self, _NO_GENERATION, is_probe=False)

    def on_wait_begin(self) -> None:
        """An attempt was sent and waits for its first token."""
        if self._num_waiting == 0:
            self._quiet_since_s = self._clock()
        self._num_waiting += 1

    def on_wait_end(self) -> None:
        """That attempt waits no longer: its first token came, or it ended without one."""
        self._num_waiting -= 1

    def on_token(self) -> None:
        """Some attempt got a token: the endpoint is not stuck."""
        self._quiet_since_s = self._clock()
        self._num_gaps = 0

    @property
    def retry_in_s(self) -> float | None:
        """Seconds until the next probe may go out; None while closed."""
        if self.state is BreakerState.CLOSED:
            return None
        return max(0.0, self._until_s - self._clock())

    def _on_success(self, ttft_s: float | None) -> None:
        self._num_transport = 0
        if self.state is BreakerState.HALF_OPEN:
            self._num_doublings = 0
            self._window.clear()
            self._change(BreakerState.CLOSED, "the probe was answered")
            return
        self._window.add(_ASKED)
        if ttft_s is not None and ttft_s > self._slow_s:
            self._window.add(_FAILED)
            self._open_if_bad("slow")

    def _on_failure(self, *, is_transport: bool, is_gap: bool) -> None:
        if self.state is BreakerState.HALF_OPEN:
            self._num_doublings = min(self._num_doublings + 1, MAX_OPEN_DOUBLINGS)
            self._open("the probe failed")
            return
        self._window.add(_ASKED)
        self._window.add(_FAILED)
        self._num_transport = self._num_transport + 1 if is_transport else 0
        self._num_gaps += is_gap
        if self._num_gaps >= STUCK_STREAMS:
            self._open(f"stuck: {self._num_gaps} streams fell silent and no token comes")
        elif self._num_transport >= CONSECUTIVE_TRANSPORT:
            self._open(f"{self._num_transport} connections in a row brought no reply")
        else:
            self._open_if_bad("failures")

    def _on_lost_probe(self) -> None:
        self._change(BreakerState.OPEN, "the probe was called back")
        self._until_s = self._clock()  # nothing was learnt, so the next caller may probe at once

    def _open_if_bad(self, why: str) -> None:
        asked, failed = self._window.total(_ASKED), self._window.total(_FAILED)
        if asked >= self._config.min_calls and failed >= self._config.failure_ratio * asked:
            self._open(f"{why}: {failed} of {asked} calls")

    def _open(self, why: str) -> None:
        open_s = min(self._config.open_s * 2**self._num_doublings, MAX_OPEN_S)
        open_s = max(open_s, self._config.open_s)
        self._until_s = self._clock() + open_s * (1 + JITTER_RATIO * self._random())
        self._num_transport = self._num_gaps = 0
        self._window.clear()
        self._change(BreakerState.OPEN, why)

    def _change(self, state: BreakerState, why: str) -> None:
        self.generation += 1
        self.state = state
        if self._on_change is not None:
            self._on_change(state, why)
