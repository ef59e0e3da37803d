"""Workload files: the shared format is read, and what is wrong is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from failsoft.engine.bench.workload import Item, builtin_names, load_workload
from failsoft.errors import ConfigError


def write(folder: Path, document: Any) -> str:
    path = folder / "mine.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def test_workloads_come_with_the_package() -> None:
    """By name, from wherever failsoft is installed."""
    assert {"ragged", "documents", "shared_prefix"} <= set(builtin_names())

    ragged = load_workload("ragged")

    assert (ragged.model, ragged.max_running, len(ragged.items)) == (
        "smollm2-135m-instruct",
        16,
        64,
    )
    assert ragged.num_output_tokens == 6111
    assert len(ragged.first(10).items) == 10
    assert ragged.first(100) is ragged


def test_ids_and_text_exact_and_bounded_lengths_are_read(tmp_path: Path) -> None:
    """Unknown keys are notes; what is not given has a default."""
    requests = [
        {"id": 7, "prompt_ids": [5, 6], "output_len": 3, "colour": "red"},
        {"prompt": "hello", "max_tokens": 9},
    ]

    workload = load_workload(write(tmp_path, {"requests": requests, "seed": 1}))

    assert workload.name == "mine"
    assert (workload.model, workload.max_running) == ("smollm2-135m-instruct", 16)
    assert workload.items == (
        Item(prompt_ids=(5, 6), output_len=3),
        Item(text="hello", output_len=9, is_exact=False),
    )


GOOD = {"prompt_ids": [1], "output_len": 2}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", "JSON"),
        ([], "the document = []"),
        ({}, "requests = None"),
        ({"requests": []}, "requests = []"),
        ({"requests": [GOOD, {"prompt_ids": [1, -2], "output_len": 2}]}, "requests.1.prompt_ids.1"),
        ({"requests": [{"prompt_ids": [True], "output_len": 2}]}, "True"),
        ({"requests": [{"prompt_ids": [], "output_len": 2}]}, "requests.0.prompt_ids"),
        ({"requests": [{"prompt_ids": [1], "output_len": 0}]}, "requests.0.output_len = 0"),
        ({"requests": [{"prompt_ids": [1]}]}, "output_len (exact) or max_tokens"),
        ({"requests": [{**GOOD, "max_tokens": 3}]}, "not both"),
        ({"requests": [{**GOOD, "prompt": "a"}]}, "not both"),
        ({"requests": [GOOD], "max_running": 0}, "max_running = 0"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_key_and_value(
    tmp_path: Path, document: Any, words: str
) -> None:
    """A long value is cut, and the file is named."""
    name = write(tmp_path, document)

    with pytest.raises(ConfigError) as caught:
        load_workload(name)

    assert words in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    """The next step is in the line."""
    with pytest.raises(ConfigError, match=r"No such file.*shared_prefix"):
        load_workload(str(tmp_path / "nothing.json"))
