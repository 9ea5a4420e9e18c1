#!/usr/bin/env python3
"""Trains with four processes, one of which is killed, stopped, or has another job than the
others. Half of the jobs are pipelines.

All others must end on their own, with exit code 4 or 1 and a message that names the rank. The
same holds for errors at the start: ranks with other flags or other weights, a missing rank, two
processes with the same rank, and a program on the port that does not answer.

    faults.py HEDDLE [--trials=50] [--seed=1] [--all]

--all tries every flag of OTHER_FLAGS, and also kills and stops ranks while they start. Without
it, a few flags are tried, and faults happen after the first step, when every rank has joined:
then the result does not depend on the speed of the machine."""

import argparse
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

RANKS = 4
TIMEOUT = 5
# For cases that must end long before a timeout.
LONG_TIMEOUT = 600
# A timeout in seconds. Correct runs are much faster, even on a busy machine.
HANG = 300
JOB = ["--model=llama3", "--flavor=debugmodel", "--training.seq_len=16", "--precision=f32", "--against=none"]
FLAGS = [*JOB, "--model.n_layers=1", "--training.local_batch_size=1", f"--parallelism.data_parallel_shard_degree={RANKS}"]
# Each rank of a stage exchanges tensors with one of the other stage.
PIPELINE_FLAGS = [*JOB, "--model.n_layers=2", "--training.local_batch_size=2",
                  "--parallelism.data_parallel_shard_degree=2", f"--parallelism.pipeline_parallel_degree={RANKS // 2}"]


# A small job of two ranks, and flags that only one of them gets.
SMALL = [
    "--model.n_layers=1",
    "--model.dim=32",
    "--model.n_heads=2",
    "--model.n_kv_heads=2",
    "--model.ffn_dim=64",
    "--model.vocab_size=257",
    "--training.seq_len=16",
    "--training.steps=4",
    "--parallelism.data_parallel_shard_degree=2",
]
OTHER_FLAGS = [
    "--lr_scheduler.warmup_steps=5",
    "--hashes=hashes.jsonl",
    "--fault.on_spike=skip",
    "--checkpoint.interval=2",
    "--debug.deterministic=false",
    "--lr_scheduler.decay=linear",
    "--lr_scheduler.min_lr_factor=0.5",
    "--lr_scheduler.decay_ratio=0.5",
    "--fault.on_nan=skip",
    "--fault.spike_factor=2",
    "--fault.max_restarts=1",
    "--validation.interval=2",
    "--validation.steps=3",
    "--checkpoint.keep=1",
    "--checkpoint.async=false",
    "--checkpoint.folder=elsewhere",
    "--checkpoint.load_step=1",
    "--optimizer.lr=1e-3",
    "--optimizer.beta1=0.8",
    "--optimizer.eps=1e-7",
    "--optimizer.weight_decay=0.2",
    "--optimizer.implementation=for-loop",
    "--training.max_norm=2",
    "--training.steps=5",
    "--training.shuffle=false",
    "--training.dataset=synthetic",
    "--training.global_batch_size=4",
    "--training.local_batch_size=2",
    "--training.z_loss=1e-4",
    "--debug.seed=7",
    "--precision=bf16",
    "--runtime.timeout=9",
    "--compile.prefetch_forward=3",
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(heddle, rank, port, flags, **options):
    environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                       MASTER_PORT=str(port))
    environment.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    return subprocess.Popen([heddle, "verify", *flags], env=environment, stdin=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, **options)


def one_trial(heddle, job, chance, early):
    """Returns the error, or None. `early` faults may happen while ranks
    start."""
    fate = chance.choice(["killed", "stopped", "other job"])
    victim = chance.randrange(RANKS)
    early = early and chance.random() < 0.5
    delay = chance.uniform(0.2, 6.0) if early else chance.uniform(0, 0.5)
    port = free_port()
    with tempfile.TemporaryFile("w+") as progress:
        return one_fault(heddle, job, fate, victim, early, delay, port, progress)


