#!/usr/bin/env python3
"""The jobs that a search writes run as its last line states, with the tokens/s of the search.

usage: jobs.py HEDDLE [--all]     (--all: large models instead)"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

SMALL = ["--model=llama3", "--flavor=debugmodel", "--training.seq_len=256"]
LARGE = [
    "--model=llama3 --flavor=70B --training.seq_len=8192 --devices=64",
    "--model=llama3 --flavor=8B --training.seq_len=8192 --devices=8",
    "--model=llama3 --flavor=8B --training.seq_len=8192 --devices=64",
    "--model=qwen3 --flavor=30B-A3B --training.seq_len=4096 --devices=64",
    "--model=deepseek_v3 --flavor=16B --training.seq_len=4096 --devices=64",
]


def run(command, folder, code=0):
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode != code:
        sys.exit(f"{shlex.join(command)}\nexit {done.returncode}, expected {code}:\n"
                 f"{done.stdout}{done.stderr}")
    return done.stdout if code == 0 else done.stderr


def check(condition, what):
    if not condition:
        sys.exit(what)


def number(text):
    return int(text.replace(",", ""))


def table_tokens(text):
    """Returns the tokens/s of the numbered rows."""
    row = re.compile(r"^\d+ .*?  ([\d,]+) +[\d,]+ +[\d.]+ \w?s ", re.M)
    return [number(found) for found in row.findall(text)]


def check_same(found, out, what):
    simulated = number(re.search(r"^tokens/s +([\d,]+)", out, re.M).group(1))
    check(abs(found - simulated) <= 0.001 * found,
          f"{what}: the search found {found} tokens/s, sim has {simulated}")


def check_rows(heddle, folder, search):
    """Runs every row as a job, and the first one with the command of the last line."""
    out = run([heddle, "search", *search, "--write-jobs=jobs of a search"], folder)
    last = out.splitlines()[-1]
    check(last == f"{heddle} sim '--config=jobs of a search/1.toml'", f"no command: {last}")
    rows = table_tokens(out)
    check(len(rows) > 0, f"no rows in\n{out}")
    check_same(rows[0], run(shlex.split(last), folder), last)
    for n, tokens in enumerate(rows[1:], 2):
        job = f"--config=jobs of a search/{n}.toml"
        check_same(tokens, run([heddle, "sim", job], folder), f"{' '.join(search)}: {job}")
    return len(rows)


def check_last_line(heddle, folder):
    """Without --write-jobs the last line is the search that writes them."""
    search = [*SMALL, "--devices=2", "--memory.budget=64 MiB", "--parallelism.auto=false"]
    last = run([heddle, "search", *search], folder).splitlines()[-1]
    check(shlex.split(last) == [heddle, "search", *search, "--write-jobs=jobs"],
          f"another search: {last}")
    again = run(shlex.split(last), folder).splitlines()[-1]
    check(again == f"{heddle} sim --config=jobs/1.toml", f"no job: {again}")
    answer = json.loads(run([heddle, "search", *search, "--json", "--write-jobs=jobs"], folder))
    command = answer["best"]["command"]
    check(command == again, f"best.command is {command}")


def check_job(heddle, folder, n, row):
    """Training and verification take mesh, batch and pipeline from the plan."""
    job = f"--config=jobs/{n}.toml"
    micro = row["micro_batches"]
    screen = run([heddle, "train", job, "--training.steps=2"], folder)
    parts = f" in {micro} parts" if micro > 1 else ""
    for line in [f"batch        16 x 128 tokens{parts}, 2 steps",
                 "4 ranks in this process",
                 f"pipeline     {row['pipeline']}"]:
        check(line in screen, f"train {job}: no `{line}` in\n{screen}")
    verified = run([heddle, "verify", job, "--training.steps=2"], folder)
    check("against `clean`" in verified and "have the same bits" in verified, verified)


def check_training(heddle, folder):
    """Jobs with and without micro-batches; flags may agree with a plan, and not contradict it."""
    small = ["--model=llama3", "--flavor=debugmodel", "--model.n_layers=2",
             "--training.seq_len=128", "--precision=f32", "--device=cpu"]
    search = [*small, "--devices=4", "--training.global_batch_size=16", "--memory.budget=34MiB",
              "--parallelism.auto=false", "--write-jobs=jobs", "--json"]
    rows = json.loads(run([heddle, "search", *search], folder))["front"]
    micro = [n for n, row in enumerate(rows, 1) if row["micro_batches"] > 2]
    check(micro, f"micro-batches: {[row['micro_batches'] for row in rows]}, none above 2")
    for n in [1, micro[0]]:
        check_job(heddle, folder, n, rows[n - 1])
    said = run([heddle, "train", "--config=jobs/1.toml", "--training.seq_len=32"], folder, code=1)
    check("--training.seq_len is 32" in said and "batch 16 x 128" in said, said)
    said = run([heddle, "sim", "--config=jobs/1.toml", "--compile.pipeline=none"], folder, code=1)
    check("--compile.pipeline=none" in said and "pipeline \"" in said, said)


def check_context(heddle, folder):
    """Few long sequences: context parallelism wins. A job repeats its degree, method and bytes."""
    search = ["--model=llama3", "--flavor=debugmodel", "--model.n_layers=2",
              "--training.seq_len=4096", "--devices=4", "--training.global_batch_size=2",
              "--parallelism.auto=false", "--write-jobs=context"]
    answer = json.loads(run([heddle, "search", *search, "--json"], folder))
    best, rows = answer["best"], answer["front"]
    check(best["cp"] > 1, f"no context parallelism in {best}")
    found = {row["context_parallel_method"] for row in rows}
    check(found == {"allgather", "ulysses"}, f"methods {found}")
    methods = [answer["methods"][kind] for kind in ("chosen", "other")]
    check({row["context_parallel_method"] for row in methods} == found, f"methods {methods}")
    check(methods[0]["step_ms"] <= methods[1]["step_ms"], f"a slower method won: {methods}")
    for n, row in enumerate(rows, 1):
        job = f"--config=context/{n}.toml"
        moved = sum(c["bytes"] for c in json.loads(run([heddle, "sim", job, "--json"], folder))["collectives"]
                    if c["why"] == "context") * row["micro_batches"]
        check(moved == row["context_bytes"], f"{job}: {moved} bytes, the search has {row}")
    reason = run([heddle, "search", *search], folder)
    for row in methods:
        check(row["context_parallel_method"] in reason, f"no reason in {reason}")


def main():
    heddle = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if "--all" in sys.argv:
            for search in LARGE:
                print(f"{search}: {check_rows(heddle, folder, search.split())} rows", flush=True)
            return
        check_rows(heddle, folder, [*SMALL, "--devices=8", "--training.global_batch_size=16"])
        check_rows(heddle, folder, ["--model=qwen3", "--flavor=debugmodel_moe",
                                    "--training.seq_len=256", "--devices=4"])
        check_last_line(heddle, folder)
        check_training(heddle, folder)
        check_context(heddle, folder)


if __name__ == "__main__":
    main()
