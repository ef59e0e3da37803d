"""Each engine's own word: its queue from ``/metrics``, its readiness from ``/health/ready``.

Knows nothing of rungs. The exposition is read with a few lines of our own, because the
command line must work without the server's packages.
"""

import json
import re

from failsoft.dashboard.sources.local_http import Got, LocalHttp
from failsoft.dashboard.standing import Engine, Queue, Unknown
from failsoft.fallback.discovery import RunningEngine

_RUNNING = "failsoft_num_requests_running"
_WAITING = "failsoft_num_requests_waiting"
_KV_USED = "failsoft_kv_cache_usage_perc"
_SAMPLE = re.compile(r"^(?P<name>failsoft_\w+)(?:\{.*\})? (?P<value>\S+)", re.MULTILINE)


def ask_engine(slot: str, found: RunningEngine | str, http: LocalHttp) -> Engine:
    """Return how the engine of *slot* stands.

    Args:
        slot: Its slot.
        found: Where it is, or in words why it is nowhere.
        http: Asks it.
    """
    if isinstance(found, str):
        return Engine(
            slot=slot,
            pid=None,
            version_name=None,
            version_digest=None,
            queue=Unknown(reason=found),
        )
    return Engine(
        slot=slot,
        pid=found.pid,
        version_name=found.version,
        version_digest=found.version_digest,
        queue=_queue(found, http),
    )


def late_engine(slot: str, found: RunningEngine | str, why: Unknown) -> Engine:
    """Return the engine of *slot* when asking it took too long."""
    known = found if isinstance(found, RunningEngine) else None
    return Engine(
        slot=slot,
        pid=known.pid if known else None,
        version_name=known.version if known else None,
        version_digest=known.version_digest if known else None,
        queue=why,
    )


def _queue(engine: RunningEngine, http: LocalHttp) -> Queue | Unknown:
    base = engine.url.rstrip("/").removesuffix("/v1")
    got = http.get(f"{base}/metrics", token=engine.token)
    if isinstance(got, Unknown):
        return got
    if got.status != 200:
        return Unknown(reason=f"its metrics answer HTTP {got.status}")
    samples = {match["name"]: match["value"] for match in _SAMPLE.finditer(got.text)}
    try:
        num_running, num_waiting = float(samples[_RUNNING]), float(samples[_WAITING])
        used = float(samples[_KV_USED]) if _KV_USED in samples else None
    except (KeyError, ValueError):
        return Unknown(reason="its metrics do not tell its queue; is it an engine of failsoft?")
    ready = http.get(f"{base}/health/ready", token=engine.token)
    if isinstance(ready, Unknown):
        return ready
    return Queue(
        num_running=int(num_running),
        num_waiting=int(num_waiting),
        kv_used_ratio=used,
        why_not_ready=_why_not_ready(ready),
    )


def _why_not_ready(ready: Got) -> str | None:
    if ready.status == 200:
        return None
    try:
        return str(json.loads(ready.text)["reason"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {ready.status}"
