"""One front's working parts, as its routes and its server share them.

Touched on the event loop only. Stamps are UTC epoch milliseconds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from failsoft.config.front import FrontConfig
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.ladder import Ladder
from failsoft.fallback.retry_budget import RetryBudget
from failsoft.run_state import Reload
from failsoft.serving.front.keyring import Keyring
from failsoft.serving.front.metrics import FrontMetrics
from failsoft.serving.front.open_calls import OpenCalls
from failsoft.serving.front.recorder import CountingRecorder
from failsoft.serving.front.unlike_file import UnlikeFile
from failsoft.store.tally import WriterStats


@dataclass(slots=True, kw_only=True)
class Front:
    """What answers."""

    config: FrontConfig
    host: str
    """Where it listens."""
    client: AsyncClient
    recorder: CountingRecorder
    metrics: FrontMetrics
    keyring: Keyring
    token: str = field(repr=False)
    """Opens ``/internal/status``; see `failsoft.run_state.FrontState`."""
    store_stats: Callable[[], WriterStats]
    """Returns what the store's writer wrote, dropped and suffers."""
    unlike_file: UnlikeFile
    started_at_ms: int
    settings_read_at_ms: int
    calls: OpenCalls = field(default_factory=OpenCalls)
    last_reload: Reload | None = None
    is_draining: bool = False
    """Set by the first signal."""
    _budgets: dict[str, list[RetryBudget]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.note_ladders()
        self.metrics.read(self)

    def note_ladders(self) -> None:
        """Count the budgets of the ladders there are now, beside those of the ones before."""
        for name, ladder in self.ladders.items():
            self._budgets.setdefault(name, []).append(ladder.budget)

    @property
    def ladders(self) -> Mapping[str, Ladder]:
        """The ladders by name."""
        return self.client.ladders

    @property
    def budget_refused(self) -> Mapping[str, int]:
        """Extra calls that each ladder's budget refused; calls of before a reload included."""
        return {
            name: sum(budget.refused_total for budget in budgets)
            for name, budgets in self._budgets.items()
        }

    @property
    def num_open_calls(self) -> int:
        """Calls under way."""
        return len(self.calls)

    @property
    def dropped_records(self) -> Mapping[str, int]:
        """Records that the store did not keep, by kind."""
        return self.store_stats().dropped_total

    @property
    def pins_unlike_file(self) -> Mapping[str, bool]:
        """Whether a move pinned a slot to something else than the settings file says."""
        return self.unlike_file.slots()

    @property
    def store_trouble(self) -> str | None:
        """Why the store takes no records now; None when it takes them."""
        stats = self.store_stats()
        return stats.last_error if stats.is_failing else None
