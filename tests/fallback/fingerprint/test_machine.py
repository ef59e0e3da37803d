"""What tells machines apart whose numbers cannot be compared."""

from pathlib import Path

from failsoft.fallback.fingerprint.machine import _processor, machine_key

CPUINFO = """processor\t: 0
model name\t: Some CPU
cpu MHz\t\t: 2450.000
flags\t\t: fpu avx2

processor\t: 1
model name\t: Some CPU
"""


def test_a_processor_is_its_model_and_what_it_can_do(tmp_path: Path) -> None:
    """Its clock moves, and the number of cores decides no sum."""
    file = tmp_path / "cpuinfo"
    file.write_text(CPUINFO)

    assert _processor(file) == ["model name\t: Some CPU", "flags\t\t: fpu avx2"]


def test_a_machine_without_the_file_still_has_a_key(tmp_path: Path) -> None:
    """MacOS has none."""
    assert len(_processor(tmp_path / "none")) == 1
    assert len(machine_key()) == 12
