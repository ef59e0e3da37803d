"""The process of one mode: loads the model, runs the workload, says what it was like.

``python -m failsoft.engine.bench.child`` reads one line of JSON (a `Job`) from stdin and
writes lines of JSON to stdout: ``phase``, ``progress``, and at last ``result``,
``error`` or ``missing``, a module that is not installed.
It ends when its stdin closes: when whoever started it dies, however it dies.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, TextIO

from failsoft.engine.bench.job import PADDED, Job
from failsoft.engine.bench.run import ModeRun
from failsoft.errors import ConfigError, FailsoftError


class _Teller:
    """Writes to the parent, whatever libraries print."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def tell(self, kind: str, value: Any) -> None:
        """Write one line."""
        self._out.write(json.dumps({kind: value}) + "\n")
        self._out.flush()

    def phase(self, text: str) -> None:
        """Say what is being done."""
        self.tell("phase", text)

    def progress(self, num_tokens: int, num_ended: int) -> None:
        """Say how far it is."""
        self.tell("progress", [num_tokens, num_ended])


def _own_stdout() -> _Teller:
    """Return what tells the parent; what anybody prints goes to stderr from now on."""
    teller = _Teller(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
    return teller


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)  # nobody waits for the result any more


def _read_job() -> Job:
    # Not sys.stdin: what it reads ahead, the lifeline would wait for in vain.
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 << 16)
        if not piece:
            os._exit(1)
        line += piece
    return Job.from_document(json.loads(line))


def _run(job: Job, teller: _Teller) -> ModeRun:
    # Loads torch, which is why nothing at the top does.
    from failsoft.engine.bench.session import measure, open_session, warm_up, with_ids

    config_path = Path(job.config_path) if job.config_path is not None else None
    if job.mode == PADDED:
        from failsoft.engine.bench.padded import run_padded

        return run_padded(job, on_phase=teller.phase, on_progress=teller.progress)
    with open_session(
        job.version,
        options=job.options,
        config_path=config_path,
        num_requests=len(job.items),
        on_phase=teller.phase,
    ) as session:
        items = with_ids(
            job.items, session.loaded, max_model_len=session.engine.limits.max_model_len
        )
        teller.phase("warming up")
        warm_up(session)
        teller.progress(0, 0)
        return measure(session, job.mode, items, on_progress=teller.progress)


def main() -> int:
    """Do one job; return the process's exit code."""
    # Ctrl-C reaches the whole group; whoever started this ends it, without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    teller = _own_stdout()
    job = _read_job()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        teller.tell("result", _run(job, teller).to_document())
    except FailsoftError as exc:
        teller.tell("error", {"message": str(exc), "is_config": isinstance(exc, ConfigError)})
        return 1
    except ModuleNotFoundError as exc:  # a bare install
        teller.tell("missing", exc.name)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
