"""A real front in a process of its own, over scripted upstreams."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from failsoft.run_state import FrontState, read_front
from tests.fallback.fault_server import FaultServer

ASK: list[dict[str, Any]] = [{"role": "user", "content": "SECRET-PROMPT what is soft?"}]
BODY = {"model": "chat", "messages": ASK}
CHAT = "/chat/completions"


@dataclass(kw_only=True)
class FrontProcess:
    """A running front."""

    popen: "subprocess.Popen[str]"
    url: str
    """Ends in ``/v1``."""
    home: Path
    file: Path
    client: httpx2.Client
    headers: dict[str, str] = field(default_factory=dict)

    def post(self, path: str = CHAT, **body: Any) -> httpx2.Response:
        """Ask it."""
        headers = body.pop("headers", {})
        return self.client.post(path, json={**BODY, **body}, headers={**self.headers, **headers})

    @contextlib.contextmanager
    def open_stream(self, **body: Any) -> Iterator[httpx2.Response]:
        """Ask for a stream, which the caller reads piece by piece."""
        content = {**BODY, **body, "stream": True}
        with self.client.stream("POST", CHAT, json=content, headers=self.headers) as reply:
            yield reply

    def get(self, path: str, **headers: str) -> httpx2.Response:
        """Get a path that counts from the server's root."""
        return self.client.get(self.url.removesuffix("/v1") + path, headers=headers)

    def stream(self, **body: Any) -> tuple[httpx2.Response, list[str]]:
        """Read a whole stream; return it and the data of its events."""
        reply = self.post(stream=True, **body)
        return reply, events_of(reply.text)

    @property
    def state(self) -> FrontState:
        """What it published of itself."""
        state = read_front(self.home)
        assert state is not None
        return state

    def status(self) -> dict[str, Any]:
        """Its own account of itself."""
        reply = self.get("/internal/status", authorization=f"Bearer {self.state.token}")
        assert reply.status_code == 200, reply.text
        document: dict[str, Any] = reply.json()
        return document

    def metric(self, line: str) -> float | None:
        """Return the value of one line of its metrics; None when there is no such line."""
        text = self.get("/metrics", **self.headers).text
        found = re.search(rf"^{re.escape(line)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else None

    def hang_up(self) -> None:
        """Tell it to read its settings again."""
        self.popen.send_signal(signal.SIGHUP)

    def stop(self, *, signals: int = 1) -> int:
        """End it; return its exit code."""
        for _ in range(signals):
            self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(15)

    def stderr(self) -> str:
        """What it said on stderr, once it is over."""
        assert self.popen.stderr is not None
        return self.popen.stderr.read()


def events_of(text: str) -> list[str]:
    """The data of each server-sent event; each must end with a blank line."""
    assert text.endswith("\n\n")
    blocks = text.removesuffix("\n\n").split("\n\n")
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    return [block.removeprefix("data: ") for block in blocks]


def text_of(events: list[str]) -> str:
    """The first choice's text in a stream's events."""
    chunks = [json.loads(event) for event in events if event != "[DONE]"]
    choices = [c["choices"][0] for c in chunks if c.get("choices")]
    return "".join(c["delta"].get("content") or "" for c in choices)


def toml(
    *servers: FaultServer | str,
    cache: bool = True,
    ladder: str = "",
    more: str = "",
    name: str = "chat",
) -> str:
    """Return settings of one ladder over *servers*, in order."""
    urls = [server if isinstance(server, str) else server.url for server in servers]
    names = ["abcdef"[i] for i in range(len(urls))]
    endpoints = [
        f'[endpoints.{n}]\nurl = "{u}"\nmodel = "m"\nprice = {{ input_per_mtok = 1, '
        f"output_per_mtok = 1 }}\n"
        for n, u in zip(names, urls, strict=True)
    ]
    rungs = json.dumps([*names, "cache"] if cache else names)
    return "\n".join(
        [
            *endpoints,
            f"[ladders.{name}]\nrungs = {rungs}\ndeadline_s = 5\n{ladder}",
            f"[ladders.{name}.retry]\nattempts = 1\nbase_s = 0.01\ncap_s = 0.05",
            f"[ladders.{name}.timeouts]\nconnect_s = 1\nfirst_token_s = 1\ngap_s = 1",
            f"[ladders.{name}.breaker]\nmin_calls = 100000",
            more,
        ]
    )


@contextlib.contextmanager
def front(
    folder: Path,
    settings: str,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    key: str | None = None,
    fd: int | None = None,
) -> Iterator[FrontProcess]:
    """Start a front in *folder*; kill it if a test leaves it behind."""
    file = folder / "failsoft.toml"
    file.write_text(settings)
    home = folder / "home"
    line = [sys.executable, "-W", "error", "-m", "failsoft", "front", "--config", str(file)]
    line += ["--port", "0"] if fd is None else ["--fd", str(fd)]
    env = {**os.environ, "FAILSOFT_HOME": str(home), **(environ or {})}
    env["PYTHONPATH"] = str(Path(__file__).parents[3])
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with subprocess.Popen(
        [*line, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        cwd=folder,
        pass_fds=() if fd is None else (fd,),
    ) as popen:
        try:
            assert popen.stdout is not None
            url = popen.stdout.readline().strip()
            if not url:
                assert popen.stderr is not None
                raise AssertionError(popen.stderr.read())
            with httpx2.Client(base_url=url, timeout=20, trust_env=False, verify=False) as client:
                yield FrontProcess(
                    popen=popen, url=url, home=home, file=file, client=client, headers=headers
                )
        finally:
            popen.kill()
