#!/usr/bin/env python3
"""Stands in for Slurm on one machine: `sbatch FILE`, `srun [OPTIONS] COMMAND` and `scontrol show
hostnames LIST`, by the name under which it is called. It runs every task here and gives it the
variables that Slurm sets. It refuses options that it does not know.

`sbatch` runs the script and waits for it. When `srun` gets SIGTERM, all tasks get it, as with
`#SBATCH --signal`."""

import os
import re
import signal
import subprocess
import sys
import time

# Of `srun`, `sbatch` or a line #SBATCH. Those without a use here only have to exist.
OPTIONS = {"job-name", "nodes", "ntasks-per-node", "signal", "kill-on-bad-exit", "gpus-per-node", "cpus-per-task", "time",
           "exclusive", "output"}


def options_of(words):
    found = {}
    while words and words[0].startswith("-"):
        match = re.fullmatch(r"--([a-z-]+)(?:=(.*))?", words.pop(0))
        if not match or match[1] not in OPTIONS:
            sys.exit(f"slurm_commands.py: unknown option {match and match[1]}")
        found[match[1]] = match[2]
    return found


def sbatch(script):
    with open(script) as file:
        options = options_of([line.split(maxsplit=1)[1].strip() for line in file if line.startswith("#SBATCH ")])
    nodes = int(options["nodes"])
    variables = {"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": str(nodes), "SLURM_NNODES": str(nodes),
                 "SLURM_JOB_NODELIST": f"127.0.0.[1-{nodes}]", "SLURM_NODELIST": f"127.0.0.[1-{nodes}]",
                 "SLURM_NTASKS_PER_NODE": options["ntasks-per-node"], "SLURM_JOB_NAME": options["job-name"]}
    os.execvpe("bash", ["bash", script], {**os.environ, **variables})


def srun(words):
    options = options_of(words)
    nodes = int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
    per_node = int(options.get("ntasks-per-node") or os.environ["SLURM_NTASKS_PER_NODE"])
    tasks = []
    signal.signal(signal.SIGTERM, lambda *_: [task.terminate() for task in tasks])
    for number in range(nodes * per_node):
        variables = {"SLURM_PROCID": number, "SLURM_NTASKS": nodes * per_node, "SLURM_LOCALID": number % per_node,
                     "SLURM_NODEID": number // per_node, "SLURM_STEP_ID": 0}
        tasks.append(subprocess.Popen(words, env={**os.environ, **{name: str(value) for name, value in variables.items()}}))
    codes = [None] * len(tasks)
    while None in codes:
        codes = [task.poll() for task in tasks]
        if options.get("kill-on-bad-exit") == "1" and any(codes):
            for task in tasks:
                task.kill()
        time.sleep(0.02)
    # The highest exit code, as of a shell.
    sys.exit(max(code if code >= 0 else 128 - code for code in codes))


def scontrol(words):
    if words[:2] != ["show", "hostnames"] or len(words) != 3:
        sys.exit(f"slurm_commands.py: unknown request {words}")
    prefix, first, last = re.fullmatch(r"(.*)\[(\d+)-(\d+)\]", words[2]).groups()
    print("\n".join(f"{prefix}{number}" for number in range(int(first), int(last) + 1)))


if __name__ == "__main__":
    name = os.path.basename(sys.argv[0])
    if name == "sbatch":
        sbatch(sys.argv[1])
    elif name == "srun":
        srun(sys.argv[1:])
    else:
        scontrol(sys.argv[1:])
