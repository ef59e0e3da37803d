"""``[versions.NAME]`` tables: every wrong one names its key, its value and what is allowed."""

from pathlib import Path
from typing import Any

import pytest

from failsoft.config.file import load_toml
from failsoft.config.versions import parse_versions
from failsoft.errors import ConfigError


def test_smallest_table_has_a_source_alone() -> None:
    """All else has a default."""
    versions = parse_versions({"versions": {"tiny": {"source": "file:x"}}})

    assert versions["tiny"].dtype == "auto"
    assert versions["tiny"].engine_options == {}


def test_file_without_versions_has_none() -> None:
    """Other sections are others' business."""
    assert parse_versions({"endpoints": {}}) == {}


@pytest.mark.parametrize(
    ("table", "key", "allowed"),
    [
        ({}, "versions.tiny.source", "required: a source line"),
        ({"source": 3}, "versions.tiny.source", "a source line"),
        ({"source": "file:x", "sauce": 1}, "versions.tiny.sauce", 'did you mean "source"'),
        ({"source": "file:x", "sha256": "ABC"}, "versions.tiny.sha256", "64 lower-case hex"),
        ({"source": "file:x", "dtype": "fp16"}, "versions.tiny.dtype", '"bfloat16"'),
        ({"source": "file:x", "template": ""}, "versions.tiny.template", "1 character"),
        ({"source": "file:x", "stop": [""]}, "versions.tiny.stop", "1 character"),
        (
            {"source": "file:x", "price": {"input_per_mtok": -1, "output_per_mtok": 1}},
            "versions.tiny.price.input_per_mtok",
            "a number in 0..",
        ),
        (
            {"source": "file:x", "price": {"input_per_mtok": 1}},
            "versions.tiny.price.output_per_mtok",
            "required",
        ),
        (
            {"source": "file:x", "price": {"input_per_mtok": 1, "output_per_mtok": 1, "eur": 1}},
            "versions.tiny.price.eur",
            "input_per_mtok, output_per_mtok",
        ),
        (
            {"source": "file:x", "engine": {"max_runing": 1}},
            "versions.tiny.engine.max_runing",
            "max_running",
        ),
        (
            {"source": "file:x", "engine": {"dtype": "float32"}},
            "versions.tiny.engine.dtype",
            "unknown key",
        ),
        (
            {"source": "file:x", "engine": {"max_running": "4"}},
            "versions.tiny.engine.max_running",
            "int",
        ),
        (
            {"source": "file:x", "engine": {"max_running": True}},
            "versions.tiny.engine.max_running",
            "int",
        ),
        ({"source": "file:x", "engine": 3}, "versions.tiny.engine", "a table"),
        (
            {"source": "file:x", "engine": {"max_running": 0}},
            "versions.tiny.engine.max_running",
            "at least 1",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_key_or_value_is_named(table: dict[str, Any], key: str, allowed: str) -> None:
    """The error carries the dotted key as the user writes it."""
    with pytest.raises(ConfigError) as caught:
        parse_versions({"versions": {"tiny": table}})

    assert caught.value.key == key
    assert allowed in caught.value.allowed


@pytest.mark.parametrize("document", [{"versions": 3}, {"versions": {"tiny": "x"}}])
def test_something_that_is_no_table_is_refused(document: dict[str, Any]) -> None:
    """The error shows how a table is written."""
    with pytest.raises(ConfigError, match=r"a table: \[versions"):
        parse_versions(document)


def test_broken_toml_names_file_and_line(tmp_path: Path) -> None:
    """The parser's place is in the message."""
    path = tmp_path / "failsoft.toml"
    path.write_text("[versions.tiny]\nsource = \n")

    with pytest.raises(ConfigError, match=r"failsoft\.toml:2:10: "):
        load_toml(path)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["absent", "not UTF-8"])
def test_unreadable_file_is_a_config_error(tmp_path: Path, content: bytes | None) -> None:
    """No traceback for a wrong path or encoding."""
    path = tmp_path / "failsoft.toml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigError, match=r"failsoft\.toml.*UTF-8"):
        load_toml(path)
