"""Depth of JSON values."""

import pytest

from failsoft.engine.text.nesting import depth_of

DEEP: object = []
for _ in range(9_999):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "depth"), [(1, 0), ({}, 0), ({"a": [1]}, 2), ([[[]]], 2), (DEEP, 9_999)]
)
def test_depth(value: object, depth: int) -> None:
    """Of the JSON itself: levels below the first."""
    assert depth_of(value) == depth
