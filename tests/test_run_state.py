"""What processes tell of themselves is believed for as long as it is theirs."""

import json
import os
import sys
from pathlib import Path

import pytest

from failsoft.run_state import FrontState, read_front, write_front

STATE = FrontState(pid=os.getpid(), url="http://127.0.0.1:8000/v1", token="t")


def test_a_front_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Owner only."""
    write_front(tmp_path, STATE)

    assert read_front(tmp_path) == STATE
    assert (tmp_path / "run/processes/front.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(sys.platform != "linux", reason="nobody tells when a process started there")
def test_a_file_of_before_a_reboot_is_nobodys(tmp_path: Path) -> None:
    """Its process' number is a stranger's now."""
    write_front(tmp_path, STATE)
    path = tmp_path / "run/processes/front.json"
    written = json.loads(path.read_text())
    path.write_text(json.dumps({**written, "process_start": written["process_start"] - 1}))

    assert read_front(tmp_path) is None


def test_a_file_without_a_start_is_believed(tmp_path: Path) -> None:
    """Where the system does not tell, or an earlier failsoft wrote it."""
    write_front(tmp_path, STATE)
    path = tmp_path / "run/processes/front.json"
    written = json.loads(path.read_text())
    del written["process_start"]
    path.write_text(json.dumps(written))

    assert read_front(tmp_path) == STATE
