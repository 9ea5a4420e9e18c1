"""The command line, `python -m heddle`, for those who have only the wheel."""

from __future__ import annotations

import signal
import sys

from . import _core


def main() -> int:
    # No Python code runs meanwhile, so Ctrl-C ends the process, as it ends the program `heddle`.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.run_command_line(["python -m heddle", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
