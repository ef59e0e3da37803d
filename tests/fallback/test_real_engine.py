"""A served engine on real weights as a rung: answers, is killed, and the ladder goes on."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from failsoft.config.catalogue import DEFAULT_MODEL
from failsoft.config.home import home_folder
from failsoft.errors import LadderExhaustedError
from failsoft.fallback.client import Client
from failsoft.fallback.discovery import engine_file
from failsoft.fallback.reply import Reply

pytestmark = [pytest.mark.weights, pytest.mark.network]

SLOT = f"test-{os.getpid()}"
ASK = [{"role": "user", "content": "What is the capital of France?"}]
OTHER = [{"role": "user", "content": "Count to three."}]
SAMPLING = {"max_tokens": 12, "temperature": 0}

SETTINGS = """
[pins]
{slot} = "{model}"
[endpoints.local]
pin = "{slot}"
[endpoints.by-url]
url = "{url}"
model = "{model}"
[ladders.chat]
rungs = ["local", "cache"]
[ladders.url]
rungs = ["by-url", "cache"]
"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The engine and its URL; it has a folder of its own, but the user's models."""
    line = [sys.executable, "-m", "failsoft", "engine", "serve", "--port", "0", "--slot", SLOT]
    env = {**os.environ, "OMP_WAIT_POLICY": "passive", "PYTHONPATH": os.getcwd()}
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=env, cwd=tmp_path) as popen:
        try:
            assert popen.stdout is not None
            yield popen, popen.stdout.readline().strip()
        finally:
            popen.kill()
            engine_file(home_folder(os.environ), SLOT).unlink(missing_ok=True)


def read_stream(client: Client, ladder: str) -> tuple[list[str], Reply]:
    """Return the deltas and the whole reply."""
    with client.stream(ASK, ladder=ladder, **SAMPLING) as stream:
        deltas = list(stream)
        return [str(delta) for delta in deltas], stream.reply


def test_a_killed_engine_is_an_event_and_not_an_outage(
    engine: tuple["subprocess.Popen[str]", str], tmp_path: Path
) -> None:
    """By pin and by URL: text and digest, then kill -9: the kept reply with its age, or an error.

    A client made after the kill finds the reply too, though nobody can say the digest.
    """
    popen, url = engine
    file = tmp_path / "ladder.toml"
    file.write_text(SETTINGS.format(slot=SLOT, model=DEFAULT_MODEL, url=url))
    digest = httpx2.get(f"{url}/models").json()["data"][0]["version_digest"]

    with Client(file) as client:
        live = {ladder: client.chat(ASK, ladder=ladder, **SAMPLING) for ladder in ("chat", "url")}
        streamed = {ladder: read_stream(client, ladder) for ladder in ("chat", "url")}
        popen.send_signal(signal.SIGKILL)
        popen.wait(10)
        kept = {ladder: client.chat(ASK, ladder=ladder, **SAMPLING) for ladder in ("chat", "url")}
        with pytest.raises(LadderExhaustedError) as caught:
            client.chat(OTHER, ladder="chat", **SAMPLING)
    engine_file(home_folder(os.environ), SLOT).unlink()
    with Client(file) as client:
        found = {ladder: client.chat(ASK, ladder=ladder, **SAMPLING) for ladder in ("chat", "url")}

    assert "Paris" in live["chat"].text
    assert {reply.version for reply in live.values()} == {digest}
    assert [live["chat"].rung, live["url"].rung] == ["local", "by-url"]
    for ladder, (deltas, reply) in streamed.items():
        assert "".join(deltas) == reply.text == live[ladder].text
        assert len(deltas) > 1
    for reply in (*kept.values(), *found.values()):
        assert (reply.rung, reply.text, reply.version) == ("cache", live["chat"].text, digest)
        assert reply.age_s is not None
        assert 0 <= reply.age_s < 60
    assert [a.outcome for a in kept["chat"].attempts] == ["connect_failed", "ok"]
    assert caught.value.status == 503
    assert len(caught.value.attempts) == 2
