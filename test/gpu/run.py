#!/usr/bin/env python3
"""All tests that need a GPU, in under 10 minutes: run.py HEDDLE. Exit code 77: no GPU."""
import os
import subprocess
import sys
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    heddle = sys.argv[1]
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return 77
    failed = []
    for script in ("graphs.py", "faults.py", "repeat.py", "tune.py", "verify.py", "processes.py"):
        begin = time.time()
        code = subprocess.run([sys.executable, os.path.join(HERE, script), heddle]).returncode
        print(f"{script}: {'ok' if code == 0 else f'exit code {code}'}, {time.time() - begin:.0f} s", flush=True)
        if code != 0:
            failed.append(script)
    print(f"failed: {', '.join(failed)}" if failed else "all tests passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
