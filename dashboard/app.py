"""The Flask application: ``/``, ``/api/now`` and ``/health``.

Pages come whole from the server and work without JavaScript; a small script of our own
only fetches them again. Knows nothing of sockets, processes or signals.
"""

from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask, Response, jsonify, render_template

from failsoft import __version__
from failsoft.dashboard import words
from failsoft.dashboard.document import to_document
from failsoft.dashboard.guard import guard
from failsoft.dashboard.incidents import GOOD_KINDS
from failsoft.dashboard.share_table import share_table
from failsoft.dashboard.standing import Standing, Unknown

REFRESH_S = 5
_WEIGHTS_CLASS = {
    "same": "yes",
    "new": "yes",
    "changed": "no",
    "unclear": "degraded",
    None: "unknown",
}


def build_app(look: Callable[[], Standing], *, hosts: Iterable[str] = ()) -> Flask:
    """Return the application.

    Args:
        look: Returns the picture now; called for each page, by any thread.
        hosts: ``Host`` names to answer to beside the loopback ones.
    """
    app = Flask(__name__)
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.jinja_env.trim_blocks = True
    app.jinja_env.lstrip_blocks = True
    guard(app, hosts=hosts)

    @app.get("/")
    def now() -> str:
        return render_template("now.html", **_page(look()))

    @app.get("/api/now")
    def api_now() -> Response:
        return jsonify(to_document(look()))

    @app.get("/health")
    def health() -> Response:
        return jsonify({"status": "live"})

    return app


def _page(standing: Standing) -> dict[str, Any]:
    def age(at_ms: int | None) -> str:
        return words.age(at_ms, now_ms=standing.at_ms)

    def is_unknown(part: object) -> bool:
        return isinstance(part, Unknown)

    return {
        "now": standing,
        "words": words,
        "age": age,
        "is_unknown": is_unknown,
        "share_table": share_table,
        "warnings": words.warnings(standing),
        "engines": {engine.slot: engine for engine in standing.engines},
        "good_kinds": GOOD_KINDS,
        "weights_class": _WEIGHTS_CLASS,
        "refresh_s": REFRESH_S,
        "version": __version__,
    }
