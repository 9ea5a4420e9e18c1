#!/usr/bin/env python3
"""Profiles of `heddle train --profile` on rank processes, read by `heddle report` and
`heddle calibrate`.

    profiles.py HEDDLE
"""

import glob
import json
import os
import signal
import subprocess
import sys
import tempfile

from runs import HANG, MESHES, Failed, check, children_of, command, train

# Four sequences on a mesh of two axes: gathers, reductions of gradients and of activations.
GRID = [
    "--parallelism.data_parallel_shard_degree=2",
    "--parallelism.tensor_parallel_degree=2",
    "--model.dim=64",
    "--model.n_heads=4",
    "--model.n_kv_heads=2",
    "--model.ffn_dim=96",
    "--training.local_batch_size=2",
]


def run_command(*args, expect=0):
    run = subprocess.run(args, capture_output=True, text=True, timeout=HANG, check=False)
    if run.returncode != expect:
        raise Failed(f"{' '.join(args)}: exit code {run.returncode}\n{run.stdout}{run.stderr}")
    return run


def profiles(heddle, folder, name, flags, ranks):
    saved = os.path.join(folder, name)
    flags = [*flags, f"--checkpoint.folder={saved}", f"--nproc={ranks}", "--profile=3:3"]
    train(heddle, flags, 6)
    traces = os.path.join(saved, "profile")
    files = sorted(os.listdir(traces))
    expected = [f"steps_3-5_rank_{rank}.json" for rank in range(ranks)]
    check(files == ["simulated.json", *expected], f"{name}: a trace of each rank: {files}")
    page = os.path.join(folder, "real.html")
    report = json.loads(run_command(heddle, "report", traces, f"--html={page}", "--json").stdout)
    check([rank["steps"] for rank in report["ranks"]] == [3] * ranks, f"{name}: three steps each")
    classes = {row["class"]: row for row in report["classes"]}
    for kind in ("matmul", "collective", "wait", "optimizer"):
        both = classes[kind]["measured_ms"] > 0 and classes[kind]["simulated_ms"] is not None
        check(both, f"{name}: {kind} is measured and simulated: {classes[kind]}")
    busy = max(rank["step_ms"] for rank in report["ranks"])
    host = sum(row["measured_ms"] for kind, row in classes.items() if kind != "collective")
    check(0.3 * busy < host < 1.05 * busy, f"{name}: ops and waits fill a step: {host}, {busy}")
    # Packed payloads of transfers are not values of the graph.
    check(
        1 < report["peak_bytes"] / report["simulated_peak_bytes"] < 3,
        f"{name}: the peak is {report['peak_bytes']}, simulated {report['simulated_peak_bytes']}",
    )
    with open(page, encoding="utf-8") as text:
        html = text.read()
    check(all(file in html for file in files), f"{name}: the page shows all ranks")
    graph = os.path.join(folder, f"{name}.hd")
    shape = [flag for flag in command(heddle, flags, 6)[2:]
             if flag.startswith(("--model", "--training.seq", "--training.local", "--parallel", "--flavor"))]
    run_command(heddle, "plan", *shape, "--runtime.device=cpu", "-o", graph)
    fitted = json.loads(
        run_command(
            heddle, "calibrate", *(os.path.join(traces, file) for file in expected),
            f"--graph={graph}", "--cluster=cpu", "--json",
        ).stdout
    )
    check(fitted["steps"] == 3 * ranks, f"{name}: calibrate reads the steps of all ranks")
    products = fitted["errors"][0]
    check(
        products["name"] == "products"
        and abs(products["after_ms"] - products["measured_ms"])
        <= abs(products["before_ms"] - products["measured_ms"]),
        f"{name}: the fit brings products closer: {products}",
    )
    # A folder that lacks a rank, or has a part of a trace, is refused.
    last = os.path.join(traces, expected[-1])
    with open(last, encoding="utf-8") as text:
        whole = text.read()
    with open(last, "w", encoding="utf-8") as text:
        text.write(whole[: len(whole) // 2])
    said = run_command(heddle, "report", traces, expect=1).stderr
    check(f"{expected[-1]}:" in said, f"{name}: half a trace is refused with its position")
    os.remove(last)
    said = run_command(heddle, "report", traces, expect=1).stderr
    check(f"none of rank {ranks - 1}" in said, f"{name}: a missing rank is named: {said}")


def a_killed_rank_leaves_no_trace(heddle, folder):
    """Ranks that fail while they are traced write nothing that a report accepts."""
    saved = os.path.join(folder, "killed")
    flags = [*MESHES["dp2"], f"--checkpoint.folder={saved}", "--nproc=2", "--profile=2:90000",
             "--runtime.timeout=10"]
    run = subprocess.Popen(command(heddle, flags, 100000), stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True)
    try:
        for line in run.stdout:
            if "step:" in line and " 4 " in line:
                break
        os.kill(children_of(run.pid)[-1], signal.SIGKILL)
        run.communicate(timeout=HANG)
    finally:
        run.kill()
    check(run.returncode == 4, f"the job ends with exit code 4: {run.returncode}")
    traces = os.path.join(saved, "profile")
    check(not glob.glob(os.path.join(traces, "*.json")), "there is no trace of a killed job")
    os.makedirs(traces, exist_ok=True)
    said = run_command(heddle, "report", traces, expect=1).stderr
    check("has no traces" in said, f"and the report says so: {said}")


def main():
    heddle = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        try:
            profiles(heddle, folder, "dp2", MESHES["dp2"], 2)
            profiles(heddle, folder, "grid", GRID, 4)
            a_killed_rank_leaves_no_trace(heddle, folder)
        except Failed as failed:
            print(f"FAILED: {failed}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
