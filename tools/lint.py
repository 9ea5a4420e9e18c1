#!/usr/bin/env python3
"""Checks changed C++ files with clang-format and clang-tidy.

lint.py [--most=N] [--all] [FILE...]. A branch is compared with its first commit's parent, and
the main branch with the commit before. Without history, only uncommitted changes are checked.
--most limits the number of files for clang-tidy, which takes a few seconds each. Files that
include libtorch are only formatted, because its headers take too long. Missing tools are skipped
with a message. Both tools are of version 16, because others format and warn differently; another
clang-tidy reports and does not fail."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSION = 16
BUILD = ROOT / "build" / "lint"


def git(*args):
    """Returns the lines that git prints; none if it fails."""
    done = subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def base():
    """The commit to compare with, or None."""
    head = git("rev-parse", "HEAD")
    for branch in ("origin/main", "main"):
        found = git("merge-base", "HEAD", branch)
        if found and found != head:
            return found[0]
    return next(iter(git("rev-parse", "--verify", "--quiet", "HEAD~1")), None)


def changed():
    names = set(git("diff", "--name-only", "--diff-filter=d", base() or "HEAD"))
    names |= set(git("ls-files", "--others", "--exclude-standard"))
    return sorted(n for n in names if n.endswith((".h", ".cc")) and (ROOT / n).is_file())


def check_format(files):
    tool = shutil.which(f"clang-format-{VERSION}")
    if tool is None:
        print(f"lint: clang-format skipped: clang-format-{VERSION} is not installed")
        return True
    done = subprocess.run([tool, "--dry-run", "-Werror", *files], cwd=ROOT, capture_output=True, text=True, check=False)
    wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", done.stderr, re.M)))
    for name in wrong:
        print(f"lint: {name} is not formatted; `make format` does it")
    return not wrong


def find_tidy():
    """Returns the tool, and whether its warnings are errors."""
    tool = shutil.which(f"clang-tidy-{VERSION}")
    if tool:
        return tool, True
    others = [t for t in (shutil.which(f"clang-tidy-{v}") for v in range(17, 30)) if t]
    return (others[0], False) if others else (None, False)


def commands(clang):
    """Configures a build, without building it, to get each file's compile command without
    precompiled headers."""
    done = subprocess.run(
        ["cmake", "--preset", "notorch", "-B", BUILD, "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON", "-DHEDDLE_UNITY=OFF", "-DCMAKE_CXX_COMPILER=" + clang],
        cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout + done.stderr)
        return None
    return {os.path.relpath(entry["file"], ROOT) for entry in json.loads((BUILD / "compile_commands.json").read_text())}


def check_tidy(files, most):
    tool, binding = find_tidy()
    clang = tool and shutil.which(tool.replace("clang-tidy", "clang++"))
    if not clang:
        print(f"lint: clang-tidy skipped: clang-tidy-{VERSION} is not installed")
        return True
    known = commands(clang)
    if known is None:
        return False
    # clang-tidy checks a header through the file of the same name.
    sources = sorted({re.sub(r"\.h$", ".cc", f) for f in files} & known)
    if most and len(sources) > most:
        print(f"lint: clang-tidy reads {most} of {len(sources)} files; `make lint` reads all")
        sources = sources[:most]
    only = json.dumps([{"name": f} for f in files])

    def run(source):
        done = subprocess.run([tool, "-p", BUILD, "--quiet", "--line-filter=" + only, source], cwd=ROOT,
                              capture_output=True, text=True, check=False)
        return done.stdout

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = "".join(pool.map(run, sources))
    print(said, end="")
    return not (binding and re.search(r": (warning|error): ", said))


def main():
    arguments = sys.argv[1:]
    most = next((int(a.split("=")[1]) for a in arguments if a.startswith("--most=")), 0)
    files = [a for a in arguments if not a.startswith("--")] or changed()
    if "--all" in arguments:
        files = git("ls-files", "*.h", "*.cc")
    if not files:
        print("lint: no C++ file changed")
        return 0
    right = check_format(files)
    right = check_tidy(files, most) and right
    print(f"lint: {len(files)} files, {'as they should be' if right else 'see above'}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
