#!/usr/bin/env python3
"""Whole runs of `heddle train` with a pipeline: against accumulation on one rank, in one process
and in many, interrupted and resumed with and without a pipeline.

    pipelines.py HEDDLE
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from runs import HANG, Failed, check, children_of, command, hashes_of, train

# Four sequences per step.
MODEL = ["--model.n_layers=4", "--model.dim=32", "--model.n_heads=4", "--model.n_kv_heads=2",
         "--model.ffn_dim=48", "--training.seq_len=16", "--lr_scheduler.decay=none",
         "--lr_scheduler.warmup_steps=0"]
PIPELINE = "--parallelism.pipeline_parallel"
# One rank adds the gradients of four micro-batches, as each pipeline does.
ALONE = [*MODEL, "--training.local_batch_size=1", "--training.global_batch_size=4"]


def pipeline(degree, schedule="1F1B", shard=1, *flags):
    return [*MODEL, f"{PIPELINE}_degree={degree}", f"{PIPELINE}_schedule={schedule}",
            f"--parallelism.data_parallel_shard_degree={shard}",
            f"--training.local_batch_size={4 // shard}", *flags]


def bits(path, step):
    """Hashes by name of a run in which each rank has whole tensors, and the losses."""
    with open(path) as lines:
        rows = [json.loads(line) for line in lines]
    losses = {(row["loss"], row.get("grad_norm")) for row in rows if row["step"] == step and "loss" in row}
    return {name: sha for (_, name), sha in hashes_of(path, step).items()}, losses


def pipelines_are_accumulation(heddle, folder):
    """Loss, norm, gradients and weights have the same bits, on every rank."""
    reference = os.path.join(folder, "alone.jsonl")
    hashes = ["--hash-gradients", "--validation.interval=2", "--validation.steps=2"]
    train(heddle, [*ALONE, f"--hashes={reference}", *hashes], 4)
    expected = bits(reference, 4)
    check(len(expected[0]) > 20 and len(expected[1]) == 1, "the reference has hashes")
    for degree, schedule in ((2, "1F1B"), (4, "GPipe"), (2, "Interleaved1F1B"), (2, "ZBV")):
        file = os.path.join(folder, f"{schedule}.jsonl")
        train(heddle, pipeline(degree, schedule, 1, f"--hashes={file}", *hashes), 4)
        check(bits(file, 4) == expected, f"{schedule} on {degree} ranks has the bits of accumulation")


def processes_are_lockstep(heddle, folder):
    """One process per rank has the bits of one process, also when it resumes from its checkpoint,
    gathers and reduces for each micro-batch, and runs the pipeline twice per step."""
    groups = [f"{PIPELINE}_gather_every=1", f"{PIPELINE}_reduce_every=1", "--training.global_batch_size=8"]
    for schedule, more in (("1F1B", []), ("ZBV", groups)):
        saved = os.path.join(folder, schedule)
        files = [os.path.join(folder, f"{schedule}.{where}.jsonl") for where in ("lockstep", "processes")]
        flags = pipeline(2, schedule, 2, f"--checkpoint.folder={saved}", "--validation.interval=2",
                         "--validation.steps=2", *more)
        train(heddle, flags, 2)
        shutil.copytree(saved, f"{saved}.copy")
        for file, own in zip(files, ([], ["--nproc=4", f"--checkpoint.folder={saved}.copy"])):
            train(heddle, [*flags, f"--hashes={file}", "--hash-gradients", *own], 4)
        texts = [open(file).read() for file in files]
        check(texts[0] == texts[1] and texts[0].count("loss") == 8,
              f"{schedule}: one process and four have the same bits, and every rank has the loss")
        verified = subprocess.run([heddle, "verify", *command(heddle, pipeline(2, schedule, 2, *more), 2)[2:], "--nproc=4",
                                   "--against=processes"], capture_output=True, text=True, timeout=HANG, check=False)
        check(verified.returncode == 0,
              f"verify compares them: {verified.stdout}{verified.stderr}")


def validation_is_the_same(heddle, folder):
    losses = []
    for name, flags in {"alone": ALONE, "1F1B": pipeline(2), "ZBV": pipeline(2, "ZBV", 2)}.items():
        file = os.path.join(folder, f"{name}.jsonl")
        train(heddle, [*flags, "--precision=f64", f"--metrics.jsonl={file}", "--validation.interval=2",
                       "--validation.steps=3"], 4)
        with open(file) as lines:
            rows = [json.loads(line) for line in lines]
        losses.append([row[key] for row in rows for key in ("loss", "grad_norm", "validation_loss") if key in row])
    apart = max(abs(a - b) for other in losses[1:] for a, b in zip(losses[0], other))
    check(len(losses[0]) == 10 and len({len(one) for one in losses}) == 1 and apart < 1e-9,
          f"loss, norm and validation loss do not depend on the pipeline ({apart:.1e} apart)")


def checkpoints_fit_every_mesh(heddle, folder):
    """Resumes with and without a pipeline, and has the bits of an undisturbed run."""
    reference = os.path.join(folder, "alone.jsonl")
    train(heddle, [*ALONE, f"--hashes={reference}"], 6)
    saved = os.path.join(folder, "saved")
    last = os.path.join(folder, "last.jsonl")
    runs = [pipeline(2), ALONE, pipeline(2, "ZBV"), pipeline(4), pipeline(2, "Interleaved1F1B"), pipeline(2)]
    for step, flags in enumerate(runs, 1):
        run = train(heddle, [*flags, f"--checkpoint.folder={saved}", f"--hashes={last}"], step)
        check(step == 1 or f"resuming after step {step - 1}" in run.stderr, f"run {step} resumes")
    check(bits(last, 6) == bits(reference, 6), "six runs on several meshes have the bits of one")
    ends = os.path.join(folder, "dp.jsonl")
    train(heddle, [*pipeline(2, "1F1B", 2), f"--checkpoint.folder={saved}"], 7)
    train(heddle, [*ALONE, f"--checkpoint.folder={saved}", f"--metrics.jsonl={ends}"], 8)
    train(heddle, [*ALONE, f"--metrics.jsonl={reference}"], 8)
    got, expected = ([json.loads(line)["loss"] for line in open(file)][-1] for file in (ends, reference))
    check(abs(got - expected) < 1e-4, f"shards of a pipeline resume: {got} and {expected}")
    smaller = [*pipeline(2), "--training.local_batch_size=2", f"--checkpoint.folder={saved}"]
    refused = train(heddle, smaller, 9, expect=1)
    keeps = "--training.global_batch_size=4"
    check(f"{keeps} keeps it" in refused.stderr,
          f"another batch is refused, with the flag that keeps it: {refused.stderr}")
    check("resuming after step 8" in train(heddle, [*smaller, keeps], 9).stderr, "the flag keeps it")


def models_leave_a_pipeline(heddle, folder):
    """`generate` and `export` read the checkpoint of a pipeline as any other."""
    texts = []
    for name, flags in {"alone": ALONE, "pipeline": pipeline(2, "ZBV")}.items():
        saved = os.path.join(folder, name)
        train(heddle, [*flags, f"--checkpoint.folder={saved}"], 3)
        generate = subprocess.run([heddle, "generate", f"--checkpoint={saved}", "--prompt=the ", "--tokens=8"],
                                  capture_output=True, text=True, timeout=HANG, check=False)
        target = os.path.join(folder, f"{name}.hf")
        export = subprocess.run([heddle, "export", f"--hf={target}", f"--checkpoint={saved}"],
                                capture_output=True, text=True, timeout=HANG, check=False)
        check(generate.returncode == export.returncode == 0, f"{name}: {generate.stderr}{export.stderr}")
        with open(os.path.join(target, "model.safetensors"), "rb") as weights:
            texts.append((generate.stdout, weights.read()))
    check(texts[0] == texts[1], "they generate the same text and export the same file")


def bad_losses_are_handled(heddle, folder):
    """Steps are undone on all coordinates, and the node of a NaN is found on the right one."""
    nan = ["--optimizer.lr=1e30", "--training.max_norm=0"]
    found = []
    for flags in (ALONE, pipeline(2)):
        file = os.path.join(folder, "skipped.jsonl")
        skipped = train(heddle, [*flags, *nan, "--fault.on_nan=skip", f"--hashes={file}"], 4)
        check("the step is skipped" in skipped.stderr, "steps are skipped")
        stopped = train(heddle, [*flags, *nan], 4, expect=4)
        place = re.search(r"^step 2, rank (\d): the first NaN\n +(%.* = .*@norm)$", stopped.stderr, re.M)
        check(place, f"the node is found: {stopped.stderr}")
        found.append((bits(file, 4)[0], place[2]))
        rank = place[1]
    check(found[0] == found[1], "skipped steps leave the same weights, and the node is the same")
    check(rank == "1", "its rank is that of the last stage")


def killed_ranks_lose_nothing(heddle, folder):
    """A rank of each stage is killed after a checkpoint. The job restarts, and has the bits of an
    undisturbed one."""
    flags = pipeline(2, "1F1B", 2, "--checkpoint.interval=1", "--nproc=4")
    reference = os.path.join(folder, "reference.jsonl")
    train(heddle, [*flags, f"--hashes={reference}"], 21)
    for victim in (0, 3):
        saved = os.path.join(folder, f"killed-{victim}")
        with open(f"{saved}.log", "w+") as said:
            run = subprocess.Popen(
                command(heddle, [*flags, f"--checkpoint.folder={saved}", "--fault.max_restarts=1",
                                 "--runtime.timeout=20"], 20),
                stdout=subprocess.DEVNULL, stderr=said, text=True)
            try:
                while run.poll() is None and not os.path.isdir(os.path.join(saved, "step-00000002")):
                    time.sleep(0.02)
                os.kill(children_of(run.pid)[victim], signal.SIGKILL)
                code = run.wait(timeout=HANG)
            finally:
                run.kill()
                run.wait()
            said.seek(0)
            text = said.read()
        check(code == 0 and f"rank {victim}" in text and "resuming after step" in text,
              f"the job restarts after rank {victim} was killed: {code} {text}")
        last = os.path.join(folder, "last.jsonl")
        train(heddle, [*flags, f"--checkpoint.folder={saved}", f"--hashes={last}"], 21)
        check(hashes_of(last, 21) == hashes_of(reference, 21), "it has the bits of an undisturbed one")


def main():
    try:
        for part in (
            pipelines_are_accumulation,
            processes_are_lockstep,
            validation_is_the_same,
            checkpoints_fit_every_mesh,
            models_leave_a_pipeline,
            bad_losses_are_handled,
            killed_ranks_lose_nothing,
        ):
            with tempfile.TemporaryDirectory() as folder:
                part(sys.argv[1], folder)
    except Failed as failed:
        print(f"failed: {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
