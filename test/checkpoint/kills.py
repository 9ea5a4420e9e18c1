#!/usr/bin/env python3
"""Kills a run that saves every step at random moments, and restarts it on another mesh, until it
ends.

A restart must resume from a complete state that is not older than the newest confirmed save. The
end must equal that of an uninterrupted run, bit for bit. Half of the runs have four processes,
of which one or all are killed. Sometimes a bit of the newest checkpoint is flipped before a
restart, which must then use the previous one, with a note.

    kills.py VICTIM HEDDLE [--trials=200] [--seed=1]
"""
import argparse
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

MESHES = ["dp4", "dp2tp2", "tp4", "hsdp2x2"]
STEPS = 40
KILLS_IN_A_RUN = 12


def start(victim, folder, mesh, processes):
    return subprocess.Popen([victim, folder, mesh, str(STEPS)] + (["processes"] if processes else []), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def kill(process, chance, processes):
    """Kills all processes together, or one of several and the others later."""
    if processes and chance.random() < 0.5:
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=False)
        children = [int(pid) for pid in found.stdout.split()]
        if children:
            try:
                os.kill(chance.choice(children), signal.SIGKILL)
            except ProcessLookupError:
                pass
            time.sleep(chance.uniform(0, 0.1))
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def flip(folder, chance):
    """Flips a bit of the newest checkpoint, unless it is the only one."""
    steps = sorted(p for p in pathlib.Path(folder).iterdir() if re.fullmatch(r"step-\d{8}", p.name))
    if len(steps) < 2:
        return None
    path = chance.choice(sorted(steps[-1].glob("rank-*.safetensors")))
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content))
    content[at] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return int(steps[-1].name[5:])


class Trial:
    def __init__(self, victim, heddle, chance, folder, seconds):
        self.victim, self.heddle, self.chance, self.folder, self.seconds = victim, heddle, chance, folder, seconds
        self.kills = 0
        self.sure = 0

    def one_start(self):
        """Starts the run and maybe kills it. Returns its final state if it ended. Raises
        AssertionError."""
        flipped = flip(self.folder, self.chance) if self.chance.random() < 0.2 else None
        processes = self.chance.random() < 0.5
        mesh = self.chance.choice(MESHES)
        process = start(self.victim, self.folder, mesh, processes)
        if flipped is not None:
            # The newest saved step is damaged now; the previous one is not.
            self.sure = min(self.sure, flipped - 1)
        killed = False
        try:
            # A run that is killed every time would never end.
            delay = self.chance.uniform(0, self.seconds) if self.kills < KILLS_IN_A_RUN else None
            out, err = process.communicate(timeout=delay)
        except subprocess.TimeoutExpired:
            kill(process, self.chance, processes)
            killed = True
            self.kills += 1
            out, err = process.communicate()
        assert killed or process.returncode == 0, err
        resumed = re.search(r"resumed (\d+)\n", out)
        if resumed:
            where = int(resumed[1])
            if flipped is None:
                assert where >= self.sure, f"resumed from step {where} after step {self.sure} was saved"
            else:
                assert self.sure <= where < flipped and f"skipped step {flipped}: " in out, out
        self.sure = max([self.sure] + [int(step) for step in re.findall(r"saved (\d+)\n", out)])
        self.check_folder()
        end = re.search(r"end (\w+)", out)
        return end[1] if end else None

    def check_folder(self):
        """Checks that every folder with the name of a step is complete."""
        if not any(re.fullmatch(r"step-\d{8}", name) for name in os.listdir(self.folder)):
            return
        verified = subprocess.run([self.heddle, "checkpoint", "verify", self.folder], capture_output=True, text=True, check=False)
        # A damaged step stays until the run reaches it again.
        assert verified.returncode == 0 or "has hash" in verified.stderr, verified.stdout + verified.stderr


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("victim")
    parser.add_argument("heddle")
    parser.add_argument("--trials", type=int, default=200, help="kills")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as top:
        begin = time.monotonic()
        alone = start(args.victim, f"{top}/alone", "dp4", False)
        out, err = alone.communicate()
        seconds = time.monotonic() - begin
        if alone.returncode != 0:
            sys.exit(f"a run that nobody killed failed: {err}")
        expected = re.search(r"end (\w+)", out)[1]
        kills = runs = 0
        while kills < args.trials:
            folder = f"{top}/{runs}"
            os.mkdir(folder)
            trial = Trial(args.victim, args.heddle, chance, folder, seconds)
            end = None
            try:
                while end is None:
                    end = trial.one_start()
                assert end == expected, f"ended with {end}, undisturbed with {expected}"
            except AssertionError as problem:
                sys.exit(f"seed {args.seed}, run {runs}, after {trial.kills} kills: {problem}")
            kills += trial.kills
            runs += 1
    print(f"{kills} kills in {runs} runs of {STEPS} steps: all ended as the undisturbed one ({expected})")


if __name__ == "__main__":
    main()
