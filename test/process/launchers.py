#!/usr/bin/env python3
"""Runs the lines of docs/training.md and docs/machines.md for torchrun and Slurm, and the jobs of
examples/slurm and examples/kubernetes as they are written. Names of machines, ports, folders and sizes are replaced.

    launchers.py HEDDLE [--all]

The last checkpoint of every job must have the bytes of the one that a single process writes.
slurm_commands.py stands in for Slurm, and this program for Kubeflow's operator. Needs a Python with
torch for torchrun. --all adds two agents of torchrun, and ranks that are killed."""

import argparse
import filecmp
import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from faults import HANG, SMALL, free_port

try:
    import yaml
except ImportError:
    yaml = None

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SLURM = pathlib.Path(__file__).with_name("slurm_commands.py")
STEPS = 6
# Steps of a job in which something fails.
LONG = 150


class Failed(Exception):
    pass


def check(same, what, why=""):
    if not same:
        raise Failed(f"{what}\n{why}")
    print(f"ok: {what}", flush=True)


def replaced(text, pairs):
    for old, new in pairs.items():
        if old not in text:
            raise Failed(f"no `{old}` in:\n{text}")
        text = text.replace(old, new)
    return text


class Place:
    """A folder with a job, its programs on PATH, and the checkpoint that one process writes. No
    process that it started outlives it."""

    def __init__(self, heddle, folder):
        self.heddle = os.path.abspath(heddle)
        self.folder = pathlib.Path(folder)
        self.started = []
        programs = self.folder / "programs"
        (self.folder / "build").mkdir()
        programs.mkdir()
        for link in (self.folder / "build/heddle", programs / "heddle"):
            link.symlink_to(self.heddle)
        for name in ("sbatch", "srun", "scontrol"):
            (programs / name).symlink_to(SLURM)
        (programs / "torchrun").write_text(f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n')
        (programs / "torchrun").chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}

    def prepare(self, ranks, steps=STEPS):
        """Writes the job, and trains it in one process."""
        self.steps = steps
        self.flags = [*(flag for flag in SMALL if "steps" not in flag and "degree" not in flag),
                      f"--training.steps={steps}", f"--parallelism.data_parallel_shard_degree={ranks}",
                      "--checkpoint.interval=3", "--runtime.timeout=20"]
        shown = self.finish([self.heddle, "train", *self.flags, "--config-show"])
        (self.folder / "job.toml").write_text(shown)
        self.finish([self.heddle, "train", *self.flags, f"--checkpoint.folder={self.folder}/alone"])

    def start(self, command, **variables):
        self.started.append(subprocess.Popen(
            command, cwd=self.folder, env={**self.environment, **variables}, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        return self.started[-1]

    @staticmethod
    def ends(process):
        """Exit code and output."""
        try:
            output, _ = process.communicate(timeout=HANG)
        except subprocess.TimeoutExpired:
            raise Failed(f"{process.args} hangs") from None
        return process.returncode, output

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.started:
            for pid in below(process.pid) if process.poll() is None else []:
                os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()

    def finish(self, command, **variables):
        process = self.start(command, **variables)
        code, output = self.ends(process)
        if code:
            raise Failed(f"{command}: exit code {code}:\n{output}")
        return output

    def step_folder(self, saved, step):
        return self.folder / saved / f"step-{step:08}"

    def is_same(self, saved, what):
        ours, alone = (self.step_folder(name, self.steps) for name in (saved, "alone"))
        names = sorted(os.listdir(alone))
        same = ours.is_dir() and sorted(os.listdir(ours)) == names and \
            filecmp.cmpfiles(ours, alone, names, shallow=False)[0] == names
        check(same, f"{what}: the checkpoint of one process", f"{saved}: {sorted((self.folder / saved).iterdir())}")

    def last_step(self, saved):
        return max((int(path.parent.name[5:]) for path in (self.folder / saved).glob("step-" + 8 * "[0-9]" + "/manifest.json")),
                   default=0)

    def wait_for_save(self, saved, process, after=0):
        while self.last_step(saved) <= after:
            if process.poll() is not None:
                raise Failed(f"ended before a step was saved:\n{self.ends(process)}")
            time.sleep(0.02)


def below(pid, name=""):
    """The processes that descend from one and whose name starts so, the youngest generation last."""
    found = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in found.splitlines()]
    known, found = {pid}, []
    while more := [row for row in rows if int(row[1]) in known and int(row[0]) not in known]:
        known |= {int(row[0]) for row in more}
        found += [int(row[0]) for row in more if row[2].startswith(name)]
    return found


def ranks_below(pid):
    # The program runs as `heddle` and then as `heddle-torch`.
    return below(pid, "heddle")


def block_with(page, text):
    """The code block of a page that contains a text."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    found = [block for block in blocks if text in block]
    if len(found) != 1:
        raise Failed(f"{page} has {len(found)} blocks with `{text}`")
    return found[0].strip()


def torchrun_of_the_docs(place):
    place.prepare(ranks=2)
    line = replaced(block_with("docs/training.md", "torchrun --nproc-per-node"), {"node 4": "node 2", "--dp=4": "--dp=2"})
    flags = [flag for flag in place.flags if "degree" not in flag]
    place.finish(["bash", "-c", f"{line} {' '.join(flags)} --checkpoint.folder=saved"])
    place.is_same("saved", "torchrun of the docs")


def torchrun_on_two_nodes(place):
    """Two agents that meet through c10d. A rank is killed: all end. With a restart, training resumes."""
    place.prepare(ranks=2, steps=LONG)

    line = block_with("docs/machines.md", "--nnodes=2")

    def agents(saved, restarts):
        command = replaced(line, {"node0:29500": f"127.0.0.1:{free_port()}", "per-node=8": "per-node=1",
                                  "restarts=3": f"restarts={restarts}", "/shared/run7": saved})
        return [place.start(["bash", "-c", command], PET_LOCAL_ADDR="127.0.0.1") for _ in range(2)]

    for agent in (started := agents("whole", 0)):
        code, output = place.ends(agent)
        check(code == 0, "two agents of torchrun train", output)
    place.is_same("whole", "two agents of torchrun")
    for restarts in (0, 1):
        saved = f"killed{restarts}"
        started = agents(saved, restarts)
        place.wait_for_save(saved, started[0])
        os.kill(ranks_below(started[1].pid)[0], signal.SIGKILL)
        ended = [place.ends(agent) for agent in started]
        said = "\n".join(output for _, output in ended)
        if restarts:
            check([code for code, _ in ended] == [0, 0] and "resuming after step" in said,
                  "a rank is killed: torchrun restarts all, and they resume", said)
            place.is_same(saved, "torchrun after a restart")
        else:
            check(0 not in [code for code, _ in ended] and re.search(r"rank \d[^\n]*(does not answer|lost the store)|"
                                                                   r"SIGKILL", said),
                  "a rank is killed: both agents end with an error", said)


def slurm_of_the_docs(place):
    place.prepare(ranks=4)
    line = replaced(block_with("docs/machines.md", "srun --ntasks-per-node"), {"per-node=8": "per-node=4", "node0": "127.0.0.1",
                                                           "29500": str(free_port()), "/shared/": f"{place.folder}/"})
    place.finish(["bash", "-c", line])
    place.is_same("run7", "srun of the docs")


def slurm_example(place):
    """sbatch trains, also when Slurm stops the job once and when a task is killed."""
    place.prepare(ranks=4, steps=LONG)
    (place.folder / "shared").mkdir()
    example = (ROOT / "examples/slurm/train.sbatch").read_text()

    def submit():
        script = place.folder / "train.sbatch"
        script.write_text(replaced(example, {"nodes=4": "nodes=2", "per-node=8": "per-node=2", "29500": str(free_port()),
                                             "/shared/": f"{place.folder}/shared/"}))
        return place.start(["sbatch", script])

    def stopped(ranks):
        srun = int(subprocess.run(["ps", "-o", "ppid=", "-p", str(ranks[0])], capture_output=True, text=True,
                                  check=True).stdout)
        os.kill(srun, signal.SIGTERM)

    def killed(ranks):
        os.kill(ranks[2], signal.SIGKILL)

    for what, fault, wanted in (("Slurm stops the job", stopped, "stopped after step"), ("a task is killed", killed, "")):
        before = place.last_step("shared/run")
        job = submit()
        place.wait_for_save("shared/run", job, before)
        fault(ranks_below(job.pid))
        code, output = place.ends(job)
        check((code == 0) == bool(wanted) and wanted in output, f"{what}: exit code {code}", output)
    code, output = place.ends(submit())
    check(code == 0 and "resuming after step" in output, "sbatch of the same file resumes", output)
    place.is_same("shared/run", "the example for Slurm")


def pods(place):
    """Starts the command of each pod of the example, with the variables that the operator sets."""
    count, ranks = 2, 2
    with open(ROOT / "examples/kubernetes/pytorchjob.yaml") as file:
        job = yaml.safe_load(file)
    specs = job["spec"]["pytorchReplicaSpecs"]
    check((job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob") and set(specs) == {"Master", "Worker"} and
          specs["Master"]["replicas"] == 1, "the example is a PyTorchJob with one master")
    port = free_port()
    running = []
    for number, kind in enumerate(("Master", "Worker")):
        pod = specs[kind]["template"]["spec"]
        container = pod["containers"][0]
        # The operator looks for a container with this name.
        check(container["name"] == "pytorch" and {mount["name"] for mount in container["volumeMounts"]} <=
              {volume["name"] for volume in pod["volumes"]}, "its pods are complete")
        variables = {"MASTER_ADDR": "127.0.0.2", "MASTER_PORT": str(port), "RANK": str(number), "PYTHONUNBUFFERED": "0",
                     "WORLD_SIZE": str(count * ranks), "PET_NODE_RANK": str(number), "PET_NNODES": str(count),
                     "PET_NPROC_PER_NODE": str(ranks)}
        # Kubernetes replaces $(NAME).
        command = [re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], word).replace("/shared", f"{place.folder}/shared")
                   for word in container["command"]]
        running.append(place.start(command, **variables))
    return running, f"meets at 127.0.0.2:{port}"


def kubernetes_example(place, steps=STEPS, fault=None):
    place.prepare(ranks=4, steps=steps)
    (place.folder / "shared").mkdir()
    (place.folder / "shared/job.toml").write_text((place.folder / "job.toml").read_text())
    # Ranks report where they meet.
    wrapper = place.folder / "programs/heddle"
    wrapper.unlink()
    wrapper.write_text(f'#!/bin/sh\necho "meets at $MASTER_ADDR:$MASTER_PORT"\nexec {place.heddle} "$@"\n')
    wrapper.chmod(0o755)
    if fault:
        running, _ = pods(place)
        place.wait_for_save("shared/run", running[0])
        fault(running)
        ended = [place.ends(pod) for pod in running]
        check(0 not in [code for code, _ in ended], "a rank of a pod is killed: both pods fail", f"{ended}")
    running, meeting = pods(place)
    for pod in running:
        code, output = place.ends(pod)
        resumes = not fault or pod != running[0] or "resuming after step" in output
        check(code == 0 and output.count(meeting) == 2 and resumes,
              f"a pod {'resumes' if fault else 'trains'}, and its ranks meet at the master", output)
    place.is_same("shared/run", "the example for Kubernetes")


def kubernetes_restart(place):
    """`restartPolicy: OnFailure` starts the pods again after a rank was killed."""
    kubernetes_example(place, LONG, lambda running: os.kill(ranks_below(running[1].pid)[1], signal.SIGKILL))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("heddle")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", help="one part")
    options = parser.parse_args()
    parts = [slurm_of_the_docs, slurm_example]
    if importlib.util.find_spec("torch"):
        parts += [torchrun_of_the_docs, *([torchrun_on_two_nodes] if options.all else [])]
        parts += [kubernetes_example, *([kubernetes_restart] if options.all else [])] if yaml else []
    else:
        print("skipped: torchrun, and the example for Kubernetes: no torch in this Python")
    if not yaml:
        print("skipped: the example for Kubernetes: no PyYAML in this Python")
    parts = [part for part in parts if options.only in (None, part.__name__)]
    wrong = 0
    for part in parts:
        with tempfile.TemporaryDirectory() as folder:
            try:
                with Place(options.heddle, folder) as place:
                    part(place)
            except Failed as failed:
                wrong += 1
                print(f"failed: {part.__name__}: {failed}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
