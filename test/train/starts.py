#!/usr/bin/env python3
"""How runs of `heddle train` start: which checkpoints and data they accept, and from which folder.

    starts.py HEDDLE

Also compares the validation loss of steps that are split into different numbers of batches.
"""
import json
import math
import os
import subprocess
import sys
import tempfile

from runs import HANG, MESHES, Failed, check, command, train

CONSTANT_LR = ["--lr_scheduler.decay=none", "--lr_scheduler.warmup_steps=0"]


def run_command(args, **options):
    return subprocess.run(args, capture_output=True, text=True, timeout=HANG, **options)


def validation_is_a_mean(heddle, folder):
    """The held-out rows are the same for every split, so their mean loss is, too."""
    splits = {
        "4": [],
        "2": ["--training.local_batch_size=2"],
        "1": ["--training.local_batch_size=1"],
        "dp2": ["--parallelism.data_parallel_shard_degree=2", "--training.local_batch_size=1"],
    }
    for divisor in ("valid_tokens", "all_tokens"):
        losses = {}
        for name, flags in splits.items():
            file = os.path.join(folder, f"{divisor}-{name}.jsonl")
            train(heddle, ["--precision=f64", "--training.global_batch_size=4",
                           "--validation.interval=1", "--validation.steps=3",
                           "--training.document_boundaries=true",
                           f"--training.loss_divisor={divisor}",
                           f"--metrics.jsonl={file}", *flags], 2)
            with open(file) as lines:
                rows = [json.loads(line) for line in lines]
            losses[name] = [row[key] for row in rows for key in ("loss", "validation_loss")]
            perplexities = [row.get("validation_perplexity") for row in rows]
            expected = [math.exp(row["validation_loss"]) if divisor == "valid_tokens" else None for row in rows]
            check(perplexities == expected or all(abs(a / b - 1) < 1e-12 for a, b in zip(perplexities, expected)),
                  f"perplexities {perplexities} with {divisor}")
        apart = max(abs(a - b) for other in losses.values() for a, b in zip(losses["4"], other))
        check(5 < losses["4"][1] < 7 and apart < 1e-9,
              f"losses divided by {divisor} do not depend on the split: {losses}")


def other_models_are_refused(heddle, folder):
    """All shapes fit; only constants differ between these models."""
    saved = os.path.join(folder, "saved")
    flags = [f"--checkpoint.folder={saved}", *CONSTANT_LR]
    train(heddle, flags, 1)
    others = {"n_heads": "33", "norm_eps": "0.1", "rope_theta": "100",
              "rope_scaling.kind": "llama", "max_length": "99"}
    for name, value in others.items():
        changed = [f"--model.{name}={value}"]
        if name == "n_heads":
            changed.append("--model.n_kv_heads=33")
        said = train(heddle, [*flags, *changed], 2, expect=1).stderr
        check(f"--model.{name}=" in said and f"this job has {value}" in said,
              f"another {name} is refused with both values")
    said = train(heddle, [*flags, "--optimizer.lr=0.5", "--optimizer.beta2=0.9"], 2).stderr
    check("--optimizer.lr is 0.5, but the checkpoint was trained with 8e-04" in said
          and "--optimizer.beta2 is 0.9" in said, "other settings of the optimizer are named")


def generate_uses_the_model_of_the_checkpoint(heddle, folder):
    saved = os.path.join(folder, "saved")
    train(heddle, [f"--checkpoint.folder={saved}"], 1)
    generate = [heddle, "generate", f"--checkpoint={saved}", "--prompt=the ", "--tokens=12"]
    before = run_command(generate)
    job = os.path.join(saved, "job.toml")
    with open(job) as file:
        text = file.read()
    check("n_heads = 11" in text and "n_kv_heads = 11" in text, "job.toml has the heads")
    with open(job, "w") as file:
        file.write(text.replace("heads = 11", "heads = 33"))
    after = run_command(generate)
    check(before.returncode == after.returncode == 0 and before.stdout == after.stdout
          and "n_heads 33 and 11" in after.stderr,
          f"generate takes the model from the checkpoint, not from job.toml: {after.stderr}")


