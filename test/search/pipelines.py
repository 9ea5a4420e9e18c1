#!/usr/bin/env python3
"""A search finds a pipeline where networks are slow, and states its figures where none wins. The
job of a pipeline runs as the search predicts. Results do not depend on the number of threads.

usage: pipelines.py HEDDLE"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FROZEN = pathlib.Path(__file__).resolve().parents[1] / "golden/frozen.json"
SEARCH = ["search", "--model=llama3", "--flavor=8B", "--training.seq_len=4096", "--devices=16",
          "--training.global_batch_size=64", "--parallelism.auto=false"]


def run(command, folder, cores=None):
    limit = (lambda: os.sched_setaffinity(0, cores)) if cores else None
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, preexec_fn=limit)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nexit {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def check(condition, what):
    if not condition:
        sys.exit(what)


def write_cluster(folder, name, rate):
    cluster = json.loads(FROZEN.read_text())
    cluster["name"] = name
    cluster["links"]["network"]["gb_per_s"] = rate
    (folder / f"{name}.json").write_text(json.dumps(cluster))


def check_win(heddle, folder):
    write_cluster(folder, "slow", 2)
    search = [heddle, *SEARCH, "--cluster=slow.json", "--write-jobs=jobs", "--html=page.html"]
    answer = json.loads(run([*search, "--json"], folder))
    best = answer["best"]
    check(best["pp"] > 1 and best["mesh"].startswith("[pp="), f"no pipeline wins: {best}")
    check(0 < best["bound_ms"] <= best["step_ms"], f"a bound above the step: {best}")
    check(abs(best["step_ms"] / best["bound_ms"] - 1 - best["gap"]) < 1e-9, f"another gap: {best}")
    own = answer["best_pipeline"]
    check(own["is_best"] and own["simulated"] and own["step_ms"] == best["step_ms"], f"{own}")
    pipelines = [(n, row) for n, row in enumerate(answer["front"], 1) if row["pp"] > 1]
    for n, row in pipelines:
        check_job(heddle, folder, n, row)
    for row in answer["front"]:
        check((row["pp"] > 1) == (row["schedule"] is not None), f"a schedule of {row}")
        check((row["pp"] > 1) == (row["gap"] is not None), f"a gap of {row}")
    check("is plan 1" in (folder / "page.html").read_text(), "the page does not name the pipeline")
    # One thread.
    again = json.loads(run([*search, "--json"], folder, cores=[min(os.sched_getaffinity(0))]))
    for one in (answer, again):
        del one["seconds"]
    check(answer == again, f"one thread finds another answer:\n{answer}\n{again}")


def check_job(heddle, folder, n, row):
    stages = "/".join(str(first) for first in row["stages"])
    plan = (folder / f"jobs/{n}.plan").read_text()
    statement = f'stages {stages} schedule "{row["schedule"]}" in {row["micro_batches"]} micro-batches'
    check(statement in plan, f"no `{statement}` in\n{plan}")
    simulated = json.loads(run([heddle, "sim", f"--config=jobs/{n}.toml", "--json"], folder))
    for key, is_near in [("step_ms", 1e-3), ("peak_bytes", 0)]:
        peaks = [one["peak_bytes"] for one in simulated["pipeline"]["coordinates"]]
        value = max(peaks) if key == "peak_bytes" else simulated[key]
        check(abs(value - row[key]) <= is_near * row[key],
              f"jobs/{n}.toml: {key} is {value}, the search found {row[key]}")
    bound = simulated["pipeline"]["bound_ms"]
    check(abs(bound - row["bound_ms"]) <= 1e-3 * bound, f"jobs/{n}.toml has the bound {bound}")


def check_loss(heddle, folder):
    write_cluster(folder, "fast", 50)
    text = run([heddle, *SEARCH, "--cluster=fast.json"], folder)
    check(not re.search(r"^1 +pp ", text, re.M), f"a pipeline wins:\n{text}")
    said = re.search(r"^The best pipeline, pp .* more than plan 1\. .* \(gap [\d.]+ %\)\.$", text,
                     re.M)
    check(said, f"no figures of a pipeline in\n{text}")


def main():
    heddle = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_win(heddle, folder)
        check_loss(heddle, folder)


if __name__ == "__main__":
    main()