def one_fault(heddle, job, fate, victim, early, delay, port, progress):
    timeout = LONG_TIMEOUT if fate == "other job" else TIMEOUT if early else 2 * TIMEOUT
    ranks = [start(heddle, rank, port, [*job, "--training.steps=100000", f"--runtime.timeout={timeout}",
                                        f"--debug.seed={2 if fate == 'other job' and rank == victim else 1}"],
                   stdout=subprocess.DEVNULL if rank else progress)
             for rank in range(RANKS)]
    what = f"rank {victim} is {fate} {delay:.2f} s after {'the start' if early else 'the first step'}"
    try:
        if fate != "other job":
            # Rank 0 prints a line after each step.
            while not early and ranks[0].poll() is None and os.fstat(progress.fileno()).st_size == 0:
                time.sleep(0.02)
            time.sleep(delay)
            os.kill(ranks[victim].pid, signal.SIGKILL if fate == "killed" else signal.SIGSTOP)
        end = time.monotonic() + HANG
        for rank, process in enumerate(ranks):
            if rank == victim and fate != "other job":
                continue
            try:
                _, said = process.communicate(timeout=max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                return f"{what}: rank {rank} hangs"
            if process.returncode not in (1, 4):
                return f"{what}: rank {rank} ends with {process.returncode}: {said}"
            # The rank that differs may be told that rank 0 differs from the others.
            if not re.search(rf"\b{victim}\b", said) and not (fate == "other job" and "differs from rank 0" in said):
                return f"{what}: rank {rank} does not name it: {said}"
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return None


class Ranks:
    """Processes of `heddle train` with RANK set, each in a folder of its own."""

    def __init__(self, heddle, folder, world, port=None, timeout=TIMEOUT):
        self.heddle, self.folder, self.world, self.timeout = (
            os.path.abspath(heddle),
            folder,
            world,
            timeout,
        )
        self.port = port or free_port()
        self.processes = []

    def start(self, rank, *flags):
        environment = dict(
            os.environ,
            RANK=str(rank),
            WORLD_SIZE=str(self.world),
            LOCAL_RANK=str(rank),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(self.port),
        )
        environment.pop("TORCHELASTIC_USE_AGENT_STORE", None)
        folder = os.path.join(self.folder, str(len(self.processes)))
        os.makedirs(folder, exist_ok=True)
        # The later of two flags of one name applies.
        every = {
            flag.split("=")[0]: flag
            for flag in [*SMALL, f"--runtime.timeout={self.timeout}", *flags]
        }
        said = open(os.path.join(folder, "said"), "w+")
        process = subprocess.Popen(
            [self.heddle, "train", *every.values()],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            text=True,
        )
        self.processes.append((process, said))

    def ends(self):
        """Exit code and standard error of each process; the code is None if it hangs."""
        end = time.monotonic() + HANG
        ended = []
        for process, said in self.processes:
            try:
                process.wait(timeout=max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            ended.append((process.returncode, self.text(said)))
        return ended

    @staticmethod
    def text(said):
        said.seek(0)
        return said.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process, said in self.processes:
            process.kill()
            process.wait()
            said.close()


def other_flag(heddle, folder, flag):
    """One of two ranks has another flag: both end before the first step, and name rank and flag."""
    with Ranks(heddle, folder, 2, timeout=LONG_TIMEOUT) as ranks:
        for rank in range(2):
            ranks.start(rank, f"--checkpoint.folder={folder}/saved", *([flag] if rank == 1 else []))
        ended = ranks.ends()
    name = flag.split("=")[0]
    for code, said in ended:
        if code != 4 or "rank 1 differs from rank 0" not in said or name not in said:
            return f"{flag} on rank 1 alone: exit code {code}: {said}"
    if os.path.exists(f"{folder}/saved") and any(
        entry.startswith("step-") for entry in os.listdir(f"{folder}/saved")
    ):
        return f"{flag} on rank 1 alone: a step was saved"
    return None


def own_flags(heddle, folder):
    """Flags about a rank's own output may differ."""
    with Ranks(heddle, folder, 2, timeout=LONG_TIMEOUT) as ranks:
        ranks.start(0, "--metrics.jsonl=log.jsonl")
        ranks.start(1, "--remarks", "--runtime.threads=2")
        ended = ranks.ends()
    return None if [code for code, _ in ended] == [0, 0] else f"flags of a rank's own: {ended}"


def other_weights(heddle, folder):
    """Two files with different contents at the same path on two ranks."""
    for seed in (0, 1):
        target = f"{folder}/{seed}"
        subprocess.run(
            [heddle, "train", *SMALL, f"--debug.seed={seed}", f"--checkpoint.folder={target}/run"],
            check=True,
            capture_output=True,
        )
        subprocess.run(
            [heddle, "export", f"--hf={target}/weights", f"--checkpoint={target}/run"],
            check=True,
            capture_output=True,
        )
    with Ranks(heddle, folder, 2, timeout=LONG_TIMEOUT) as ranks:
        for rank in range(2):
            ranks.start(rank, "--checkpoint.initial_load_path=weights")
        ended = ranks.ends()
    for code, said in ended:
        if (
            code != 4
            or "ranks 1 and 0 begin with different tensors, both from weights" not in said
        ):
            return f"other weights at one path: exit code {code}: {said}"
    return None


def silent_server(heddle, folder):
    """A program on the port accepts connections and does not answer."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with Ranks(heddle, folder, 2, port=server.getsockname()[1]) as ranks:
            ranks.start(1)
            code, said = ranks.ends()[0]
    return (
        None
        if code == 4 and "got no answer from the store" in said
        else f"a silent server: exit code {code}: {said}"
    )


def lone_rank(heddle, folder, rank):
    """A single rank reports after 3 s for which ranks it waits, and ends after the timeout."""
    with Ranks(heddle, folder, 2) as ranks:
        ranks.start(rank)
        code, said = ranks.ends()[0]
    awaited = "rank 1" if rank == 0 else "which rank 0 opens"
    well = code == 4 and re.search(
        rf"^rank {rank} has waited 3 s for .*{awaited}; it gives up after {TIMEOUT} s$", said, re.M
    )
    return None if well else f"rank {rank} alone: exit code {code}: {said}"


def doubled_rank(heddle, folder, numbers):
    """Two processes have one rank: every process reports it, long before the timeout."""
    double = max(numbers, key=numbers.count)
    with Ranks(heddle, folder, len(numbers), timeout=LONG_TIMEOUT) as ranks:
        for rank in numbers:
            ranks.start(rank, f"--parallelism.data_parallel_shard_degree={len(numbers)}")
        ended = ranks.ends()
    for code, said in ended:
        if code != 4 or f"two processes have rank {double}: process" not in said:
            return f"ranks {numbers}: exit code {code}: {said}"
    return None


def starts(heddle, chance, every):
    """Errors at the start. Yields a message for each that goes wrong."""
    flags = OTHER_FLAGS if every else OTHER_FLAGS[:3] + chance.sample(OTHER_FLAGS[3:], 2)
    cases = [lambda folder, flag=flag: other_flag(heddle, folder, flag) for flag in flags]
    cases += [
        lambda folder, case=case: case(heddle, folder)
        for case in (own_flags, other_weights, silent_server)
    ]
    cases += [
        lambda folder, numbers=numbers: doubled_rank(heddle, folder, numbers)
        for numbers in ([0, 1, 1], [0, 0, 2])
    ]
    cases += [lambda folder, rank=rank: lone_rank(heddle, folder, rank) for rank in (0, 1)]
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            yield case(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle")
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    wrong = 0
    count = 0
    for problem in starts(options.heddle, chance, options.all):
        count += 1
        if problem:
            wrong += 1
            print(f"start: {problem}", flush=True)
    for trial in range(options.trials):
        job = PIPELINE_FLAGS if trial % 2 else FLAGS
        problem = one_trial(options.heddle, job, chance, options.all)
        if problem:
            wrong += 1
            print(f"trial {trial}{' of a pipeline' if trial % 2 else ''}: {problem}")
    print(f"{count} starts and {options.trials} trials, {wrong} of them wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
