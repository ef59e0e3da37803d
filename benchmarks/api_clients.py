"""Other people's clients against a running server on real weights, each in its own environment.

Environments are made once, under FAILSOFT_CLIENTS_HOME or the user's cache folder, and used
again. PyTorch's CPU build goes in first where a client would pull a CUDA build in.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engine_http import running_server
from benchmarks.proof import Line
from failsoft.engine.models.convert import ensure_converted
from failsoft.engine.models.resolve import resolve_version
from failsoft.engine.models.store import ModelStore

_ROOT = Path(__file__).parent.parent
_MODEL = "smollm2-135m-instruct"
_DTYPE = "float32"
_TORCH = "torch==2.13.0"
_LIMIT_S = 900
_OFFLINE = dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"), "1")
"""Nothing is to be fetched: weights, tokenizer and tasks are here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client and what it is installed from."""

    script: str
    packages: tuple[str, ...]
    """Exact versions: a client's next release is a change to look at, not a surprise."""
    needs_torch: bool = False


CLIENTS = (
    Client(script="ask_langchain", packages=("langchain-openai==1.7.4",)),
    Client(script="ask_litellm", packages=("litellm==1.108.14",)),
    Client(script="ask_guidellm", packages=("guidellm==0.8.1",), needs_torch=True),
    Client(script="ask_lm_eval", packages=("lm-eval[api,hf]==0.4.13",), needs_torch=True),
)
"""Beside the official client, which is among the development packages."""


def measure(*, is_short: bool) -> Iterator[Line]:
    """Yield what each client saw; in short only the official one asks."""
    with running_server("engine", "serve", "--version", _MODEL, "--dtype", _DTYPE) as server:
        yield from _run(Path(sys.executable), "ask_openai", server.url)
        for client in () if is_short else CLIENTS:
            yield from _run(make_environment(client), client.script, server.url)


def make_environment(client: Client) -> Path:
    """Return the Python of the environment for *client*, made if need be.

    Raises:
        subprocess.CalledProcessError: It could not be installed.
    """
    wanted = [_TORCH, *client.packages] if client.needs_torch else list(client.packages)
    digest = hashlib.sha256(" ".join([sys.version, *wanted]).encode()).hexdigest()[:12]
    folder = _home() / f"{client.script}-{digest}"
    python, stamp = folder / "bin" / "python", folder / ".installed"
    if not stamp.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip: list[str | Path] = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        if client.needs_torch:
            subprocess.run([*pip, _TORCH], check=True, stderr=subprocess.DEVNULL)
        subprocess.run([*pip, *client.packages], check=True, stderr=subprocess.DEVNULL)
        stamp.touch()
    return python


def _home() -> Path:
    named = os.environ.get("FAILSOFT_CLIENTS_HOME")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(named) if named else cache / "failsoft" / "clients"


def weights_folder() -> Path:
    """Return the folder, in Hugging Face's layout, with the weights that are served."""
    store = ModelStore()
    version = resolve_version(_MODEL, dtype=_DTYPE, store=store)
    model = store.model(version.model_digest)
    assert model is not None, "resolving fetched it"
    return ensure_converted(model, dtype=_DTYPE, store=store)


def _run(python: Path, script: str, url: str) -> Iterator[Line]:
    """Yield the lines that a client's script tells; that it tells none is a failure."""
    started_s = time.monotonic()
    ran = subprocess.run(
        [python, "-m", f"benchmarks.clients.{script}", url, _MODEL, weights_folder()],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        env={**os.environ, **_OFFLINE, "OMP_NUM_THREADS": "1", "NO_PROXY": "127.0.0.1"},
    )
    told = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"must_hold"')]
    for line in told:
        yield Line(**line)
    yield Line(
        must_hold=f"{script} runs to its end",
        figure=f"exit code {ran.returncode}, {len(told)} checks, "
        f"{time.monotonic() - started_s:.0f} s {'' if told else ran.stderr[-300:]}",
        has_passed=ran.returncode == 0 and bool(told),
    )
