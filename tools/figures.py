#!/usr/bin/env python3
"""Checks or rewrites the figures that the docs quote, by running the commands they come from.

usage: figures.py HEDDLE [--write] [--all] [FILE...]

A block of figures in a Markdown file is a comment, the text that it generates, and an end mark:

    <!-- figures
    run: heddle sim --model=llama3 {args} --json
    for: one node = --parallelism.data_parallel_shard_degree=8
    for: two nodes = --parallelism.data_parallel_shard_degree=16
    head: | ranks | step |
    head: | --- | --- |
    row: | {label} | {makespan_ms:.0f} ms |
    -->
    (generated)
    <!-- end of figures -->

  run   a bash command that prints JSON, or text if the block has no `row`; `heddle` is HEDDLE.
        It runs in a temporary folder
  for   a label, and what {args} is in the command; one run for each such line, or one run
  head  text before the rows
  row   text for each run. A field {expression:format} is a Python expression over the keys of the
        JSON, `label`, and `all`, the whole of it. Without a row, the heads and the printed text
        are quoted in a code block
  each  the row is for each element of this expression instead, whose keys it sees as well
  slow  run only with --all: for blocks that take longer than a few seconds

Without --write the exit code is 1 if a block differs from what its commands print.
"""
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = ["README.md"] + sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md"))
BLOCK = re.compile(r"(<!-- figures\n(.*?)-->\n)(.*?)(<!-- end of figures -->)", re.DOTALL)
FIELD = re.compile(r"\{([^{}]+?)(?::([^{}:\"']*))?\}")
FUNCTIONS = {f.__name__: f for f in (abs, float, len, max, min, next, round, sorted, str, sum)}


class Block:
    def __init__(self, text):
        self.lines = {"run": [], "for": [], "head": [], "row": [], "each": [], "slow": []}
        for line in text.splitlines():
            kind, colon, rest = line.partition(":")
            if kind.strip() not in self.lines:
                raise SystemExit(f"figures: `{line}` begins with none of {', '.join(self.lines)}")
            self.lines[kind.strip()].append(rest.strip())
        if len(self.lines["run"]) != 1:
            raise SystemExit(f"figures: a block needs one `run`:\n{text}")
        if self.lines["each"] and not self.lines["row"]:
            raise SystemExit(f"figures: `each` needs a `row`:\n{text}")

    @property
    def slow(self):
        return bool(self.lines["slow"])

    def generate(self, path):
        out = list(self.lines["head"])
        for case in self.lines["for"] or [""]:
            label, _, args = (part.strip() for part in case.partition(" = "))
            printed = run(self.lines["run"][0].replace("{args}", args), path)
            if not self.lines["row"]:
                out += [*([""] if len(out) > len(self.lines["head"]) else []), printed.strip("\n")]
                continue
            data = json.loads(printed)
            names = {**(data if isinstance(data, dict) else {}), "all": data, "label": label}
            elements = evaluate(self.lines["each"][0], names) if self.lines["each"] else [{}]
            for element in elements:
                for row in self.lines["row"]:
                    out.append(fill(row, {**names, **element}))
        if not self.lines["row"]:
            out = ["```", *out, "```"]
        return "\n".join(out) + "\n"


@functools.cache  # pages quote the same jobs
def run(command, path):
    done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", command], cwd=path, text=True,
                          env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"},
                          capture_output=True)
    if done.returncode != 0:
        raise SystemExit(f"figures: exit {done.returncode} of {command}\n{done.stderr}")
    return done.stdout


def evaluate(expression, names):
    # Names of JSON become globals, so that generator expressions see them, too.
    return eval(expression, {"__builtins__": {}, **FUNCTIONS, **names})


def fill(row, names):
    return FIELD.sub(lambda field: format(evaluate(field[1], names), field[2] or ""), row)


def main():
    flags = [a for a in sys.argv[1:] if a.startswith("--")]
    heddle, *files = [a for a in sys.argv[1:] if not a.startswith("--")]
    wrong = count = 0
    with tempfile.TemporaryDirectory() as path:
        os.symlink(os.path.abspath(heddle), os.path.join(path, "heddle"))
        for name in files or FILES:
            file = ROOT / name
            text = file.read_text()

            def replace(match, name=name):
                nonlocal wrong, count
                block = Block(match[2])
                if block.slow and "--all" not in flags:
                    return match[0]
                count += 1
                made = block.generate(path)
                if made != match[3]:
                    wrong += 1
                    print(f"{name}: {block.lines['run'][0]}\nquoted:\n{match[3]}printed:\n{made}")
                return match[1] + made + match[4]

            made = BLOCK.sub(replace, text)
            if "--write" in flags and made != text:
                file.write_text(made)
    print(f"{count} blocks of figures, {wrong} {'rewritten' if '--write' in flags else 'wrong'}")
    if count == 0:
        raise SystemExit("figures: no block was found")
    return 1 if wrong and "--write" not in flags else 0


if __name__ == "__main__":
    sys.exit(main())
