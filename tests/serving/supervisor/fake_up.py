"""Run as a program: ``failsoft up`` over fake children, with short clocks.

``python -m tests.serving.supervisor.fake_up JSON ARGS…``; the JSON holds the folder of the log,
what each child is to do by its name or its version's, clocks, and bugs: how many times a method
of a move raises before it works.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failsoft.cli.main import main
from failsoft.fallback.discovery import RunningEngine
from failsoft.fallback.fingerprint.records import Comparison, FingerprintProof, Reported
from failsoft.serving.supervisor import plan
from failsoft.serving.supervisor.backoff import RestartRules
from failsoft.serving.supervisor.moves import candidate, run, weights
from failsoft.serving.supervisor.moves.rules import MoveRules
from failsoft.serving.supervisor.needs import EngineNeed
from failsoft.serving.supervisor.watch import WatchRules

_CHILD = Path(__file__).with_name("fake_child.py")
_CHECK = Path(__file__).with_name("fake_check.py")
_OWN = plan.OwnCommands()


@dataclass(frozen=True)
class FakeCommands:
    """Command lines of the fake children."""

    folder: str
    children: dict[str, dict[str, Any]]

    def front(self, *, config: Path, fd: int) -> Sequence[str]:
        return self._line("front", "front", config=str(config), fd=fd)

    def ops(self, *, config: Path, fd: int) -> Sequence[str]:
        return self._line("ops", "ops", config=str(config), fd=fd)

    def engine(
        self, *, config: Path, need: EngineNeed, is_candidate: bool = False
    ) -> Sequence[str]:
        special = self.children.get(need.version, {})
        if special.get("is_command"):  # the real command line over the fake engine
            own = _OWN.engine(config=config, need=need, is_candidate=is_candidate)
            return sys.executable, "-m", "tests.cli.fake_command", *own[3:]
        return self._line(
            need.slot,
            "engine",
            version=need.version,
            threads=need.threads,
            config=str(config),
            is_candidate=is_candidate,
            **special,
        )

    def check(self, *, config: Path, version: str) -> Sequence[str]:
        special = self.children.get(f"check {version}", {})
        asked = {"folder": self.folder, "config": str(config), "version": version, **special}
        return sys.executable, str(_CHECK), json.dumps(asked)

    def _line(self, name: str, kind: str, **asked: Any) -> Sequence[str]:
        asked = {"name": name, "kind": kind, "folder": self.folder, **asked}
        return sys.executable, str(_CHILD), json.dumps({**asked, **self.children.get(name, {})})

    def check_weights(self, engine: RunningEngine, digest: str, _store: object) -> FingerprintProof:
        """Stand in for the comparison of weights; a fault of the version named weights fails it."""
        fault = Path(self.folder) / f"{engine.version}.fault"
        is_changed = fault.exists() and fault.read_text() == "weights"
        return FingerprintProof(
            subject=digest,
            is_new_reference=False,
            comparison=Comparison(is_changed=is_changed, why="mean 9, limit 1"),
            reported=Reported(model=None, system_fingerprint=None, version_digest=digest),
            num_takings=1,
            took_s=0.0,
        )


def break_moves(name: str, num_times: int) -> None:
    """Have the method ``CLASS.METHOD`` of moves raise, so many times."""
    holder, _, method = name.partition(".")
    target = {"MoveRun": run.MoveRun, "Candidate": candidate.Candidate}[holder]
    works, left = getattr(target, method), [None] * num_times

    def broken(*args: Any, **kwargs: Any) -> Any:
        if left:
            left.pop()
            raise RuntimeError(f"bug in {name}")
        return works(*args, **kwargs)

    setattr(target, method, broken)


if __name__ == "__main__":
    told = json.loads(sys.argv.pop(1))
    commands = FakeCommands(told["folder"], told["children"])
    rules = plan.Rules(
        restart=RestartRules(**told["restart"]),
        watch=WatchRules(**told["watch"]),
        moves=MoveRules(**told["moves"]),
        **told["rules"],
    )
    for name, num_times in told["bugs"].items():
        break_moves(name, num_times)
    weights.__dict__["check_weights"] = commands.check_weights
    plan.__dict__.update(OwnCommands=lambda **_: commands, Rules=lambda: rules)
    main()
