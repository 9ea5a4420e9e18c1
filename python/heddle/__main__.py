"""The command line, `python -m heddle`, for those who have only the wheel."""

from __future__ import annotations

import signal
import sys

from . import _core, data


def main() -> int:
    if sys.argv[1:2] == ["tokenize"]:
        code = data._run_command(sys.argv[2:])
        if code is not None:
            return code
    # No Python code runs meanwhile, so Ctrl-C ends the process, as it ends the program `heddle`.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.run_command_line(["python -m heddle", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
