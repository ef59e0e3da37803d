"""Versions in words."""

import pytest

from failsoft.cli.version_text import difference_lines, long_text, word_hunks

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


def test_what_is_between_two_differences_is_left_out_when_it_is_long() -> None:
    """Each place that differs stands with what is around it."""
    other = LONG.replace("one", "1").replace("fourteen", "14")

    assert list(word_hunks(LONG, other)) == [
        "[-one-]{+1+} two three four five six…",
        "… eleven twelve thirteen [-fourteen-]{+14+}",
    ]


def test_line_ends_are_seen() -> None:
    """A prompt that gained one is another prompt."""
    assert list(word_hunks(f"{LONG}\nEnd", f"{LONG} End")) == [
        "…twelve thirteen fourteen[-⏎-]{+ +}End"
    ]


@pytest.mark.parametrize(
    ("a", "b", "lines"),
    [
        (None, "Be kind.", ['system_prompt: - -> "Be kind."']),
        ("0" * 64, "f" * 64, ["system_prompt: 000000000000 -> ffffffffffff"]),
        ({"a": 1, "b": 2}, {"b": 3}, ["system_prompt a: 1 -> -", "system_prompt b: 2 -> 3"]),
        ("x" * 70, "y", [f"system_prompt: {'x' * 60}… -> y"]),
        (
            LONG,
            "All of it is other. " * 4,
            [f"system_prompt: {long_text(LONG)} -> {long_text('All of it is other. ' * 4)}"],
        ),
    ],
)
def test_a_difference_in_one_line(a: object, b: object, lines: list[str]) -> None:
    """Texts with little in common are not woven into each other."""
    assert list(difference_lines("system_prompt", a, b)) == lines
