#!/usr/bin/env python3
"""Tests the files of a search: plans that `heddle parallelize` applies, on the mesh of the
answer, and a self-contained page.

usage: plans.py HEDDLE"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

# Large enough that only plans with several kinds of parallelism fit, so that the front has several
# plans.
MODEL = ["--model=llama3", "--flavor=debugmodel", "--training.seq_len=256"]
DEVICES = 8
SEQUENCES = 16


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexit {done.returncode}: {done.stderr}")
    return done.stdout


def check(condition, what):
    if not condition:
        sys.exit(what)


def check_plan(heddle, folder, number, row):
    path = folder / f"{number}.plan"
    text = path.read_text()
    check(f"mesh {row['mesh']}" in text, f"{path.name} is not on the mesh {row['mesh']}:\n{text}")
    graph = folder / f"{number}.hd"
    run(heddle, "capture", *MODEL, f"--training.local_batch_size={SEQUENCES // row['micro_batches']}", "-o", graph)
    local = run(heddle, "parallelize", graph, f"--plan={path}")
    check(f"mesh {row['mesh']}" in local or row["mesh"] in local, f"{path.name}: the local graph has another mesh")
    sequences = SEQUENCES // (row["dp_replicate"] * row["dp_shard"])
    if row["pp"] == 1:
        sequences //= row["micro_batches"]
    planned = json.loads(run(heddle, "plan", *MODEL, f"--training.local_batch_size={sequences}", f"--plan={path}", "--json"))
    check(planned["ranks"] == DEVICES, f"{path.name}: heddle plan sees {planned['ranks']} ranks")


def check_prices(heddle, folder):
    """What the search ranks is what `heddle sim` states for the job, whatever runs the step."""
    for execution in ("heddle", "eager", "compiled"):
        jobs = folder / execution
        found = json.loads(run(heddle, "search", *MODEL, f"--devices={DEVICES}", f"--training.global_batch_size={SEQUENCES}",
                               "--cluster=h200-8x", f"--runtime.execution={execution}", f"--write-jobs={jobs}", "--json"))
        front = found["front"]
        check(found["execution"] == execution, f"searched for {found['execution']}, not {execution}")
        check(any(row["micro_batches"] > 1 for row in front), f"{execution}: no plan has several micro-batches")
        steps = [row["step_ms"] for row in front]
        check(steps == sorted(steps), f"{execution}: the front is not in order of time: {steps}")
        for number, row in enumerate(front, 1):
            step = json.loads(run(heddle, "sim", f"--config={jobs / f'{number}.toml'}", "--json"))
            check(step["execution"] == execution, f"job {number} is for {step['execution']}, not {execution}")
            keys = ["step_ms", "step_ms_low", "step_ms_high", "exposed_ms", "peak_bytes"]
            if row["pp"] > 1:
                # The other keys of `sim` are those of the slowest coordinate.
                keys = ["step_ms", "peak_bytes"]
                step["peak_bytes"] = max(one["peak_bytes"] for one in step["pipeline"]["coordinates"])
            for key in keys:
                # Times of `sim` are whole nanoseconds.
                check(abs(step[key] - row[key]) <= 1e-6,
                      f"{execution}, job {number}: {key} is {row[key]}, but sim states {step[key]}")


def loss(heddle, folder, *flags):
    """Returns the loss of the first step, on short sequences."""
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    run(heddle, "train", "--training.seq_len=16", "--training.steps=1", f"--metrics.jsonl={metrics}", *flags)
    return json.loads(metrics.read_text().splitlines()[0])["loss"]


def check_training(heddle, folder, number, row):
    """A plan of placements only leaves the batch to flags. One rank with the whole batch has the
    same loss."""
    ranks = row["dp_replicate"] * row["dp_shard"]
    plan = folder / "placements.plan"
    decisions = ("batch", "norms", "cluster", "budget", "pipeline", "reshard", "checkpoint", "keep")
    lines = (folder / f"{number}.plan").read_text().splitlines(keepends=True)
    plan.write_text("".join(line for line in lines if not line.startswith(decisions)))
    there = loss(heddle, folder, f"--plan={plan}", "--training.local_batch_size=1")
    plan.unlink()
    alone = loss(heddle, folder, f"--training.local_batch_size={ranks}")
    check(abs(there - alone) < 1e-5, f"plan {number} trains with a loss of {there}, one rank with {alone}")


def main():
    heddle = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        page = folder / "search.html"
        answer = json.loads(run(heddle, "search", *MODEL, f"--devices={DEVICES}", f"--training.global_batch_size={SEQUENCES}",
                                f"--write-plans={folder}", f"--html={page}", "--json"))
        front = answer["front"]
        check(answer["best"] == front[0], "the best is not the first of the front")
        check(len(front) > 1, "the front has one plan: nothing is compared")
        check(len(list(folder.glob("*.plan"))) == len(front), "there are not as many plans as rows")
        for number, row in enumerate(front, 1):
            check_plan(heddle, folder, number, row)
        # A pipeline divides its batch into micro-batches.
        check_training(heddle, folder, *next((n, row) for n, row in enumerate(front, 1) if row["pp"] == 1))
        check_prices(heddle, folder)
        html = page.read_text()
        data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])
        for shown, row in zip(data["plans"], front, strict=True):
            check(shown["command"] == row["command"], f"the page has another command: {shown}")
            check(shown["peak"] == row["peak_bytes"], f"the page has another peak: {shown}")
        check(data["why"].startswith("Plan 1 processes "), f"the page gives no reason: {data['why']}")
        check(not re.search(r"(?:src|href)\s*=", html), "the page needs other files")


if __name__ == "__main__":
    main()
