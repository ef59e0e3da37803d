"""lm-eval's local-completions beside its hf backend on the same weights.

Arguments: URL, model, and the folder with the weights that the server serves.
"""

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.tasks import TaskManager

from benchmarks.clients.report import run

_TASKS = ["capitals_choice", "capitals_continue"]
_FOLDER = Path(__file__).parent / "lm_eval_tasks"
_LIMIT = 1e-3

Seen = Iterator[tuple[str, str, bool]]


@cache
def _evaluate(backend: str, **arguments: Any) -> Any:
    return lm_eval.simple_evaluate(
        model=backend,
        model_args=arguments,
        tasks=_TASKS,
        task_manager=TaskManager(include_path=str(_FOLDER), include_defaults=False),
        log_samples=True,
        bootstrap_iters=0,
        batch_size=1,
        **({"device": "cpu"} if backend == "hf" else {}),
    )


def _both(url: str, model: str) -> tuple[Any, Any]:
    ours = _evaluate(
        "local-completions",
        base_url=f"{url}/v1/completions",
        model=model,
        num_concurrent=8,
        max_retries=1,
    )
    theirs = _evaluate("hf", pretrained=sys.argv[3], dtype="float32")
    return ours["samples"], theirs["samples"]


def log_likelihoods(url: str, model: str) -> Seen:
    """Each choice's log likelihood, and whether it is the greedy one."""
    ours, theirs = (
        [
            (float(resp[0][0]), str(resp[0][1]))
            for sample in sorted(samples["capitals_choice"], key=lambda each: each["doc_id"])
            for resp in sample["resps"]
        ]
        for samples in _both(url, model)
    )
    worst = max(abs(mine[0] - other[0]) for mine, other in zip(ours, theirs, strict=True))
    yield (
        f"lm-eval, loglikelihood equals the hf backend's to {_LIMIT:g}",
        f"{worst:.1e} at worst over {len(ours)} choices",
        worst <= _LIMIT,
    )
    greedy = sum(mine[1] == other[1] for mine, other in zip(ours, theirs, strict=True))
    yield (
        "lm-eval, is_greedy equals the hf backend's",
        f"{greedy} of {len(ours)}",
        greedy == len(ours),
    )


def generations(url: str, model: str) -> Seen:
    """Greedy text until a line break."""
    ours, theirs = (
        [
            str(sample["resps"][0][0])
            for sample in sorted(samples["capitals_continue"], key=lambda each: each["doc_id"])
        ]
        for samples in _both(url, model)
    )
    same = sum(mine == other for mine, other in zip(ours, theirs, strict=True))
    yield (
        "lm-eval, generate_until: the hf backend's texts",
        f"{same} of {len(ours)}, the first {ours[0]!r}",
        same == len(ours),
    )


if __name__ == "__main__":
    run([log_likelihoods, generations])
