"""Run as a program: an engine, a front or an ops process without a model, a ladder or pages.

``python fake_child.py JSON``. Publishes itself and serves health like the real one, writes
what happens to it to ``<folder>/log``, and does what the JSON says. An engine also says which
version it runs and answers chats; a file ``<folder>/VERSION.stall`` that names a state of a
move holds it up there, one ``<folder>/VERSION.fault`` spoils its answers.
"""

import hashlib
import json
import os
import signal
import socket
import sys
import time
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from failsoft.config.home import home_folder
from failsoft.fallback.discovery import RunningEngine, publish_engine, withdraw_engine
from failsoft.run_state import FrontState, withdraw_front, write_front
from failsoft.serving.lifeline import watch


def digest_of(config: Path, version: str) -> str:
    """Stand in for a manifest's digest: it follows what the settings mean by a name."""
    table = tomllib.loads(config.read_text())["versions"][version]
    return hashlib.sha256(table["source"].encode()).hexdigest()


def stall(folder: Path, version: str, state: str) -> None:
    """Wait while ``<folder>/VERSION.stall`` names *state*."""
    path = folder / f"{version}.stall"
    while text_of(path) == state:
        time.sleep(0.02)


def text_of(path: Path) -> str:
    """Return what the file holds; empty where there is none, as once a test has removed it."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


class Server(ThreadingHTTPServer):
    """Says nothing of those who leave before they are answered, as probes do on a busy machine."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of a bug."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class FakeChild:
    """One process; *asked* says what it is and what it does."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.name = str(asked["name"])
        self.folder = Path(asked["folder"])
        self.home = home_folder(os.environ)
        self.engine: RunningEngine | None = None
        self.digest = ""
        if asked["kind"] == "engine":
            self.digest = digest_of(Path(asked["config"]), str(asked["version"]))

    def log(self, what: str) -> None:
        """Append a line to the log that all of them share."""
        with (self.folder / "log").open("a") as file:
            file.write(f"{self.name} {what}\n")

    def stall(self, state: str) -> None:
        """Wait while a move of this version is to be held up in *state*."""
        stall(self.folder, str(self.asked.get("version")), state)

    @property
    def fault(self) -> str:
        """How this version's answers are to be spoilt; empty where they are not."""
        return text_of(self.folder / f"{self.asked.get('version')}.fault")

    def run(self) -> None:
        """Start, serve, and end by a signal."""
        watch(os.environ, grace_s=self.asked.get("grace_s", 1.0))
        signal.signal(signal.SIGHUP, lambda *_: self.log(f"hup {self.asked.get('config')}"))
        signal.signal(signal.SIGTERM, lambda *_: self.stop())
        self.log(f"start {os.getpid()} {os.getpriority(os.PRIO_PROCESS, 0)}")
        for line in self.asked.get("says", []):
            sys.stderr.write(f"{line}\n")
        if "exits" in self.asked:
            sys.exit(self.asked["exits"])
        time.sleep(self.asked.get("start_s", 0))
        self.stall("starting")
        server = self.make_server()
        self.publish(f"http://127.0.0.1:{server.server_address[1]}")
        self.log("ready")
        server.serve_forever(poll_interval=60)

    def make_server(self) -> "Server":
        """Listen on a free port, or serve on the socket that was inherited."""
        fd, child = self.asked.get("fd"), self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Say who answers; well, unless ``<folder>/NAME.health`` says otherwise."""
                health = text_of(child.folder / f"{child.name}.health")
                self.send_response(503 if health else 200)
                self.send_header("x-pid", str(os.getpid()))
                self.end_headers()
                if self.path == "/v1/models":
                    child.stall("proving")
                    told = "0" * 64 if child.fault == "models" else child.digest
                    self.wfile.write(json.dumps({"data": [{"version_digest": told}]}).encode())
                    return
                self.wfile.write(health.encode() or b"{}")

            def do_POST(self) -> None:
                """Answer a chat."""
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                child.stall("warming" if body["max_tokens"] < 16 else "smoking")
                text = " " if child.fault == "empty" else "Hello."
                message = {"role": "assistant", "content": text}
                reply = {"choices": [{"message": message, "finish_reason": "stop"}]}
                self.send_response(200)
                told = "0" * 64 if child.fault == "header" else child.digest
                self.send_header("x-failsoft-version", told)
                self.end_headers()
                self.wfile.write(json.dumps(reply).encode())

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        server = Server(("127.0.0.1", 0), Handler, bind_and_activate=fd is None)
        if fd is not None:
            server.socket.close()
            server.socket = socket.socket(fileno=fd)
        return server

    def publish(self, url: str) -> None:
        """Tell the others where it listens."""
        if self.asked["kind"] == "front":
            write_front(self.home, FrontState(pid=os.getpid(), url=f"{url}/v1", token="t"))
        if self.asked["kind"] == "engine":
            self.engine = RunningEngine(
                slot=self.name,
                url=f"{url}/v1",
                pid=os.getpid(),
                version=self.asked["version"],
                token=os.environ["FAILSOFT_ENGINE_KEY"],
                version_digest=self.digest,
            )
            publish_engine(
                self.home, self.engine, is_candidate=self.asked.get("is_candidate", False)
            )

    def stop(self) -> None:
        """End as one that has drained."""
        self.log("term")
        self.stall("draining")
        if self.asked.get("ignores_term"):
            return
        time.sleep(self.asked.get("drain_s", 0))
        withdraw_front(self.home, os.getpid())
        if self.engine is not None:
            withdraw_engine(self.home, self.engine)
        self.log("gone")
        os._exit(0)


if __name__ == "__main__":
    FakeChild(json.loads(sys.argv[1])).run()
