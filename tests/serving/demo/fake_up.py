"""Run as a program: ``failsoft up`` for the demo's tests, without a model.

Two engines that only sleep, restarted half a second after they die; a front that answers
from the first one that lives. ``FAKE_UP`` in the environment says what else goes wrong:
``ends`` ends it at once, ``gives-up`` reports an engine that gave up.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from failsoft.run_state import ChildState, SupervisorState, write_supervisor

RESTART_S = 0.5
SLOTS = ("primary", "small")


class Engine:
    """One process that sleeps, started again when it died."""

    def __init__(self, slot: str) -> None:
        self.slot = slot
        self.num_restarts = 0
        self._died_s: float | None = None
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    @property
    def lives(self) -> bool:
        """Whether it runs now."""
        return self.process.poll() is None

    def look_after(self) -> None:
        """Start it again if it is time."""
        if self.lives:
            self._died_s = None
            return
        self._died_s = self._died_s or time.monotonic()
        if time.monotonic() - self._died_s > RESTART_S:
            self._start()
            self.num_restarts += 1

    def state(self) -> ChildState:
        """Return what the supervisor publishes of it."""
        gave_up = os.environ.get("FAKE_UP") == "gives-up"
        return ChildState(
            name=self.slot,
            kind="engine",
            phase="gave_up" if gave_up else "running" if self.lives else "waiting",
            pid=self.process.pid if self.lives else None,
            since_ms=0,
            num_restarts=self.num_restarts,
            slot=self.slot,
        )


def main() -> None:
    """Run until SIGTERM, or until the lifeline is cut."""
    if os.environ.get("FAKE_UP") == "ends":
        sys.stderr.write("loading the model\nerror: the disk is full\n\n")
        sys.exit(3)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=watch_lifeline, daemon=True).start()
    engines = [Engine(slot) for slot in SLOTS]
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(engines))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        while True:
            for engine in engines:
                engine.look_after()
            publish(engines, server.server_address[1])
            time.sleep(0.05)
    finally:
        for engine in engines:
            engine.process.kill()


def watch_lifeline() -> None:
    """Ask for the end when nobody holds the other side any more."""
    with contextlib.suppress(OSError):
        os.read(int(os.environ["FAILSOFT_LIFELINE_FD"]), 1)
    os.kill(os.getpid(), signal.SIGTERM)


def publish(engines: list[Engine], port: int) -> None:
    """Write what runs."""
    assert "--config" in sys.argv
    write_supervisor(
        Path(os.environ["FAILSOFT_HOME"]),
        SupervisorState(
            pid=os.getpid(),
            started_at_ms=0,
            settings=sys.argv[sys.argv.index("--config") + 1],
            api_url=f"http://127.0.0.1:{port}/v1",
            ops_url=f"http://127.0.0.1:{port + 1}",
            children=tuple(engine.state() for engine in engines),
        ),
    )


def handler(engines: list[Engine]) -> type[BaseHTTPRequestHandler]:
    """Return a front: three words from the first engine that lives; cut if it dies meanwhile."""

    class Front(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            assert body["stream"] is True
            engine = next(each for each in engines if each.lives)
            process = engine.process
            self.send_response(200)
            self.send_header("x-failsoft-rung", engine.slot)
            self.end_headers()
            for word in ("one", "two", "three"):
                self.tell({"choices": [{"delta": {"content": word}}]})
                time.sleep(0.02)
                if process.poll() is not None:
                    self.tell({"error": {"code": "stream_interrupted"}})
                    return
            self.wfile.write(b"data: [DONE]\n\n")

        def tell(self, chunk: dict[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()

        def log_message(self, *args: Any) -> None:
            pass

    return Front


if __name__ == "__main__":
    main()
