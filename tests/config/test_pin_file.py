"""Pins written into a file that a person wrote, and that stays that person's."""

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failsoft.config.file import load_toml
from failsoft.config.pin_file import write_pins
from failsoft.errors import ConfigError

FILE = """\
# what we serve
[versions.v1]   # the first
source = "file:v1.gguf"

# who serves what
[pins]
primary = "v1"  # since May
small = 'v1'

# who is asked
[endpoints.primary]
pin = "primary"
"""


def written(path: Path, text: str, **pins: str) -> str:
    """Write *pins* into a file of *text*; return what it is then, line ends as they are."""
    path.write_bytes(text.encode())
    assert write_pins(path, pins)
    return path.read_bytes().decode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where the settings file is."""
    return tmp_path / "failsoft.toml"


def test_a_pin_is_moved_and_nothing_else(file: Path) -> None:
    """Its comment stays beside it."""
    after = written(file, FILE, primary="v2")

    assert after == FILE.replace('primary = "v1"', 'primary = "v2"')


def test_a_new_slot_goes_under_the_last_one(file: Path) -> None:
    """Not under the comment above the next table."""
    after = written(file, FILE, new="v2")

    assert after == FILE.replace("small = 'v1'\n", "small = 'v1'\nnew = \"v2\"\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '\n[pins]\nprimary = "v2"\n'),
        ("[x]\ny = 1", '[x]\ny = 1\n\n[pins]\nprimary = "v2"\n'),
        ("[pins]\n\n# next\n[x]\n", '[pins]\nprimary = "v2"\n\n# next\n[x]\n'),
        ('pins = { primary = "v1" } # c\n', 'pins = { primary = "v2" } # c\n'),
        ("pins = {}\n[x]\n", 'pins = {primary = "v2"}\n[x]\n'),
        ('pins.primary = "v1" # c\n[x]\n', 'pins.primary = "v2" # c\n[x]\n'),
        ('pins.small = "v1"\ny = 1\n', 'pins.small = "v1"\npins.primary = "v2"\ny = 1\n'),
        ('[ pins ]\n  "primary"  =  "v1"  # c', '[ pins ]\n  "primary"  =  "v2"  # c'),
    ],
)
def test_however_the_table_is_written(file: Path, before: str, after: str) -> None:
    """No table, an empty one, an inline one, dotted keys, odd spaces, no newline at the end."""
    assert written(file, before, primary="v2") == after


@pytest.mark.parametrize("text", [FILE, "", 'a = """\nb\n"""\n'])
def test_line_ends_of_other_systems_stay(file: Path, text: str) -> None:
    """Also those of the lines that are new."""
    text = text.replace("\n", "\r\n") or "a = 1\r\n"

    after = written(file, text, primary="v2", new="v3")

    assert after.count("\r\n") == after.count("\n")
    assert after.replace("\r\n", "\n") == written(
        file, text.replace("\r\n", "\n"), primary="v2", new="v3"
    )


@pytest.mark.parametrize("text", [FILE, FILE.replace("\n", "\r\n"), "", "a = 1\n"])
def test_a_byte_order_mark_stays_at_the_head(file: Path, text: str) -> None:
    """Once, and it does not become part of a name; a file that has none gets none."""
    plain = written(file, text, primary="v2", new="v3")

    marked = written(file, "\ufeff" + text, primary="v2", new="v3")

    assert marked == "\ufeff" + plain
    assert load_toml(file)["pins"]["primary"] == "v2"
    assert not write_pins(file, {"primary": "v2"})


def test_mode_and_link_stay(file: Path, tmp_path: Path) -> None:
    """A file that only its owner may read must not become public, nor a link a file."""
    real = tmp_path / "real" / "settings.toml"
    real.parent.mkdir()
    real.write_text(FILE)
    real.chmod(0o640)
    file.symlink_to("real/settings.toml")

    assert write_pins(file, {"primary": "v2"})

    assert os.readlink(file) == "real/settings.toml"
    assert 'primary = "v2"' in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in real.parent.iterdir()) == ["settings.toml"]


def made_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every new file seem to be another user's than the settings file is."""
    real = os.fstat

    def other(handle: int) -> os.stat_result:
        status = list(real(handle))
        status[4] += 1
        return os.stat_result(status)

    monkeypatch.setattr("os.fstat", other)


