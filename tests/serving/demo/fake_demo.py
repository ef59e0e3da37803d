"""Run as a program: the ``failsoft`` command, its demo over the stand-in ``failsoft up``."""

import signal
import sys

from failsoft.cli.main import main
from failsoft.serving.demo.stage import Stage

if __name__ == "__main__":
    # A shell that starts the tests in the background has their programs ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    defaults = Stage.__init__.__kwdefaults__
    assert defaults is not None
    defaults["command"] = (sys.executable, "-m", "tests.serving.demo.fake_up")
    main()
