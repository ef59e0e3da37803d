"""schemathesis and mangled bytes against the server's own OpenAPI document.

A server over a tiny random model, a process of its own. Every check of schemathesis is on:
statuses, content types, headers, bodies and each event of a stream are what the document
says, what it forbids is refused, what it allows is taken.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.proof import Line, exactly

_FOLDER = Path(__file__).parent
_SHORT_EXAMPLES = 5
_LONG_EXAMPLES = int(os.environ.get("NX", "300"))
_SEED = 5
_KEY = "s3cret"

_CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi 🎉"}],
    "max_tokens": 3,
    "temperature": 0.5,
    "stop": ["a", "b"],
    "stream": False,
}
_TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}}
_FORMATTED: list[dict[str, Any]] = [
    {**_CHAT, "response_format": {"type": "json_schema", "json_schema": {"schema": _SCHEMA}}},
    {**_CHAT, "tools": [_TOOL], "tool_choice": "required", "stream": True},
    {**_CHAT, "structured_outputs": {"regex": "(a|b){1,4}"}, "logit_bias": {"7": 1}},
    {**_CHAT, "logprobs": True, "top_logprobs": 3, "n": 2, "guided_grammar": 'start: "a"+'},
]
_VALID: list[tuple[str, bytes]] = [
    *(("/v1/chat/completions", json.dumps(body).encode()) for body in _FORMATTED),
    ("/v1/chat/completions", json.dumps(_CHAT).encode()),
    ("/v1/completions", b'{"prompt": [[1, 2], [3]], "max_tokens": 2, "seed": 7, "top_p": 0.9}'),
    ("/tokenize", '{"prompt": "naïve", "add_special_tokens": true}'.encode()),
    ("/detokenize", b'{"tokens": [1, 2, 3]}'),
]
_PIECES: list[bytes] = [
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"9" * 5000,
    b"9" * 400,
    b"-0",
    b"5.0",
    b'"\\ud800"',
    b'"\\u0000"',
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"null",
    b"true",
    b'""',
    b"{}",
    b"[[[]]]",
    b"\x00",
    b"\xef\xbb\xbf",
]
_TYPES = [
    "application/json",
    "application/json; charset=latin-1",
    "application/json; charset=",
    "application/jsonl",
    "text/plain",
    "multipart/form-data",
    "*/*",
    "json",
    "application/json, text/plain",
]


@contextmanager
def running_tiny_server(*arguments: str) -> Iterator[str]:
    """Yield the URL of a server over a tiny random model; it is ended with SIGTERM."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.tiny_server", *arguments],
        cwd=_FOLDER.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        code = process.wait(30)
        process.stdout.close()
        assert code == 0, f"the server ended with {code}"


