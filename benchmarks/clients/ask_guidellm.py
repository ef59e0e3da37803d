"""guidellm: a short benchmark of chats and of completions, as its command line runs it.

Arguments: URL, model, and a folder with the model's tokenizer.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.clients.report import run

_REQUESTS = 8
_PROMPT, _OUTPUT = 48, 16

Seen = Iterator[tuple[str, str, bool]]


def _benchmark(url: str, model: str, route: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        ran = subprocess.run(
            [
                *(str(Path(sys.executable).parent / "guidellm"), "run"),
                *(
                    "--backend",
                    f"kind=openai_http,target={url},model={model},request_format={route}",
                ),
                *("--profile", "kind=concurrent,streams=2"),
                *("--constraint", f"kind=max_requests,count={_REQUESTS}"),
                "--data",
                f"kind=synthetic_text,prompt_tokens={_PROMPT},output_tokens={_OUTPUT}",
                *("--tokenizer", f"kind=hf_auto,model={sys.argv[3]}"),
                *("--output", f"kind=json,path={path}"),
                "--disable-console",
            ],
            capture_output=True,
            text=True,
            cwd=folder,
        )
        if not path.exists():
            raise RuntimeError(f"guidellm ended with {ran.returncode}: {ran.stderr[-400:]}")
        return json.loads(path.read_text("utf-8"))


def chats(url: str, model: str) -> Seen:
    """Against /v1/chat/completions."""
    yield from _judge("chats", _benchmark(url, model, "/v1/chat/completions"))


def completions(url: str, model: str) -> Seen:
    """Against /v1/completions."""
    yield from _judge("completions", _benchmark(url, model, "/v1/completions"))


def _judge(what: str, report: Any) -> Seen:
    """Yield whether all were answered, each with as many tokens as were asked for."""
    metrics = report["benchmarks"][0]["metrics"]
    totals = metrics["request_totals"]
    lengths = metrics["output_token_count"]["successful"]
    first_ms = metrics["time_to_first_token_ms"]["successful"]["mean"]
    yield (
        f"guidellm, {what}: {_REQUESTS} requests answered, none failed",
        f"{totals['successful']} answered, {totals['errored']} failed",
        totals["successful"] == _REQUESTS and not totals["errored"],
    )
    yield (
        f"guidellm, {what}: exactly {_OUTPUT} tokens each, streamed, a time to the first token",
        f"{lengths['min']:.0f} to {lengths['max']:.0f} tokens, {first_ms:.0f} ms",
        lengths["min"] == lengths["max"] == _OUTPUT and first_ms > 0,
    )


if __name__ == "__main__":
    run([chats, completions])