def jobs_run_from_any_folder(heddle, folder):
    heddle = os.path.abspath(heddle)
    for name in ("a/data", "b"):
        os.makedirs(os.path.join(folder, name))
    with open(os.path.join(folder, "a/data/text.txt"), "w") as file:
        file.write("the quick brown fox " * 50)
    flags = ["--training.dataset=data", "--checkpoint.folder=./out", "--metrics.jsonl=log.jsonl",
             *CONSTANT_LR]
    first = run_command(command(heddle, flags, 2), cwd=os.path.join(folder, "a"))
    check(first.returncode == 0, f"a job with relative paths runs: {first.stderr}")
    repeat = [heddle, "train", f"--config={os.path.join(folder, 'a/out/job.toml')}"]
    elsewhere = os.path.join(folder, "b")
    again = run_command([*repeat, "--training.steps=3"], cwd=elsewhere)
    check(again.returncode == 0 and "resuming after step 2" in again.stderr
          and not os.listdir(elsewhere), f"job.toml repeats it from any folder: {again.stderr}")
    smaller = [*repeat, "--training.steps=4", "--training.local_batch_size=1",
               "--parallelism.data_parallel_shard_degree=2"]
    refused = run_command(smaller)
    check(refused.returncode == 1 and "--training.global_batch_size=4 keeps it" in refused.stderr,
          f"on another mesh, the flag that keeps the global batch is named: {refused.stderr}")
    kept = run_command([*smaller, "--training.global_batch_size=4"])
    check(kept.returncode == 0 and "resuming after step 3" in kept.stderr, "and that flag works")


def tokens_are_checked_first(heddle, folder):
    """A token outside the vocabulary is found before the first step, at any position."""
    tokens = [i % 257 for i in range(4000)]
    tokens[3900] = 257
    data = os.path.join(folder, "a.bin")
    with open(data, "wb") as file:
        file.write(b"".join(token.to_bytes(2, "little") for token in tokens))
    for where, flags in {"one process": [], "two": [*MESHES["dp2"], "--nproc=2"]}.items():
        run = run_command(command(heddle, [f"--training.dataset={data}", *flags], 1))
        check(run.returncode != 0 and "step:" not in run.stdout
              and "token at byte 7800 is 257" in run.stderr and "at least 258" in run.stderr,
              f"a token outside of the vocabulary is found at the start by {where}: {run.stderr}")
    train(heddle, [f"--training.dataset={data}", "--model.vocab_size=258"], 1)


def rows_of(file):
    with open(file) as lines:
        return [json.loads(line) for line in lines]


def flags_reach_the_run(heddle, folder):
    """Flags that no other test sets: each changes the run as its help states."""
    def losses(*flags):
        file = os.path.join(folder, "log.jsonl")
        train(heddle, [f"--metrics.jsonl={file}", *flags], 4)
        return rows_of(file)

    decay = ["--lr_scheduler.decay=linear", "--lr_scheduler.warmup_steps=0", "--optimizer.lr=1e-3"]
    last = [losses(*decay, f"--lr_scheduler.min_lr_factor={least}")[-1]["lr"] for least in (0, 0.5)]
    check(last[0] < 0.5e-3 < last[1], f"min_lr_factor is the least rate: {last}")

    data = os.path.join(folder, "a.bin")
    with open(data, "wb") as file:
        file.write(b"".join((i % 7).to_bytes(2, "little") for i in range(4000)))
    documents = [f"--training.dataset={data}", "--training.document_boundaries"]
    said = train(heddle, documents, 1, expect=1).stderr
    check("--training.document_end" in said, f"files without an end of documents need it: {said}")
    one = [losses(*documents, f"--training.document_end={end}")[0]["loss"] for end in (3, 6, 100)]
    check(len(set(one)) == 3, f"labels after the end of a document do not count: {one}")

    saved = os.path.join(folder, "saved")
    for flag in ("--checkpoint.async=false", "--checkpoint.async"):
        said = train(heddle, [f"--checkpoint.folder={saved}-{flag}", flag], 2).stderr
        check("saved step 2" in said, f"{flag} saves")
    states = [os.path.join(f"{saved}-{flag}", "job.toml") for flag in
              ("--checkpoint.async=false", "--checkpoint.async")]
    texts = [open(state).read() for state in states]
    check("async = false" in texts[0] and "async = true" in texts[1], "job.toml has the switch")


def pipes_are_not_files(heddle, folder):
    os.mkfifo(os.path.join(folder, "model.safetensors"))
    run = run_command(command(heddle, [f"--checkpoint.initial_load_path={folder}"], 1))
    check(run.returncode == 1 and "expected a regular file" in run.stderr,
          "a pipe in the place of model.safetensors is refused")


def main():
    try:
        for part in (validation_is_a_mean, other_models_are_refused,
                     generate_uses_the_model_of_the_checkpoint, jobs_run_from_any_folder,
                     tokens_are_checked_first, flags_reach_the_run, pipes_are_not_files):
            with tempfile.TemporaryDirectory() as folder:
                part(sys.argv[1], folder)
    except Failed as failed:
        print(f"failed: {failed}")
        return 1
    return 0


sys.exit(main())
