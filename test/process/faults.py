#!/usr/bin/env python3
"""Four processes train, and one of them is killed, stopped, or has another job than the others.

All others must end by themselves, within the time-out and a little more, with exit code 4 or 1 and a message that names the rank.

    faults.py HEDDLE [--trials=50] [--seed=1]
"""
import argparse
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time

RANKS = 4
TIMEOUT = 5
# Starting a process that links libtorch takes seconds on a machine that is busy.
SLACK = 25
FLAGS = ["--model=llama3", "--flavor=debugmodel", "--model.n_layers=1", "--training.seq_len=16", "--training.local_batch_size=1",
         "--precision=f32", "--against=none", f"--parallelism.data_parallel_shard_degree={RANKS}",
         f"--runtime.timeout={TIMEOUT}"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(heddle, rank, port, flags):
    environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                       MASTER_PORT=str(port))
    environment.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    return subprocess.Popen([heddle, "verify", *FLAGS, *flags], env=environment, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def one_trial(heddle, chance):
    """What went wrong; nothing if all is well."""
    fate = chance.choice(["killed", "stopped", "other job"])
    victim = chance.randrange(RANKS)
    delay = chance.uniform(0.2, 6.0)
    port = free_port()
    ranks = [start(heddle, rank, port, ["--training.steps=100000",
                                        f"--debug.seed={2 if fate == 'other job' and rank == victim else 1}"])
             for rank in range(RANKS)]
    what = f"rank {victim} is {fate} after {delay:.2f} s"
    try:
        if fate != "other job":
            time.sleep(delay)
            os.kill(ranks[victim].pid, signal.SIGKILL if fate == "killed" else signal.SIGSTOP)
        end = time.monotonic() + TIMEOUT + SLACK
        for rank, process in enumerate(ranks):
            if rank == victim and fate != "other job":
                continue
            try:
                _, said = process.communicate(timeout=max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                return f"{what}: rank {rank} hangs"
            if process.returncode not in (1, 4):
                return f"{what}: rank {rank} ends with {process.returncode}: {said}"
            # An odd one among the others may be told that it is rank 0 who differs.
            if not re.search(rf"\b{victim}\b", said) and not (fate == "other job" and "differs from rank 0" in said):
                return f"{what}: rank {rank} does not name it: {said}"
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle")
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    wrong = 0
    for trial in range(options.trials):
        problem = one_trial(options.heddle, chance)
        if problem:
            wrong += 1
            print(f"trial {trial}: {problem}")
    print(f"{options.trials} trials, {wrong} of them wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
