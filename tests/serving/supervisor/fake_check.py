"""Run as a program: ``failsoft versions check`` without a model; ``python fake_check.py JSON``.

A file ``<folder>/VERSION.problem`` names what is wrong with the version's files, one
``<folder>/VERSION.available`` how many bytes of memory there are.
"""

import json
import os
import sys
from pathlib import Path

from failsoft.serving.lifeline import watch
from tests.serving.supervisor.fake_child import digest_of, stall

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    watch(os.environ, grace_s=1.0)
    folder, version = Path(asked["folder"]), asked["version"]
    stall(folder, version, "checking")
    problem = folder / f"{version}.problem"
    problems = [problem.read_text()] if problem.exists() else []
    available = folder / f"{version}.available"
    found = {
        "version_digest": digest_of(Path(asked["config"]), version),
        "files_good": not problems,
        "problems": problems,
        "needs_bytes": asked.get("needs_bytes", 1000),
        "available_bytes": int(available.read_text()) if available.exists() else 2000,
    }
    sys.stdout.write(json.dumps(found))
