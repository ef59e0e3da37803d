"""Stand-ins for the front and the engines: real sockets, answers as a test says.

An answer is (status, body), or `HANG`: the connection stays open and nothing comes.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

HANG = "hang"
Answer = tuple[int, str] | str
"""HTTP status and body, or `HANG`."""

READY: Answer = (200, '{"status": "ready"}')


def metrics(*, running: int = 0, waiting: int = 0, model: str = "tiny") -> Answer:
    """Return what an engine's ``/metrics`` says of its queue, other metrics around it."""
    label = '{model_name="' + model + '"}'
    lines = [
        "# HELP failsoft_num_requests_running Requests in the running batch.",
        "# TYPE failsoft_num_requests_running gauge",
        f"failsoft_num_requests_running{label} {float(running)}",
        f"failsoft_num_requests_waiting{label} {float(waiting)}",
        f"failsoft_kv_cache_usage_perc{label} 0.25",
        f'failsoft_request_success_total{{finished_reason="stop",model_name="{model}"}} 3.0',
        "",
    ]
    return 200, "\n".join(lines)


class StandIn:
    """A server of this process on a free port; answers can be changed while it runs."""

    def __init__(self, token: str, **answers: Answer) -> None:
        self.token = token
        self.answers: dict[str, Answer] = {}
        self.num_asked = 0
        self._let_go = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.base = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    @property
    def url(self) -> str:
        """Base URL that ends in ``/v1``."""
        return f"{self.base}/v1"

    def close(self) -> None:
        """Let go of what hangs, and stop."""
        self._let_go.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stand_in.num_asked += 1
                answer = stand_in.answers.get(self.path, (404, ""))
                if self.headers.get("authorization") != f"Bearer {stand_in.token}":
                    answer = (401, "")
                if isinstance(answer, str):
                    stand_in._let_go.wait(10)
                    return
                body = answer[1].encode()
                self.send_response(answer[0])
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        return Handler


def engine(*, running: int = 0, waiting: int = 0) -> StandIn:
    """Return a ready engine."""
    server = StandIn("engine-token")
    server.answers = {
        "/metrics": metrics(running=running, waiting=waiting),
        "/health/ready": READY,
    }
    return server


def rung(name: str, index: int, **changes: Any) -> dict[str, Any]:
    """Return one rung as the front tells of it: all is well."""
    is_cache = name == "cache"
    return {
        "index": index,
        "name": name,
        "kind": "cache" if is_cache else "engine",
        "slot": None if is_cache else name,
        "can_serve": True,
        "why_not": None,
        "breaker": None if is_cache else "closed",
        "retry_in_s": None,
        "version_name": None if is_cache else f"{name}-v1",
        "version_digest": None if is_cache else "ab" * 32,
        "last_error": None,
        **changes,
    }


def status(*rungs: dict[str, Any], ladder: str = "chat", **changes: Any) -> dict[str, Any]:
    """Return the front's whole document with one ladder."""
    return {
        "schema": 1,
        "pid": 4711,
        "started_at_ms": 1_800_000_000_000,
        "is_draining": False,
        "num_open_calls": 0,
        "settings_read_at_ms": 1_800_000_000_000,
        "ladders": [{"name": ladder, "budget_refused_total": 0, "rungs": list(rungs)}],
        "dropped_records": {"call": 0},
        **changes,
    }


def three(**changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Return primary, small and cache; *changes* by rung's name."""
    names = ("primary", "small", "cache")
    return [rung(name, place, **changes.get(name, {})) for place, name in enumerate(names)]


def front(document: dict[str, Any] | None = None) -> StandIn:
    """Return a front that tells *document*; all is well unless told."""
    server = StandIn("front-token")
    tell(server, document or status(*three()))
    return server


def tell(server: StandIn, document: dict[str, Any]) -> None:
    """Have the front tell *document* from now on."""
    server.answers["/internal/status"] = (200, json.dumps(document))
