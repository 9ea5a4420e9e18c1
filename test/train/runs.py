#!/usr/bin/env python3
"""Whole runs of `heddle train`: in one process and in many, interrupted and resumed, on several
meshes.

    runs.py HEDDLE [--kills=3] [--seed=1]

Every run writes hashes of its weights. All runs of a job must end with the same hashes."""
import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time

SMALL = ["--model=llama3", "--flavor=debugmodel", "--model.n_layers=1", "--model.dim=66", "--model.n_heads=11", "--model.n_kv_heads=11",
         "--model.ffn_dim=101", "--model.vocab_size=257", "--training.seq_len=16", "--training.local_batch_size=4",
         "--lr_scheduler.warmup_steps=2", "--lr_scheduler.decay=linear"]
# Four sequences per step on every mesh.
MESHES = {
    "dp4": ["--parallelism.data_parallel_shard_degree=4", "--training.local_batch_size=1"],
    "dp2": ["--parallelism.data_parallel_shard_degree=2", "--training.local_batch_size=2"],
    "hsdp2x2": ["--parallelism.data_parallel_replicate_degree=2", "--parallelism.data_parallel_shard_degree=2",
                "--training.local_batch_size=1"],
    "cp4": ["--parallelism.context_parallel_degree=4", "--training.local_batch_size=1", "--training.global_batch_size=4"],
    "dp2cp2": ["--parallelism.data_parallel_shard_degree=2", "--parallelism.context_parallel_degree=2",
               "--training.local_batch_size=1", "--training.global_batch_size=4"],
    "cp2": ["--parallelism.context_parallel_degree=2", "--training.local_batch_size=4"],
    "tp11": ["--parallelism.tensor_parallel_degree=11"],
    "one": [],
}
# A timeout in seconds. Correct runs are much faster, even on a busy machine.
HANG = 300


class Failed(Exception):
    pass


def command(heddle, flags, steps):
    """The later of two flags of one name applies."""
    by_name = {flag.split("=")[0]: flag for flag in [*SMALL, f"--training.steps={steps}", *flags]}
    return [heddle, "train", *by_name.values()]


