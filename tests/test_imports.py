"""What loads what: the command line, the settings and the records need no torch."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "statement",
    [
        "import failsoft",
        "import failsoft.cli.main",
        "import failsoft.engine.launch",
        "import failsoft.engine.scheduler, failsoft.engine.step_loop",
        "import failsoft.engine.http.app",
        "import failsoft.cli.bench_serve, failsoft.engine.bench.load",
        "import failsoft.engine.bench.job, failsoft.engine.bench.documents",
        "import failsoft.engine.bench.child, failsoft.engine.bench.picture",
        "import failsoft.serving.front.run",
        "import failsoft.serving.supervisor.run",
    ],
)
def test_torch_is_not_loaded(statement: str) -> None:
    """A bare install has no torch, and loading it takes seconds."""
    heavy = "{'torch', 'transformers'} & set(sys.modules)"
    code = f"import sys; {statement}; print({heavy} or 'none')"

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "none"


def test_the_front_needs_nothing_of_the_engines_text() -> None:
    """It runs where only ``failsoft[server]`` is installed."""
    heavy = "{'jinja2', 'tokenizers', 'numpy'} & set(sys.modules)"
    code = f"import sys; import failsoft.serving.front.run; print({heavy} or 'none')"

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "none"


def test_the_engine_is_part_of_the_public_face() -> None:
    """And is loaded when first touched."""
    import failsoft
    from failsoft.engine.engine import Engine

    assert failsoft.Engine is Engine
    assert failsoft.__all__ == sorted(failsoft.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As with any module."""
    import failsoft

    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = failsoft.nothing_like_this