def test_a_file_of_another_user_stays_theirs(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by root it became root's, and with mode 0600 its own `failsoft up` was locked out."""
    file.write_text(FILE)
    file.chmod(0o600)
    kept: list[tuple[int, ...]] = []
    made_by_another(monkeypatch)
    monkeypatch.setattr("os.fchown", lambda _handle, *owner: kept.append(owner))
    assert write_pins(file, {"primary": "v2"})

    assert kept == [(file.stat().st_uid, file.stat().st_gid)]
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_whose_owner_cannot_be_kept_is_left_as_it_is(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only root gives files away."""
    file.write_text(FILE)
    file.chmod(0o600)

    def refuse(_handle: int, *_owner: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    made_by_another(monkeypatch)
    monkeypatch.setattr("os.fchown", refuse)
    with pytest.raises(ConfigError, match="a file of this user's"):
        write_pins(file, {"primary": "v2"})

    assert file.read_text() == FILE
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_pins_that_are_there_already_touch_nothing(file: Path) -> None:
    """Whoever watches the file sees no change."""
    file.write_text(FILE)
    before = file.stat()

    assert not write_pins(file, {"primary": "v1"})

    assert file.stat().st_ino == before.st_ino


@pytest.mark.parametrize(
    ("text", "pins", "words"),
    [
        ("x = ", {"primary": "v2"}, "TOML syntax"),
        ("pins = 3", {"primary": "v2"}, r"a table: \[pins\]"),
        (FILE, {"primary": 'v"2'}, "letters, digits"),
        (FILE, {"a b": "v2"}, "letters, digits"),
        (None, {"primary": "v2"}, "a readable file"),
    ],
)
def test_what_cannot_be_written_is_left_as_it_is(
    file: Path, text: str | None, pins: dict[str, str], words: str
) -> None:
    """And the error says why."""
    if text is not None:
        file.write_text(text)

    with pytest.raises(ConfigError, match=words):
        write_pins(file, pins)

    assert text is None or file.read_text() == text


def test_a_folder_that_is_read_only_is_one_line(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file itself could be written to, but not in one step."""
    file.write_text(FILE)

    def refuse(*args: object, **options: object) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with pytest.raises(ConfigError, match=r"may write to \(Permission denied\)"):
        write_pins(file, {"primary": "v2"})

    assert file.read_text() == FILE


def test_what_would_change_more_than_the_pins_is_not_written(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an editor of TOML may get wrong: the lines to write are in the error."""
    file.write_text(FILE)
    wrong = FILE.replace("file:v1", "file:v9")
    monkeypatch.setattr("failsoft.config.pin_file._edited", lambda text, pins: wrong)

    with pytest.raises(
        ConfigError, match=r'left as it is, since more than.*\[pins\]: primary = "v2"'
    ):
        write_pins(file, {"primary": "v2"})

    assert file.read_text() == FILE


def test_tables_are_not_put_into_another_order(file: Path) -> None:
    """What tomlkit does to a table that rows of another one part, even when nothing changes."""
    text = "[pins]\n[versions.v1]\na = 1\n[[rows]]\nb = 1\n[versions.v2]\na = 1\n"
    file.write_text(text)

    with pytest.raises(ConfigError, match=r"another order.*primary"):
        write_pins(file, {"primary": "v2"})

    assert file.read_text() == text


NAMES = st.sampled_from(["primary", "small", "a.b", "9", "x-y"])
SPACE = st.sampled_from(["", " ", "\t", "  "])
END = st.sampled_from(["", "  # why", " #", "\t# ünïcode \\ \" '"])
OTHERS = st.lists(
    st.sampled_from(
        [
            "# a comment",
            "",
            "   ",
            '[versions."a.b"]\nsource = "file:x"',
            "[versions.v]\nsource = [\n  'a', # first\n  'b',\n]\nprice = { input_per_mtok = 1 }",
            '[rows]\ntext = """\n[pins]\nprimary = "v0"\n"""',
            "[endpoints.p] # [pins]\npin = 'primary'\n\n\n# end",
            "[store]\nwhen = 1979-05-27T07:32:00Z\nhex = 0xFF",
            "[ladders.chat.retry]\nbase_s = 1e-3\n[ladders.chat]\nrungs=['p']",
        ]
    ),
    unique=True,
    max_size=5,
)


@st.composite
def files(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Return a valid settings file with pins in any form or without, and all else in it."""
    pins = draw(st.dictionaries(NAMES, st.sampled_from(["v1", "v.2"]), max_size=3))
    quoted = [(f'"{slot}"', f'"{version}"') for slot, version in pins.items()]
    blank = draw(SPACE)
    form = draw(st.sampled_from(["table", "inline", "dotted", "absent"]))
    others = draw(OTHERS)
    blocks = list(others)
    if form == "table":
        lines = [f"{key}{blank}={blank}{version}{draw(END)}" for key, version in quoted]
        place = draw(st.integers(0, len(others)))
        blocks.insert(place, "\n".join([f"[{blank}pins{blank}]", *lines]))
    elif form == "inline":
        inner = ",".join(f"{blank}{key} = {version}" for key, version in quoted)
        blocks.insert(0, f"pins = {{{inner}{blank}}}{draw(END)}")
    elif form == "dotted":
        blocks[:0] = [f"pins.{key} = {version}{draw(END)}" for key, version in quoted]
    text = "\n".join(blocks) + draw(st.sampled_from(["", "\n", "\n\n"]))
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))), others


@settings(deadline=None)  # each writes to the disk, which may be busy
@given(file=files(), pins=st.dictionaries(NAMES, st.sampled_from(["v1", "v3"]), min_size=1))
def test_all_but_the_pins_survives_in_its_order(
    tmp_path_factory: pytest.TempPathFactory, file: tuple[str, list[str]], pins: dict[str, str]
) -> None:
    """Comments, blank lines, multi-line strings that look like a pins table, and line ends."""
    path = tmp_path_factory.mktemp("any") / "failsoft.toml"
    text, others = file
    path.write_bytes(text.encode())
    before = tomllib.loads(text)

    write_pins(path, pins)

    after = path.read_bytes().decode()
    assert tomllib.loads(after) == {**before, "pins": {**before.get("pins", {}), **pins}}
    assert after.count("#") == text.count("#")
    if "\r\n" in text:
        assert after.count("\n") == after.count("\r\n")
    rest = after.replace("\r\n", "\n")
    for block in others:
        assert block in rest
        rest = rest[rest.index(block) + len(block) :]
    assert not write_pins(path, pins)
