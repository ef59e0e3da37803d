"""Settings are read again under load, and a front is told to stop with streams open."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx2

from benchmarks.front_callers import Seen, ask, crowd
from benchmarks.proof import Line, exactly
from benchmarks.up_session import UpSession, wait_for
from failsoft.run_state import Reload

NUM_STREAMS = 20
STREAM_TOKENS = 40
RELOADS = 3
PAUSE_S = 2.0


def measure_reload(up: UpSession, path: Path, headers: Mapping[str, str]) -> Iterator[Line]:
    """Yield what reading good and bad settings costs callers, and where a bad file is told.

    Args:
        up: It runs by the settings in *path*.
        path: Written anew, several times.
        headers: What a caller must send.
    """
    good = path.read_text()
    with crowd(up.api_url, headers=headers) as callers:
        began_s = time.monotonic()
        for number in range(RELOADS):
            more = f'\n[ladders.extra{number}]\nrungs = ["small", "cache"]\n'
            reload = _reload(up, path, good + more)
            assert reload.error is None, reload.error
            time.sleep(PAUSE_S)
        refused = _reload(up, path, good + '\n[ladders.worse]\nrungs = ["nobody"]\n')
        time.sleep(PAUSE_S)
    yield from _judge_reload(up, callers.after(began_s), refused, headers)


def _judge_reload(
    up: UpSession, calls: list[Seen], refused: Reload, headers: Mapping[str, str]
) -> Iterator[Line]:
    yield exactly(
        f"reload under load, {RELOADS} good files and a bad one, {len(calls)} calls: failed calls",
        sum(not call.is_whole for call in calls),
        0,
    )
    with httpx2.Client(timeout=60, trust_env=False) as client:
        last, none = (
            ask(client, up.api_url, "Hello?", max_tokens=4, model=model, headers=headers)
            for model in (f"extra{RELOADS - 1}", "worse")
        )
    yield Line(
        must_hold="a good file answers new calls, a bad one changes nothing",
        figure=f"a new ladder: {last.rung}; the bad file's: {none.status}",
        has_passed=last.is_whole and none.status in (400, 404),
    )
    told = refused.error or ""
    yield Line(
        must_hold="a bad file's error is shown, with the key",
        figure=told or "nothing",
        has_passed="nobody" in told and "worse" in told and told in up.log.read_text(),
    )


def _reload(up: UpSession, path: Path, text: str) -> Reload:
    before = up.state().last_reload
    path.write_text(text)
    os.kill(up.process.pid, signal.SIGHUP)

    def is_done() -> Reload | None:
        last = up.state().last_reload
        return last if last is not None and last != before else None

    return wait_for(is_done, 30, "the reload")


def measure_drain(up: UpSession, headers: Mapping[str, str]) -> Iterator[Line]:
    """Yield whether open streams finish when ``failsoft up`` is told to stop; it ends."""
    up.wait_running("primary", "small")
    streams: list[Seen] = []

    def one_stream(number: int) -> None:
        with httpx2.Client(timeout=120, trust_env=False) as client:
            words = f"Tell a story about {number} dogs."
            seen = ask(client, up.api_url, words, max_tokens=STREAM_TOKENS, headers=headers)
            streams.append(seen)

    threads = [threading.Thread(target=one_stream, args=(n,)) for n in range(NUM_STREAMS)]
    for thread in threads:
        thread.start()
    wait_for(lambda: _num_open(up, headers) == NUM_STREAMS or None, 60, "the streams to be open")
    stopped_s = time.monotonic()
    up.process.send_signal(signal.SIGTERM)
    not_ready_s = _not_ready_after(up.root_url, stopped_s)
    for thread in threads:
        thread.join()
    code = up.process.wait(60)
    whole = sum(stream.is_whole for stream in streams)
    yield Line(
        must_hold=f"SIGTERM with {NUM_STREAMS} streams open: all finish, exit 0",
        figure=f"{whole} finished, exit {code}, {time.monotonic() - stopped_s:.1f} s",
        has_passed=whole == NUM_STREAMS and code == 0,
    )
    yield Line(
        must_hold="SIGTERM: not ready within 1 s",
        figure=f"{not_ready_s:.2f} s",
        has_passed=not_ready_s <= 1,
    )


def _num_open(up: UpSession, headers: Mapping[str, str]) -> int:
    page = httpx2.get(f"{up.root_url}/metrics", headers=dict(headers), trust_env=False).text
    for line in page.splitlines():
        if line.startswith("failsoft_open_calls"):
            return int(float(line.split()[-1]))
    return 0


def _not_ready_after(url: str, since_s: float) -> float:
    while time.monotonic() - since_s < 10:
        try:
            if httpx2.get(f"{url}/health/ready", timeout=2, trust_env=False).status_code != 200:
                break
        except httpx2.HTTPError:
            break  # nobody listens any more: that is not ready either
        time.sleep(0.02)
    return time.monotonic() - since_s
