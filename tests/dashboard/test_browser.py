"""The page in a real browser: it renews itself, and the policy blocks nothing of ours.

Skipped where there is no chromium, unless FAILSOFT_REQUIRE_BROWSER=1 says there must be.
"""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import waitress

from failsoft.dashboard.app import build_app
from failsoft.dashboard.standing import Standing
from tests.dashboard.conftest import Running
from tests.dashboard.stand_in import status, tell, three

Browse = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Return what opens a URL for some seconds of the browser's own time."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        if os.environ.get("FAILSOFT_REQUIRE_BROWSER") == "1":
            pytest.fail("FAILSOFT_REQUIRE_BROWSER=1, but no chromium is installed")
        pytest.skip("no chromium: apt-get install -y --no-install-recommends chromium")

    def run(url: str, *, seconds: int) -> subprocess.CompletedProcess[str]:
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
        flags += ["--disable-background-networking", "--disable-component-update"]
        flags += [f"--user-data-dir={tmp_path / 'browser'}"]
        flags += ["--dump-dom", f"--virtual-time-budget={seconds * 1000}"]
        return subprocess.run(
            [program, *flags, url], capture_output=True, text=True, timeout=60, check=True
        )

    return run


@pytest.fixture
def url(running: Running) -> Iterator[str]:
    """Return where the page is served; the front is drained once the page was seen once."""
    is_first = True

    def look() -> Standing:
        nonlocal is_first
        if not is_first:
            tell(running.front, status(*three(), is_draining=True))
        is_first = False
        return running.observer.look()

    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = waitress.create_server(build_app(look), sockets=[sock], threads=4)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{sock.getsockname()[1]}/"
    server.task_dispatcher.shutdown()
    server.close()
    thread.join(5)
    sock.close()


def test_the_page_renews_itself_under_its_own_policy(browse: Browse, url: str) -> None:
    """Text, title and icon change after the first turn; the console hears of no violation."""
    seen = browse(url, seconds=8)

    assert "<title>Not answering" in seen.stdout
    assert "the front is stopping" in seen.stdout
    assert "/static/no.svg" in seen.stdout
    assert "Content Security Policy" not in seen.stderr
