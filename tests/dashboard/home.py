"""A failsoft home under test: its settings, its store, and files of processes that live."""

import os
from pathlib import Path
from typing import Any

from failsoft.call_records import (
    AttemptOutcome,
    AttemptRecord,
    CallOutcome,
    CallRecord,
    EventRecord,
)
from failsoft.config.schema import load_settings
from failsoft.config.settings import Settings
from failsoft.dashboard.observer import Observer
from failsoft.fallback.discovery import RunningEngine, publish_engine
from failsoft.run_state import (
    ChildState,
    FrontState,
    Reload,
    SupervisorState,
    write_front,
    write_supervisor,
)
from failsoft.store import Store
from tests.dashboard.stand_in import StandIn

NOW_MS = 1_800_000_600_000
"""When a look is taken: ten minutes after everything started."""
START_MS = 1_800_000_000_000

SETTINGS = """
[store]
url = "sqlite:///failsoft.db"
[pins]
primary = "smollm2-135m-instruct"
small = "gemma-3-270m"
[endpoints.primary]
pin = "primary"
[endpoints.small]
pin = "small"
[ladders.chat]
rungs = ["primary", "small", "cache"]
"""


class Home:
    """A home in *folder*; processes in it have this test's own process id, so they live."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings_path = folder / "failsoft.toml"
        self.settings_path.write_text(SETTINGS)

    @property
    def settings(self) -> Settings:
        """The file as it is now."""
        return load_settings(self.settings_path)

    def observer(self, **changes: Any) -> Observer:
        """Return who looks at it, at `NOW_MS`."""
        arguments: dict[str, Any] = {
            "settings": self.settings,
            "settings_path": self.settings_path,
            "clock": lambda: NOW_MS / 1000,
            **changes,
        }
        return Observer(self.folder, **arguments)

    def publish_front(self, server: StandIn) -> None:
        """Say where the front listens."""
        write_front(self.folder, FrontState(pid=os.getpid(), url=server.url, token=server.token))

    def publish_engine(self, slot: str, server: StandIn) -> None:
        """Say where the engine of *slot* listens."""
        publish_engine(
            self.folder,
            RunningEngine(
                slot=slot,
                url=server.url,
                pid=os.getpid(),
                version=f"{slot}-v1",
                token=server.token,
                version_digest="ab" * 32,
            ),
        )

    def publish_supervisor(
        self, *children: ChildState, last_reload: Reload | None = None, **changes: Any
    ) -> None:
        """Say what runs."""
        arguments: dict[str, Any] = {
            "pid": os.getpid(),
            "started_at_ms": START_MS,
            "settings": str(self.settings_path),
            "api_url": "http://127.0.0.1:8000/v1",
            "ops_url": "http://127.0.0.1:8001",
            **changes,
        }
        state = SupervisorState(**arguments, children=children, last_reload=last_reload)
        write_supervisor(self.folder, state)

    def record(self, *records: CallRecord | AttemptRecord | EventRecord) -> None:
        """Put *records* into the store."""
        with Store(self.settings.store) as store:
            for record in records:
                if isinstance(record, CallRecord):
                    store.recorder.record_call(record)
                elif isinstance(record, AttemptRecord):
                    store.recorder.record_attempt(record)
                else:
                    store.recorder.record_event(record)


def child(name: str, **changes: Any) -> ChildState:
    """Return an engine, or the front, or ops, that runs since the start."""
    is_engine = name not in ("front", "ops")
    arguments: dict[str, Any] = {
        "name": name,
        "kind": "engine" if is_engine else name,
        "phase": "running",
        "pid": os.getpid(),
        "since_ms": START_MS,
        "slot": name if is_engine else None,
        "version": f"{name}-v1" if is_engine else None,
        **changes,
    }
    return ChildState(**arguments)


def call(number: int, *, age_s: float, rung: str | None = "primary", **changes: Any) -> CallRecord:
    """Return one call of *age_s* seconds before `NOW_MS`; without a rung it failed."""
    arguments: dict[str, Any] = {
        "call_id": f"call-{number}",
        "ladder": "chat",
        "tenant": "",
        "started_at_ms": int(NOW_MS - age_s * 1000),
        "outcome": CallOutcome.OK if rung else CallOutcome.FAILED,
        "served_rung": None,
        "served_endpoint": rung,
        "version_digest": None,
        "num_attempts": 1,
        "ttft_s": 0.1,
        "e2e_s": 0.5,
        "is_stream": True,
        "is_complete": rung is not None,
        **changes,
    }
    return CallRecord(**arguments)


def failed_attempt(endpoint: str, *, age_s: float, message: str) -> AttemptRecord:
    """Return an attempt that *endpoint* failed."""
    return AttemptRecord(
        call_id=f"call-of-{endpoint}-{age_s}",
        attempt=0,
        rung=0,
        endpoint=endpoint,
        outcome=AttemptOutcome.RESET,
        started_at_ms=int(NOW_MS - age_s * 1000),
        was_sent=True,
        total_s=0.5,
        error_message=message,
    )


def event(kind: str, subject: str, *, age_s: float, detail: str = "{}") -> EventRecord:
    """Return an event of *age_s* seconds before `NOW_MS`."""
    return EventRecord(
        kind=kind, at_ms=int(NOW_MS - age_s * 1000), subject=subject, detail_json=detail
    )
