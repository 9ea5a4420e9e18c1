#!/usr/bin/env python3
"""Runs the shell code blocks of README and docs.

usage: code_blocks.py HEDDLE [FILE...]

A shell block is a fence marked `sh`. Its commands run with bash and stop at the first failure. All
blocks of a page share one temporary folder, in order, so a block may use the files of the blocks
before it. In that folder both `heddle` and `build/heddle` are HEDDLE, and `examples` is that of the
checkout. A block that needs other files of the checkout cannot run.

A comment on the line before the fence changes this:

    <!-- not run: REASON -->   the block cannot run here; the script prints the reason
    <!-- slow -->              the block runs only with HEDDLE_SOAK=1
    <!-- exit N -->            the block must end with exit code N

Commands in a fence without a language are an error: no test would run them. Transcripts, whose
commands begin with `$ `, are not commands.
"""
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md"))]
MARK = re.compile(r"<!-- (?:(not run): (.+)|(slow)|(exit) (\d+)) -->$")
COMMAND = re.compile(r"(build/)?heddle (?!1 |plan 1$)[a-z]|torchrun |srun |make [a-z]")
SECONDS = 900  # far above what a block takes, since the machine may be busy


class Block:
    def __init__(self, page, line, language, marks):
        self.page, self.line, self.language = page, line, language
        self.lines = []
        self.not_run, self.slow, self.exit = "", False, 0
        for mark in marks:
            if mark[1]:
                self.not_run = mark[2]
            self.slow |= bool(mark[3])
            if mark[4]:
                self.exit = int(mark[5])

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    @property
    def text(self):
        return "\n".join(self.lines) + "\n"


def blocks_of(page):
    blocks, marks, inside, fence = [], [], None, ""
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        opening = re.match(r"( *)(```+)(\w*)", line)
        if inside is not None:
            if line.strip() == fence:
                blocks.append(inside)
                inside = None
            else:
                inside.lines.append(line)
        elif opening:
            fence = opening[2]
            inside, marks = Block(page, number, opening[3], marks), []
        elif mark := MARK.match(line.strip()):
            marks.append(mark)
        elif marks:
            raise SystemExit(f"{page}:{number - 1}: a mark must be on the line before a code block")
    if inside is not None:
        raise SystemExit(f"{inside.place}: the code block does not end")
    return blocks


def run(block, folder, environment):
    """Returns a message if the block fails."""
    process = subprocess.Popen(["bash", "-e", "-o", "pipefail", "-c", block.text], cwd=folder,
                               env=environment, text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"{block.place}: still running after {SECONDS} s\n{block.text}"
    if process.returncode != block.exit:
        return (f"{block.place}: exit code {process.returncode}, expected {block.exit}\n"
                f"{block.text}{output[-4000:]}")
    return ""


def untagged(block):
    """The first command in a fence without a language."""
    if block.language:
        return None
    return next((line for line in block.lines if COMMAND.match(line)), None)


def main():
    heddle, *pages = sys.argv[1:]
    soak = os.environ.get("HEDDLE_SOAK") == "1"
    failures, ran, left_out = [], 0, 0
    for page in pages or PAGES:
        with tempfile.TemporaryDirectory() as path:
            folder = pathlib.Path(path)
            (folder / "build").mkdir()
            for link in (folder / "heddle", folder / "build/heddle"):
                link.symlink_to(os.path.abspath(heddle))
            (folder / "examples").symlink_to(ROOT / "examples")
            environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}",
                           "OMP_NUM_THREADS": "1"}
            for block in blocks_of(page):
                if command := untagged(block):
                    failures.append(f"{block.place}: `{command}` is in a code block without a "
                                    "language; mark the block `sh`, or begin the command with `$ `")
                if block.language != "sh":
                    continue
                if block.not_run or (block.slow and not soak):
                    left_out += 1
                    print(f"{block.place}: not run: {block.not_run or 'slow; set HEDDLE_SOAK=1'}")
                    continue
                ran += 1
                start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
                failure = run(block, folder, environment)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                print(f"{block.place}: {'FAILED' if failure else 'ok'}, "
                      f"{time.monotonic() - start:.1f} s, {cpu:.1f} s of CPU", flush=True)
                if failure:
                    failures.append(failure)
    for failure in failures:
        print(f"\n{failure}")
    print(f"{ran} code blocks ran, {len(failures)} failures, {left_out} left out")
    if ran == 0:
        raise SystemExit("code_blocks: no block ran")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
