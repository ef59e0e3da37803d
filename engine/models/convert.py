"""Converts a stored GGUF model to safetensors, once for each dtype; knows no torch itself.

The work runs in a child process, so that its peak memory (the GGUF file, its
dequantised weights and a copy) never stays in a serving process. float32 is
always made first: dequantising takes tens of seconds in Python and happens once,
any other dtype is a cast of the float32 file.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import failsoft
from failsoft.engine.models.disk import publish_folder, sha256_file
from failsoft.engine.models.model_files import GGUF_NAME, read_json
from failsoft.engine.models.progress import spinner
from failsoft.engine.models.store import (
    ModelStore,
    StoredFile,
    StoredModel,
    check_bytes,
    check_sizes,
)
from failsoft.engine.models.version import canonical_json
from failsoft.errors import ModelError, ModelFileError, UnsupportedModelError

CONVERTER = 1
"""Raised when the same GGUF file would convert to something else; old folders are then unused."""

RECORD_NAME = "conversion.json"
REFUSED = 3
"""Exit code of a child that says on stdout why it cannot convert this model."""


def conversion_folder(model: StoredModel, *, dtype: str, store: ModelStore) -> Path:
    """Return where the conversion lies or would lie."""
    return store.root / "conversions" / f"{model.digest}-{dtype}-v{CONVERTER}"


def find_conversion(model: StoredModel, *, dtype: str, store: ModelStore) -> Path | None:
    """Return the folder of a finished conversion, or None.

    Raises:
        ModelFileError: Its note or one of its files is missing, or has another size.
    """
    folder = conversion_folder(model, dtype=dtype, store=store)
    if not folder.exists():
        return None
    check_sizes(folder, conversion_files(folder))
    return folder


def conversion_files(folder: Path) -> tuple[StoredFile, ...]:
    """Return what a conversion holds, as noted when it was made.

    Raises:
        ModelFileError: The note is gone.
    """
    record: dict[str, Any] = read_json(folder / RECORD_NAME)
    if not record:
        path = str(folder / RECORD_NAME)
        raise ModelFileError(path=path, expected="of the conversion's own note", actual=None)
    return tuple(StoredFile(**file) for file in record["files"])


def ensure_converted(model: StoredModel, *, dtype: str, store: ModelStore) -> Path:
    """Return a folder that ``from_pretrained`` reads; converts if that was not done yet.

    A model stored as safetensors is its own folder. A second process that wants the
    same conversion waits for the first.

    Raises:
        ModelFileError: What would be converted is damaged.
        UnsupportedModelError: The GGUF file cannot be converted right.
        ModelError: The converting process died, likely for want of memory.
    """
    if not model.is_gguf:
        return model.folder
    if (folder := find_conversion(model, dtype=dtype, store=store)) is not None:
        return folder
    with store.lock(f"model-{model.digest}"):
        for step in dict.fromkeys(("float32", dtype)):
            if find_conversion(model, dtype=step, store=store) is None:
                _convert(model, dtype=step, store=store)
    return conversion_folder(model, dtype=dtype, store=store)


def _convert(model: StoredModel, *, dtype: str, store: ModelStore) -> None:
    # Damaged bytes would become a conversion whose own record calls it good.
    if dtype == "float32":
        check_bytes(model.folder, model.files)
        label = "converting to float32, once: about 20 s for 100 MB"
        job = ["dequantise", str(model.folder / GGUF_NAME)]
    else:
        source = conversion_folder(model, dtype="float32", store=store)
        check_bytes(source, conversion_files(source))
        label = f"converting float32 to {dtype}, once"
        job = ["cast", str(source)]
    with store.scratch() as scratch:
        built = scratch / "converted"
        built.mkdir()
        with spinner(label):
            _run_child([*job, str(built), dtype], scratch / "child.log", model=model)
            names = sorted(path.name for path in built.iterdir())
            files = [_describe(built / name) for name in names]
        record = {"model": model.digest, "dtype": dtype, "converter": CONVERTER, "files": files}
        (built / RECORD_NAME).write_bytes(canonical_json(record))
        publish_folder(built, conversion_folder(model, dtype=dtype, store=store))


def _describe(path: Path) -> dict[str, object]:
    sha256 = sha256_file(path, lambda _: None)
    return StoredFile(path=path.name, sha256=sha256, size_bytes=path.stat().st_size)._asdict()


def _run_child(job: list[str], log: Path, *, model: StoredModel) -> None:
    import_path = [str(_import_root()), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, import_path))}
    command = [sys.executable, "-m", "failsoft.engine.models.convert_child", *job]
    with log.open("wb") as errors:
        # The child ends itself when its stdin closes: when we die, however we die.
        process = subprocess.Popen(  # noqa: S603 - our own module, paths of our own store
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
        )
        try:
            assert process.stdout is not None, "it was asked for"
            answer = process.stdout.read()
            process.wait()
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
    _check_exit(process.returncode, answer, log, model=model)


def _import_root() -> Path:
    # The child must find this same package, also when it runs uninstalled from a checkout.
    return Path(str(failsoft.__file__)).absolute().parent.parent


def _check_exit(code: int, answer: bytes, log: Path, *, model: StoredModel) -> None:
    if code == 0:
        return
    if code == REFUSED:
        raise UnsupportedModelError(model=model.digest[:12], reason=json.loads(answer)["reason"])
    if code < 0:
        raise ModelError(
            f"converting {model.digest[:12]} was ended by signal {-code}; if memory ran out, free "
            f"about {12 * model.size_bytes / 1024**3:.1f} GiB and try again"
        )
    last = (log.read_text("utf-8", "replace").strip() or "it said nothing").splitlines()[-1]
    raise UnsupportedModelError(
        model=model.digest[:12], reason=f"transformers cannot convert its GGUF file ({last})"
    )
