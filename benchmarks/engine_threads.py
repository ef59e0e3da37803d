"""Two busy engines on one machine: threads each, and what a load beside them costs.

    python -m benchmarks.engine_threads

Prints tokens per second of both engines of the built-in settings, asked at once by four
callers each, for each way of giving out threads; with one of them busy alone, too. The
figures stand in ADR 20.
"""

import json
import tempfile
import threading
import time
from pathlib import Path

import httpx2

from benchmarks.up_session import UpSession, running_up
from failsoft.config.schema import BUILT_IN_FILE

RUN_S = 10.0
CALLERS = 4
VERSIONS = {"primary": "smollm2-135m-bf16", "small": "smollm2-135m-int8"}
WAYS = ((2, 2), (2, 1), (1, 1))
"""Threads of the first and of the second rung's engine."""


def tokens_per_s(up: UpSession, slots: tuple[str, ...]) -> dict[str, float]:
    """Return what the engines of *slots* yield while all of them are asked at once."""
    counts = dict.fromkeys(slots, 0)
    until_s = time.monotonic() + RUN_S

    def ask_on(slot: str) -> None:
        place = json.loads((up.home / "run" / f"{slot}.json").read_text())
        headers = {"authorization": f"Bearer {place['token']}"}
        body = {"prompt": "Once upon a time", "max_tokens": 32, "model": place["version"]}
        with httpx2.Client(timeout=60, trust_env=False, headers=headers) as client:
            while time.monotonic() < until_s:
                reply = client.post(f"{place['url']}/completions", json=body).raise_for_status()
                counts[slot] += reply.json()["usage"]["completion_tokens"]

    threads = [
        threading.Thread(target=ask_on, args=(slot,)) for slot in slots for _ in range(CALLERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {slot: count / RUN_S for slot, count in counts.items()}


def main() -> None:
    """Measure and print."""
    for way in WAYS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "failsoft.toml"
            tables = (
                f"\n[versions.{name}.engine]\nnum_threads = {num_threads}\n"
                for name, num_threads in zip(VERSIONS.values(), way, strict=True)
            )
            path.write_text(BUILT_IN_FILE.read_text() + "".join(tables))
            with running_up("--config", str(path), slots=("primary", "small")) as up:
                for slots in (("primary",), ("small",), ("primary", "small")):
                    rates = tokens_per_s(up, slots)
                    shown = ", ".join(f"{slot} {rate:.0f}" for slot, rate in rates.items())
                    print(f"{way[0]} + {way[1]} threads, busy: {shown} tokens/s", flush=True)


if __name__ == "__main__":
    main()
