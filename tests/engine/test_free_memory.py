"""What may still be taken: the machine's, and what each control group over us allows."""

from pathlib import Path

import pytest

from failsoft.engine.free_memory import available_bytes

GIB = 1024**3


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with 8 GiB available and no control groups."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  8388608 kB\n")
    return tmp_path


def available(machine: Path) -> int | None:
    """Ask on *machine*."""
    return available_bytes(proc=machine / "proc", groups=machine / "groups")


def put(machine: Path, group: str, **files: str) -> None:
    """Write a control group's files; dots in their names are underscores here."""
    folder = machine / "groups" / group
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("memory_", "memory.", 1)).write_text(text)


def test_without_groups_it_is_the_machines(machine: Path) -> None:
    """Files that do not exist limit nothing."""
    assert available(machine) == 8 * GIB


@pytest.mark.parametrize("own", ["max", str(6 * GIB)])
def test_the_narrowest_group_counts(machine: Path, own: str) -> None:
    """A parent's limit too; file pages that nobody read lately are free."""
    (machine / "proc/self/cgroup").write_text("0::/outer/inner\n")
    put(machine, "outer/inner", memory_max=own, memory_current=str(GIB))
    put(
        machine,
        "outer",
        memory_max=f"{5 * GIB}\n",
        memory_current=f"{4 * GIB}\n",
        memory_stat=f"anon 5\ninactive_file {GIB}\n",
    )

    assert available(machine) == 2 * GIB


def test_groups_of_version_1_count_too(machine: Path) -> None:
    """A container sees its own group as the root, whatever path the host gives it."""
    (machine / "proc/self/cgroup").write_text("5:cpu:/a\n4:memory:/docker/abc\n0::/\n")
    put(
        machine,
        "memory",
        memory_limit_in_bytes=str(4 * GIB),
        memory_usage_in_bytes=str(3 * GIB),
        memory_stat=f"total_inactive_file {GIB // 2}\ninactive_file 0\n",
    )

    assert available(machine) == 3 * GIB // 2


def test_a_group_over_its_limit_allows_nothing(machine: Path) -> None:
    """Less than nothing would make a sum look better than it is."""
    (machine / "proc/self/cgroup").write_text("0::/\n")
    put(machine, "", memory_max=str(GIB), memory_current=str(2 * GIB))

    assert available(machine) == 0


def test_where_nobody_says_it_is_not_known(tmp_path: Path) -> None:
    """None, not 0: a system without /proc is not a full one."""
    assert available(tmp_path) is None
