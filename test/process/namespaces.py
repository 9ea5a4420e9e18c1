#!/usr/bin/env python3
"""Trains on several machines, which are network namespaces of this one (see machines.py).

    namespaces.py HEDDLE [--all] [--seed=1]

Delays, loss, other orders and short interruptions must not change a bit. If a machine is cut off or
lost, every rank must end with exit code 4 and name it, and the last checkpoint must resume with the
bits of an undisturbed run. Without --all: a clean network, delays, and a machine that is cut off.
Skipped with exit code 77 where namespaces cannot be made."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from faults import HANG, SMALL
from machines import DEVICE, Network, inside_own_namespaces

# By machine: its ranks.
RANKS = [[0, 1], [2], [3]]
WORLD = sum(map(len, RANKS))
FLAGS = [*SMALL, f"--parallelism.data_parallel_shard_degree={WORLD}", "--precision=f32", "--debug.seed=5",
         "--lr_scheduler.decay=none", "--lr_scheduler.warmup_steps=0"]
STEPS = 6
ENDLESS = 100000
TIMEOUT = 6
# For runs that end long before a timeout.
LONG_TIMEOUT = 120
# After the timeout, ranks look which others are alive, and rank 0 waits until they have ended.
SLACK = 20


class Failed(Exception):
    pass


def check(same, what, why=""):
    if not same:
        raise Failed(f"{what}\n{why}")
    print(f"ok: {what}", flush=True)


def command(heddle, flags):
    """The later of two flags of one name applies."""
    return [heddle, "train", *{flag.split("=")[0]: flag for flag in [*FLAGS, *flags]}.values()]


def in_one_process(heddle, flags):
    run = subprocess.run(command(heddle, flags), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if run.returncode:
        raise Failed(f"in one process: exit code {run.returncode}: {run.stderr}")
    return run


class Job:
    """The ranks of a job on the machines, with the variables that torchrun sets."""

    def __init__(self, heddle, folder, network, flags, timeout=LONG_TIMEOUT, environment=None, ranks=None):
        self.folder = tempfile.mkdtemp(dir=folder)
        self.network = network
        # Rank: machine, process.
        self.processes = {}
        for number, own in enumerate(RANKS):
            for rank in own:
                if ranks is None or rank in ranks:
                    self.start(heddle, number, rank, [f"--runtime.timeout={timeout}", *flags], environment or {})
        self.began = time.monotonic()

    def start(self, heddle, number, rank, flags, environment):
        variables = {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(RANKS[number].index(rank)),
                     "MASTER_ADDR": self.network.machines[0].address, "MASTER_PORT": "29500"}
        with open(self.path(rank, "out"), "w") as out, open(self.path(rank, "err"), "w") as err:
            self.processes[rank] = number, self.network.machines[number].start(
                command(heddle, flags), env={**os.environ, **variables, **environment}, stdout=out, stderr=err)

    def path(self, rank, stream):
        return os.path.join(self.folder, f"{rank}.{stream}")

    def said(self, rank, stream="err"):
        with open(self.path(rank, stream)) as file:
            return file.read()

    def all_said(self):
        return "\n".join(f"rank {rank}: {process.poll()}: {self.said(rank)}"
                         for rank, (_, process) in self.processes.items())

    def wait_for_step(self, step):
        end = time.monotonic() + HANG
        while not re.search(rf"^step: +{step}\b", self.said(0, "out"), re.M):
            if self.processes[0][1].poll() is not None or time.monotonic() > end:
                raise Failed(f"no step {step}:\n{self.all_said()}")
            time.sleep(0.02)

    def kill(self, number):
        for machine, process in self.processes.values():
            if machine == number:
                process.send_signal(signal.SIGKILL)

    def ends(self):
        """By rank: its exit code, or None if it hangs."""
        end = time.monotonic() + HANG
        codes = {}
        for rank, (_, process) in self.processes.items():
            try:
                codes[rank] = process.wait(timeout=max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                codes[rank] = None
        return codes

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _, process in self.processes.values():
            process.kill()
            process.wait()


class Trials:
    def __init__(self, heddle, folder, seed):
        self.heddle = os.path.abspath(heddle)
        self.folder = folder
        self.seed = seed
        self.reference = self.file("reference.jsonl")
        in_one_process(self.heddle, [f"--hashes={self.reference}", f"--training.steps={STEPS}"])

    def file(self, name):
        return os.path.join(tempfile.mkdtemp(dir=self.folder), name)

    def network(self):
        return Network(tempfile.mkdtemp(dir=self.folder), len(RANKS), self.seed)

    def job(self, network, *flags, **options):
        return Job(self.heddle, self.folder, network, flags, **options)

    def same_bits(self, what, network, interrupt=None, wanted=(), **options):
        """Trains on the network; the hashes must be those of one process. `wanted` must have happened to
        packets."""
        hashes = self.file("hashes.jsonl")
        with self.job(network, f"--hashes={hashes}", f"--training.steps={STEPS}", **options) as job:
            if interrupt:
                interrupt(job)
            codes = job.ends()
            check(set(codes.values()) == {0}, f"{what}: all ranks train", job.all_said())
        counts = network.wire.counts
        with open(hashes) as got, open(self.reference) as expected:
            check(got.read() == expected.read() and all(counts[name] for name in wanted),
                  f"{what}: the bits of one process; packets: {counts}")

    def clean(self):
        with self.network() as network:
            self.same_bits("a clean network", network)

    def delay(self):
        with self.network() as network:
            network.wire.delay, network.wire.jitter = 0.005, 0.002
            self.same_bits("packets that take 3 to 7 ms", network)

    def loss(self):
        with self.network() as network:
            network.wire.loss = 0.01
            self.same_bits("one of 100 packets is lost", network, wanted=["lost"])

    def disorder(self):
        with self.network() as network:
            network.wire.twice, network.wire.late = 0.02, 0.05
            self.same_bits("packets that come twice and in another order", network, wanted=["doubled", "late"])

    def short_partition(self):
        """TCP sends again after 0.2 s, 0.4 s, ... so it resumes at most 2 s after a cut of 2 s."""
        with self.network() as network:
            def interrupt(job):
                job.wait_for_step(1)
                network.wire.cut(2)
                time.sleep(2)
                network.wire.heal()
            self.same_bits("a machine that is cut off for 2 s", network, interrupt, wanted=["cut"])

    def ipv6(self):
        with self.network() as network:
            self.same_bits("MASTER_ADDR is an IPv6 address", network,
                           environment={"MASTER_ADDR": network.machines[0].address6})

    def lost(self, what, fault, victims, link_down=False):
        """A fault during a step ends all ranks. Those outside `victims` name one of them and its machine. The
        run then resumes."""
        saved = self.file("saved")
        flags = [f"--checkpoint.folder={saved}", "--checkpoint.interval=2"]
        with self.network() as network:
            with self.job(network, *flags, f"--training.steps={ENDLESS}", timeout=TIMEOUT) as job:
                job.wait_for_step(4)
                killed = fault(job, network) or set()
                begin = time.monotonic()
                codes = job.ends()
                took = time.monotonic() - begin
                check(all(code == 4 for rank, code in codes.items() if rank not in killed),
                      f"{what}: every rank ends with code 4", job.all_said())
                check(took < TIMEOUT + SLACK, f"{what}: after {took:.1f} s, with a timeout of {TIMEOUT} s", job.all_said())
                for rank in codes.keys() - killed:
                    # The ranks that are cut off only know that they do not reach the store of rank 0.
                    named = victims if rank not in victims else [2, 3] if 0 in victims else [0]
                    pattern = rf"ranks? [\d, ]*\b({'|'.join(map(str, named))})\b[\d, ]* on node\d"
                    names = re.search(pattern, job.said(rank))
                    check(names, f"{what}: rank {rank} names {names and names[0]}", job.said(rank))
        self.resumes(what, flags, saved)

    def resumes(self, what, flags, saved):
        ran = subprocess.run([self.heddle, "checkpoint", "verify", saved], capture_output=True, text=True, check=False)
        check(ran.returncode == 0, f"{what}: the checkpoint is whole", ran.stdout + ran.stderr)
        steps = [int(name[5:]) for name in os.listdir(saved) if re.fullmatch(r"step-\d+", name)]
        last = max(steps)
        again, alone = self.file("again.jsonl"), self.file("alone.jsonl")
        with self.network() as network, self.job(
                network, *flags, f"--hashes={again}", f"--training.steps={last + 2}") as job:
            check(set(job.ends().values()) == {0} and f"resuming after step {last}" in job.said(0),
                  f"{what}: all machines resume after step {last}", job.all_said())
        in_one_process(self.heddle, [f"--hashes={alone}", f"--training.steps={last + 2}"])
        rows = []
        for path in (again, alone):
            with open(path) as lines:
                rows.append([row for row in map(json.loads, lines) if row["step"] > last])
        check(rows[0] and rows[0] == rows[1], f"{what}: the bits of a run without a fault")

    def partition(self):
        def fault(_, network):
            network.wire.cut(2)
        self.lost("a machine is cut off", fault, [3])

    def partition_of_rank_0(self):
        def fault(_, network):
            network.wire.cut(0)
        self.lost("the machine of rank 0 is cut off", fault, [0, 1])

    def link_down(self):
        def fault(_, network):
            network.machines[1].link("down")
        self.lost("an interface is taken down", fault, [2])

    def killed(self):
        def fault(job, _):
            job.kill(1)
            return {2}
        self.lost("all processes of a machine are killed", fault, [2])

    def killed_with_rank_0(self):
        def fault(job, _):
            job.kill(0)
            return {0, 1}
        self.lost("all processes of the machine of rank 0 are killed", fault, [0, 1])

    def power_loss(self):
        def fault(job, network):
            network.wire.cut(2)
            job.kill(2)
            return {3}
        self.lost("a machine loses its power", fault, [3])

    def two_apart(self):
        """Both machines reach rank 0, but not each other."""
        with self.network() as network:
            with self.job(network, f"--training.steps={ENDLESS}", timeout=TIMEOUT) as job:
                job.wait_for_step(1)
                network.wire.cut(1, 2)
                codes = job.ends()
                check(set(codes.values()) == {4}, "two machines lose each other: every rank ends with code 4", job.all_said())
                for rank in codes:
                    check(re.search("may not reach each other.* 2 on node1, 3 on node2|rank [23] on node[12] failed",
                                    job.said(rank)),
                          f"two machines lose each other: rank {rank} names both", job.said(rank))
            network.wire.heal()
            network.wire.cut(1, 2)
            self.fails("two machines never reach each other", network, 4, "node1|node2", timeout=TIMEOUT)

    def fails(self, what, network, code, pattern, ranks=None, timeout=LONG_TIMEOUT, **options):
        with self.job(network, f"--training.steps={STEPS}", timeout=timeout, ranks=ranks, **options) as job:
            codes = job.ends()
            took = time.monotonic() - job.began
            check(set(codes.values()) == {code} and all(re.search(pattern, job.said(rank)) for rank in codes),
                  f"{what}: every rank ends with code {code} and says why", job.all_said())
            check(took < timeout + SLACK, f"{what}: after {took:.1f} s", job.all_said())

    def unreachable(self):
        with self.network() as network:
            self.fails("nothing has the address of the rendezvous", network, 4,
                       rf"(?s)rank \d has waited 3 s for the store at 10\.77\.0\.99:29500.*"
                       rf"did not reach the store at 10\.77\.0\.99:29500.* within {TIMEOUT}000 ms",
                       ranks=[2, 3], timeout=TIMEOUT, environment={"MASTER_ADDR": "10.77.0.99"})
            self.fails("the rendezvous has no address", network, 4, r"MASTER_ADDR `nowhere` has no address|network addresses of \(nowhere",
                       ranks=[2, 3], timeout=TIMEOUT, environment={"MASTER_ADDR": "nowhere"})
            network.wire.cut(2)
            self.fails("a machine is cut off from the start", network, 4, r"3 did not|did not reach the store at 10",
                       timeout=TIMEOUT)

    def names(self):
        """Debian gives a machine's own name the address 127.0.1.1."""
        with self.network() as network:
            lines = ["127.0.0.1 localhost", *(f"{machine.address} {machine.name}" for machine in network.machines)]
            for machine in network.machines:
                machine.hosts = os.path.join(self.folder, machine.name)
                with open(machine.hosts, "w") as file:
                    file.write("\n".join(f"127.0.1.1 {machine.name}" if line.endswith(machine.name) else line
                                         for line in lines) + "\n")
            named = {"MASTER_ADDR": "node0"}
            self.fails("rank 0 finds its own name at 127.0.1.1", network, 4,
                       r"rank 0 on node0 accepts connections only from its own machine, at 127\.\d+\.\d+\.\d+, "
                       r"but rank 2 on node1 is at 10\.77\.0\.2; set GLOO_SOCKET_IFNAME", environment=named)
            self.same_bits("GLOO_SOCKET_IFNAME names the interface", network,
                           environment={**named, "GLOO_SOCKET_IFNAME": DEVICE})
            self.fails("GLOO_SOCKET_IFNAME names no interface", network, 4,
                       rf"rank 0 on node0: GLOO_SOCKET_IFNAME is `eth7`, but no interface `eth7` .*{DEVICE}",
                       environment={"GLOO_SOCKET_IFNAME": "eth7"})


SHORT = [Trials.clean, Trials.delay, Trials.partition]
LONG = [Trials.loss, Trials.disorder, Trials.short_partition, Trials.ipv6, Trials.partition_of_rank_0, Trials.link_down,
        Trials.killed, Trials.killed_with_rank_0, Trials.power_loss, Trials.two_apart, Trials.unreachable, Trials.names]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("heddle")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one trial")
    options = parser.parse_args()
    inside_own_namespaces()
    trials = [*SHORT, *(LONG if options.all or options.only else [])]
    wrong = 0
    for trial in trials:
        if options.only and trial.__name__ != options.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                trial(Trials(options.heddle, folder, options.seed))
            except Failed as failed:
                wrong += 1
                print(f"failed: {trial.__name__}: {failed}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