def measure(*, is_short: bool) -> Iterator[Line]:
    """Yield what schemathesis found, and what became of bytes that are no requests at all."""
    if not is_short:
        with running_tiny_server("--api-key", _KEY) as url:
            yield from _measure_schema(url, _Run("with a key", _SHORT_EXAMPLES, key=_KEY))
    with running_tiny_server() as url:
        if is_short:
            yield from _measure_schema(url, _Run("in short", _SHORT_EXAMPLES))
        else:
            yield from _measure_schema(url, _Run("in full", _LONG_EXAMPLES, has_coverage=True))
            yield from _measure_schema(url, _Run("as it comes", _LONG_EXAMPLES, is_raw=True))
        yield from _measure_bytes(url, count=400 if is_short else 5000)
        alive = httpx2.get(f"{url}/health/ready").status_code
        yield exactly("the server's readiness after it all", alive, 200)


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of schemathesis."""

    name: str
    num_examples: int
    """For each route."""
    key: str | None = None
    has_coverage: bool = False
    """Whether every boundary of every field is tried as well."""
    is_raw: bool = False
    """Whether bodies stay as they are made; some are then right in JSON Schema alone, so that
    nothing is said of their being refused."""


def _measure_schema(url: str, run: _Run) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "events.ndjson"
        told = _run_schemathesis(url, report, run)
        statuses, failed = _read_events(report) if report.exists() else (Counter(), set())
    num_calls = sum(statuses.values())
    spread = ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items()))
    yield Line(
        must_hold=f"schemathesis {run.name}, {num_calls} requests: responses >= 500 = 0",
        figure=f"{sum(n for status, n in statuses.items() if status >= 500)} ({spread})",
        has_passed=num_calls > 50 and all(status < 500 for status in statuses),
    )
    yield Line(
        must_hold=f"schemathesis {run.name}: violations = 0",
        figure=f"{len(failed)} {'; '.join(sorted(failed))}; {_last_line(told.stdout)}",
        has_passed=not failed and told.returncode == 0,
    )


def _run_schemathesis(url: str, report: Path, run: _Run) -> "subprocess.CompletedProcess[str]":
    """Check every route; which requests are made follows from the seed."""
    phases = "coverage,fuzzing" if run.has_coverage else "fuzzing"
    login = ("-H", f"Authorization: Bearer {run.key}") if run.key else ()
    checks = ("--exclude-checks", "positive_data_acceptance") if run.is_raw else ()
    return subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"),
            *("--seed", str(_SEED), "--phases", phases, "--request-timeout", "120"),
            *("--report", "ndjson", "--report-ndjson-path", str(report)),
            *("--max-examples", str(run.num_examples), "--no-color", *login, *checks),
        ],
        cwd=report.parent,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(_FOLDER),
            "SCHEMATHESIS_HOOKS": "api_fuzz_hooks",
            "FAILSOFT_FUZZ_RAW": "1" if run.is_raw else "",
        },
    )


def _read_events(report: Path) -> tuple[Counter[int], set[str]]:
    """Return how often each status came, and which check failed on which route."""
    statuses: Counter[int] = Counter()
    failed = set()
    for line in report.read_text("utf-8").splitlines():
        recorder = json.loads(line).get("ScenarioFinished", {}).get("recorder")
        if recorder is None:
            continue
        for interaction in recorder["interactions"].values():
            response = interaction["response"]
            statuses[response["status_code"] if response else 599] += 1
        for checks in recorder["checks"].values():
            failed |= {
                f"{recorder['label']} {check['name']}"
                for check in checks
                if check["status"] == "failure"
            }
    return statuses, failed


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip("= ") if lines else "it said nothing"


def _measure_bytes(url: str, *, count: int) -> Iterator[Line]:
    """Send bodies that were right before some bytes of them changed."""
    dice = random.Random(_SEED)
    statuses: Counter[int] = Counter()
    wrong = []
    with httpx2.Client(base_url=url, timeout=120, trust_env=False) as client:
        for _ in range(count):
            path, body = dice.choice(_VALID)
            body = _mangled(body, dice)
            kind = dice.choice(_TYPES) if dice.random() < 0.2 else _TYPES[0]
            reply = client.post(path, content=body, headers={"content-type": kind})
            statuses[reply.status_code] += 1
            if not _is_sound(reply):
                wrong.append((path, reply.status_code, body[:80]))
    spread = ", ".join(f"{status}: {n}" for status, n in sorted(statuses.items()))
    yield Line(
        must_hold=f"{count} mangled bodies: answers or faults in OpenAI's shape, none >= 500",
        figure=f"{len(wrong)} others {wrong[:3] or ''} ({spread})",
        has_passed=not wrong and statuses[200] > 0 and statuses[400] > 0,
    )


def _mangled(body: bytes, dice: random.Random) -> bytes:
    """Return *body* with a few bytes cut, doubled, flipped or replaced by nasty pieces."""
    for _ in range(dice.randint(0, 3)):
        start = dice.randrange(len(body) + 1)
        end = min(len(body), start + dice.choice((0, 1, 1, 5, 20)))
        middle = dice.choice(
            (b"", body[start:end] * 2, bytes([dice.randrange(256)]), dice.choice(_PIECES))
        )
        body = body[:start] + middle + body[end:]
    return body


def _is_sound(reply: httpx2.Response) -> bool:
    if reply.headers["content-type"].startswith("text/event-stream"):
        return reply.text.endswith("\n\n")
    if reply.status_code == 200:
        return bool(reply.json())
    error = reply.json()["error"] if reply.status_code < 500 else {}
    return set(error) == {"message", "type", "param", "code"} and bool(error["message"])