def train(heddle, flags, steps, expect=0):
    run = subprocess.run(command(heddle, flags, steps), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if run.returncode != expect:
        raise Failed(f"train {' '.join(flags)}: exit code {run.returncode}, expected {expect}\n{run.stdout}{run.stderr}")
    return run


def hashes_of(path, step):
    """Returns the hashes of the weights after a step, by rank and name."""
    with open(path) as lines:
        rows = [json.loads(line) for line in lines]
    return {(row["rank"], row["name"]): row["sha256"] for row in rows if row["step"] == step and "sha256" in row}


def check(same, what):
    if not same:
        raise Failed(what)
    print(f"ok: {what}", flush=True)


def processes_are_lockstep(heddle, folder):
    files = [os.path.join(folder, name) for name in ("lockstep.jsonl", "processes.jsonl")]
    for file, flags in zip(files, ([], ["--nproc=4"])):
        train(heddle, MESHES["dp4"] + [f"--hashes={file}", "--hash-gradients", *flags], 3)
    check(open(files[0]).read() == open(files[1]).read(), "ranks in one process and in four have the same bits")


def batches_add_up(heddle, folder):
    """Two micro-batches of two sequences in f64 equal one of four, up to the order of additions."""
    losses = []
    for flags in (["--training.local_batch_size=4"], ["--training.local_batch_size=2", "--training.global_batch_size=4"],
                  ["--training.local_batch_size=1", "--training.global_batch_size=4"]):
        file = os.path.join(folder, "loss.jsonl")
        train(heddle, ["--precision=f64", f"--metrics.jsonl={file}", *flags], 4)
        losses.append([json.loads(line)["loss"] for line in open(file)])
        os.remove(file)
    apart = max(abs(a - b) for other in losses[1:] for a, b in zip(losses[0], other))
    check(len(losses[1]) == 4 and apart < 1e-9, f"a step in several batches is the same step ({apart:.1e} apart)")


def resumes(heddle, folder):
    saved = os.path.join(folder, "saved")
    flags = MESHES["dp4"] + [f"--checkpoint.folder={saved}", "--checkpoint.interval=2", "--lr_scheduler.decay=none",
                             "--lr_scheduler.warmup_steps=0"]
    reference = os.path.join(folder, "reference.jsonl")
    train(heddle, [*MESHES["dp4"], "--lr_scheduler.decay=none", "--lr_scheduler.warmup_steps=0", f"--hashes={reference}"], 6)
    train(heddle, flags, 3)
    again = os.path.join(folder, "again.jsonl")
    run = train(heddle, [*flags, f"--hashes={again}"], 6)
    check("resuming after step 3" in run.stderr, "a run resumes where the previous one ended")
    check(hashes_of(reference, 6) == hashes_of(again, 6), "a resumed run has the bits of the undisturbed one")
    run = train(heddle, flags, 6)
    check("trained already" in run.stderr, "a finished run says so")
    train(heddle, [*flags, "--training.dataset=synthetic"], 8, expect=1)
    check(True, "a run on other data is refused")


def meshes(heddle, folder):
    """Resumes on one mesh after another. Each loads the tensors that the previous one saved."""
    saved = os.path.join(folder, "travels")
    steps = 0
    for mesh in ("dp4", "hsdp2x2", "cp4", "one", "tp11", "dp2cp2", "dp2", "cp2"):
        steps += 1
        train(heddle, MESHES[mesh] + [f"--checkpoint.folder={saved}", "--runtime.reducer=rank", "--lr_scheduler.decay=none",
                                      "--lr_scheduler.warmup_steps=0", "--precision=f64", "--checkpoint.keep=0"], steps)
    file = os.path.join(folder, "alone.jsonl")
    train(heddle, [f"--metrics.jsonl={file}", "--lr_scheduler.decay=none", "--lr_scheduler.warmup_steps=0", "--precision=f64"], steps + 1)
    expected = [json.loads(line)["loss"] for line in open(file)][-1]
    file = os.path.join(folder, "end.jsonl")
    train(heddle, [f"--checkpoint.folder={saved}", f"--metrics.jsonl={file}", "--lr_scheduler.decay=none", "--precision=f64",
                   "--lr_scheduler.warmup_steps=0"], steps + 1)
    got = [json.loads(line)["loss"] for line in open(file)][-1]
    check(abs(got - expected) < 1e-8, f"eight meshes in turn train what one rank does ({abs(got - expected):.1e} apart)")


def mixtures(heddle, folder):
    """A mixture of two sources stops after every step, and resumes on other meshes and in
    processes."""
    names = [os.path.join(folder, name) for name in ("a.txt", "b:1.txt")]
    for name, words in zip(names, ("one two three ", "eins zwei drei ")):
        with open(name, "w") as file:
            file.write(words * 40)
    mixed = [f"--training.dataset={names[0]}:0.7,{names[1]}:0.3", "--precision=f64", "--validation.interval=1",
             "--validation.steps=1", "--lr_scheduler.decay=none", "--lr_scheduler.warmup_steps=0"]
    alone, travels, saved = [os.path.join(folder, name) for name in ("alone.jsonl", "travels.jsonl", "saved")]
    run = train(heddle, [*mixed, f"--metrics.jsonl={alone}"], 5)
    check("2 sources in proportions 7 : 3" in run.stdout and "epochs" in run.stdout, "a run lists its sources")
    for steps, mesh in enumerate(("dp4", "cp2", "one", "dp2"), 1):
        flags = [*mixed, *MESHES[mesh], f"--checkpoint.folder={saved}", f"--metrics.jsonl={travels}"]
        train(heddle, [*flags, *(["--nproc=2"] if mesh == "dp2" else [])], steps)
    train(heddle, [*flags, *MESHES["one"]], 5)
    rows = [[json.loads(line) for line in open(file)] for file in (alone, travels)]
    apart = max(abs(a[key] - b[key]) for a, b in zip(*rows) for key in ("loss", "validation_loss"))
    check(len(rows[1]) == 5 and apart < 1e-8, f"a mixture resumes exactly on five meshes ({apart:.1e} apart)")
    other = [flag.replace(":0.7,", ":0.5,") for flag in flags]
    run = train(heddle, [*other, *MESHES["one"]], 6, expect=1)
    check("was trained on other data: weights 7:3, but this job has 5:3" in run.stderr, f"other weights are refused: {run.stderr}")


def stops(heddle, folder):
    for flags in ([], ["--nproc=4"]):
        saved = os.path.join(folder, "stopped" + "".join(flags))
        run = subprocess.Popen(command(heddle, [*MESHES["dp4"], f"--checkpoint.folder={saved}", "--checkpoint.interval=0", *flags], 100000),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in run.stdout:
            if "step:" in line and " 2 " in line:
                break
        run.send_signal(signal.SIGTERM)
        out, err = run.communicate(timeout=HANG)
        check(run.returncode == 0, f"SIGTERM ends a run in order{' of processes' if flags else ''}: {run.returncode} {err[-300:]}")
        listed = subprocess.run([heddle, "checkpoint", "ls", saved, "--json"], capture_output=True, text=True)
        check(listed.returncode == 0 and "step" in listed.stdout, "and saves")


def children_of(pid):
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(child) for child in found.stdout.split()]


def a_stop_is_a_stop(heddle, folder, trials, chance):
    """A signal while ranks start, or while a restart is pending, ends the job."""
    for trial in range(trials):
        saved = os.path.join(folder, f"stop-{trial}")
        log = os.path.join(folder, f"stop-{trial}.log")
        starting = trial % 2 == 0
        signo = chance.choice([signal.SIGTERM, signal.SIGINT])
        with open(log, "w+") as err:
            run = subprocess.Popen(
                command(
                    heddle,
                    [
                        *MESHES["dp2"],
                        f"--checkpoint.folder={saved}",
                        "--checkpoint.interval=1",
                        "--runtime.timeout=8",
                        "--fault.max_restarts=2",
                        "--nproc=2",
                    ],
                    100000,
                ),
                stdout=subprocess.DEVNULL,
                stderr=err,
                text=True,
            )
            try:
                ready = (
                    (lambda: children_of(run.pid))
                    if starting
                    else (
                        lambda: os.path.isdir(saved)
                        and any(name.startswith("step-0") for name in os.listdir(saved))
                    )
                )
                while not ready():
                    time.sleep(0.02)
                if starting:
                    delay = chance.uniform(0, 1)
                else:
                    os.kill(children_of(run.pid)[-1], signal.SIGKILL)
                    delay = chance.uniform(0, 3)
                time.sleep(delay)
                run.send_signal(signo)
                try:
                    run.wait(timeout=HANG)
                except subprocess.TimeoutExpired:
                    pass
            finally:
                ended = run.poll() is not None
                run.kill()
                run.wait()
            err.seek(0)
            said = err.read()
        # A restart before the signal is allowed.
        after = "ranks started" if starting else "a rank was killed"
        what = f"{signal.Signals(signo).name} {delay:.2f} s after {after}"
        check(
            ended and run.returncode in (0, 4) and "stopped" in said,
            f"{what} ends the job: {run.returncode} {said[-400:]}",
        )


def exports(heddle, folder, trials, chance):
    """A killed export, or one on a full disk, leaves no mixture that loads."""
    model = [
        "--model=llama3",
        "--model.n_layers=1",
        "--model.dim=256",
        "--model.n_heads=2",
        "--model.n_kv_heads=2",
        "--model.ffn_dim=512",
        "--model.vocab_size=257",
        "--training.seq_len=16",
    ]

    def run(*args, **options):
        return subprocess.run(
            [heddle, *args],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
            **options,
        )

    def loss_of(path):
        file = os.path.join(folder, "loss.jsonl")
        done = run(
            "train",
            "--model=hf",
            f"--checkpoint.initial_load_path={path}",
            "--training.seq_len=16",
            "--training.steps=1",
            f"--metrics.jsonl={file}",
        )
        return json.loads(open(file).readline())["loss"] if done.returncode == 0 else None

    losses = {}
    for seed in (1, 2):
        saved = os.path.join(folder, f"run{seed}")
        run(
            "train",
            *model,
            "--training.steps=1",
            f"--parallelism.context_parallel_degree={seed}",
            f"--debug.seed={seed}",
            f"--checkpoint.folder={saved}",
        )
        only = os.path.join(folder, f"only{seed}")
        run("export", f"--hf={only}", f"--checkpoint={saved}")
        losses[seed] = loss_of(only)
    check(None not in losses.values() and losses[1] != losses[2], f"two exports load: {losses}")
    both = os.path.join(folder, "both")
    sizes = {1: ["--shard-size=1"], 2: []}
    for seed in (1, 2, 1):
        run("export", f"--hf={both}", f"--checkpoint={folder}/run{seed}", *sizes[seed])
        check(
            loss_of(both) == losses[seed],
            f"an export replaces the one before: {sorted(os.listdir(both))}",
        )
    open(os.path.join(both, "tokenizer.json"), "w").close()
    small = run(
        "export",
        f"--hf={both}",
        f"--checkpoint={folder}/run2",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    check(
        small.returncode == 1
        and "File too large" in small.stderr
        and loss_of(both) == losses[1]
        and ".heddle-export" not in os.listdir(both),
        f"an export that does not fit leaves the old one: {small.stderr}",
    )
    begin = time.time()
    run("export", f"--hf={both}", f"--checkpoint={folder}/run2")
    took = time.time() - begin
    for _ in range(trials):
        seed = chance.choice([1, 2])
        export = subprocess.Popen(
            [
                heddle,
                "export",
                f"--hf={both}",
                f"--checkpoint={folder}/run{seed}",
                *chance.choice([[], ["--shard-size=1"]]),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(chance.uniform(0.7, 1.05) * took)
        export.kill()
        export.wait()
        loss = loss_of(both)
        check(
            loss in (None, *losses.values()), f"a killed export leaves a whole one or none: {loss}"
        )
        check("tokenizer.json" in os.listdir(both), "files that are not the export's stay")


def a_full_disk(heddle, folder):
    """A limit on the size of files acts like a full disk: no signal ends the run."""
    saved = os.path.join(folder, "full")
    for limit, code, message in (
        (4 << 10, 1, "cannot write"),
        (64 << 10, 4, "the last checkpoint was not written"),
    ):
        run = subprocess.run(
            command(heddle, [f"--checkpoint.folder={saved}"], 2),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda size=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        )
        left = [name for name in os.listdir(saved) if name.startswith(("step-0", "."))]
        check(
            run.returncode == code
            and message in run.stderr
            and "File too large" in run.stderr
            and not left,
            f"no room for a file of {limit} bytes: {run.returncode} {run.stderr} {left}",
        )


def experts_are_counted(heddle, folder):
    """Every token chooses two experts, and all ranks count the same numbers of tokens per
    expert."""
    mixture = ["--model=qwen3", "--flavor=debugmodel_moe", "--model.dim=64", "--model.n_heads=4", "--model.n_kv_heads=2", "--model.head_dim=16",
               "--model.moe.experts=4", "--model.moe.top_k=2", "--model.moe.ffn_dim=32", "--precision=f32"]
    two = ["--parallelism.data_parallel_shard_degree=2", "--training.local_batch_size=2"]
    jobs = {"one": [], "dp2": two, "ep2": [*two, "--parallelism.expert_parallel_degree=2"], "processes": [*two, "--nproc=2"],
            "batches": ["--training.local_batch_size=1", "--training.global_batch_size=4"]}
    counts = {}
    for name, flags in jobs.items():
        file = os.path.join(folder, f"{name}.jsonl")
        line = train(heddle, [*mixture, *flags, f"--metrics.jsonl={file}"], 1).stdout
        with open(file) as lines:
            counts[name] = json.loads(lines.readline())["tokens_per_expert"]
        check("experts: " in line, f"the imbalance of experts is in the log ({name})")
    check(all(sum(layer) == 4 * 16 * 2 for layer in counts["one"].values()), "every token counts once for each of its experts")
    check(len({json.dumps(found) for found in counts.values()}) == 1, "experts are counted alike on one rank, two, spread, and in processes")


def kills(heddle, folder, count, chance):
    reference = os.path.join(folder, "killed.jsonl")
    plain = ["--lr_scheduler.decay=none", "--lr_scheduler.warmup_steps=0"]
    begin = time.time()
    train(heddle, [*plain, f"--hashes={reference}"], 30)
    took = time.time() - begin
    for trial in range(count):
        saved = os.path.join(folder, f"killed-{trial}")
        flags = [*plain, f"--checkpoint.folder={saved}", "--checkpoint.interval=1"]
        file = os.path.join(folder, f"killed-{trial}.jsonl")
        for _ in range(3):
            run = subprocess.Popen(command(heddle, flags, 30), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(chance.uniform(0, 1.5 * took))
            run.kill()
            run.wait()
        # Repeats the last step for its hashes.
        run = train(heddle, [*plain, f"--checkpoint.folder={saved}", "--checkpoint.interval=1", f"--hashes={file}"], 31)
        train(heddle, [*plain, f"--hashes={reference}.31"], 31)
        check(hashes_of(file, 31) == hashes_of(reference + ".31", 31), f"killed three times, trial {trial}: the same bits")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("heddle")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    try:
        for part in (
            processes_are_lockstep,
            batches_add_up,
            experts_are_counted,
            resumes,
            meshes,
            mixtures,
            stops,
            a_full_disk,
        ):
            with tempfile.TemporaryDirectory() as folder:
                part(args.heddle, folder)
        for part in (kills, a_stop_is_a_stop, exports):
            with tempfile.TemporaryDirectory() as folder:
                part(args.heddle, folder, args.kills, random.Random(args.seed))
    except Failed as failed:
        print(f"failed: {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
