"""How many threads each engine gets, and how many cores there are."""

from pathlib import Path

import pytest

from failsoft.serving.supervisor.threads import threads_per_engine, usable_cores


@pytest.mark.parametrize(
    ("num_cores", "are_first", "threads"),
    [
        (1, [True, False], [1, 1]),
        (2, [True, False], [2, 2]),
        (2, [True, False, False], [2, 2, 2]),
        (3, [True, False], [3, 2]),
        (4, [True, False], [3, 2]),
        (8, [True], [7]),
        (8, [True, False], [7, 4]),
        (16, [True, True], [7, 7]),
        (64, [True, False, False], [62, 31, 31]),
        (4, [], []),
    ],
)
def test_the_first_rung_gets_the_cores(
    num_cores: int, are_first: list[bool], threads: list[int]
) -> None:
    """And no engine fewer than two where there are two."""
    assert threads_per_engine(num_cores=num_cores, are_first=are_first) == threads


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", None), ("50000 100000", 1), ("100000 100000", 1), ("garbage", None)],
)
def test_a_containers_quota_counts(quota: str, cores: int | None, tmp_path: Path) -> None:
    """It has more cores in sight than it may use."""
    file = tmp_path / "cpu.max"
    file.write_text(quota)

    expected = usable_cores(tmp_path / "none") if cores is None else cores

    assert usable_cores(file) == expected
