"""What a settings file pins now: read again when it changed, and not before."""

import os
from pathlib import Path

import pytest

from failsoft.config.schema import Checked, check_settings
from failsoft.fallback.pins.file_on_disk import FileOnDisk
from failsoft.fallback.pins.pinned import settings_of

FILE = '[versions.v1]\nsource = "file:models/v1"\n[pins]\nprimary = "v1"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A settings file with one pin."""
    path = tmp_path / "failsoft.toml"
    path.write_text(FILE)
    return path


def test_paths_count_from_the_files_folder(file: Path) -> None:
    """As a pin keeps them, else each file would differ from its own pin."""
    pins = FileOnDisk().pins(file)

    assert not isinstance(pins, str)
    table = settings_of(pins["primary"])
    assert table is not None
    assert table.source == f"file:{file.parent}/models/v1"


def test_it_is_read_again_only_when_it_changed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page and each scrape asks."""
    on_disk, checked = FileOnDisk(), []

    def count(path: Path) -> Checked:
        checked.append(path)
        return check_settings(path)

    monkeypatch.setattr("failsoft.fallback.pins.file_on_disk.check_settings", count)

    first, again = on_disk.pins(file), on_disk.pins(file)
    file.write_text(FILE.replace('primary = "v1"', 'other = "v1"'))
    os.utime(file, (0, 0))
    changed = on_disk.pins(file)

    assert first is again
    assert list(changed) == ["other"]
    assert len(checked) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [("[pins", "TOML syntax"), ('[pins]\nprimary = "nope"\n', "nope"), (None, "cannot be read")],
)
def test_a_file_that_cannot_be_read_is_told_in_words(
    file: Path, text: str | None, words: str
) -> None:
    """And once it is mended it counts."""
    on_disk = FileOnDisk()
    if text is None:
        file.unlink()
    else:
        file.write_text(text)

    broken = on_disk.pins(file)
    file.write_text(FILE)

    assert isinstance(broken, str)
    assert words in broken
    assert list(on_disk.pins(file)) == ["primary"]
