#!/usr/bin/env python3
"""Text that `heddle train` generates during training: samples.py HEDDLE

It equals the text of `heddle generate` for a checkpoint of the same step, and the weights do not
depend on it."""
import json
import os
import subprocess
import sys
import tempfile

SMALL = ["--training.seq_len=32", "--optimizer.lr=1e-2", "--lr_scheduler.warmup_steps=0"]
LLAMA = [*SMALL, "--model=llama3", "--model.n_layers=2", "--model.dim=64", "--model.n_heads=4", "--model.n_kv_heads=2", "--model.ffn_dim=96",
         "--model.vocab_size=256"]
MIXTURE = [*SMALL, "--model=deepseek_v3", "--flavor=debugmodel", "--model.n_layers=2", "--model.dim=64", "--model.n_heads=4", "--model.ffn_dim=96",
           "--model.moe.experts=4", "--model.moe.top_k=2", "--model.moe.ffn_dim=32", "--model.vocab_size=256"]
PIPELINE = ["--parallelism.pipeline_parallel_degree=2", "--parallelism.pipeline_parallel_schedule=1F1B", "--training.local_batch_size=2",
            "--parallelism.pipeline_parallel_microbatch_size=1"]
PROMPTS = ("// The ", "int ")
SAMPLES = ["--metrics.sample_every=4", "--metrics.sample_tokens=40", *(f"--metrics.sample_prompt={prompt}" for prompt in PROMPTS)]


def main():
    heddle = sys.argv[1]

    def run(*args, code=0):
        done = subprocess.run([heddle, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == code, f"{args}: exit code {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def check(folder, name, flags, steps):
        folder = os.path.join(folder, name)
        hashes = []
        for sampled in (SAMPLES, []):
            hashes.append(f"{folder}{len(sampled)}.hashes")
            more = [f"--checkpoint.folder={folder}", "--checkpoint.interval=4", "--checkpoint.keep=0"] if sampled else []
            out = run("train", *flags, f"--training.steps={steps}", f"--hashes={hashes[-1]}", *more, *sampled)
            lines = [line for line in out.splitlines() if line.startswith("sample step:")]
            assert len(lines) == (2 * (steps // 4) if sampled else 0), lines
        with open(hashes[0], "rb") as a, open(hashes[1], "rb") as b:
            assert a.read() == b.read(), f"{name}: weights depend on samples"
        with open(f"{folder}/metrics.jsonl") as file:
            rows = {row["step"]: row["samples"] for row in map(json.loads, file) if "samples" in row}
        assert list(rows) == list(range(4, steps + 1, 4)), rows
        assert all([sample["prompt"] for sample in samples] == list(PROMPTS) for samples in rows.values())
        # The first and the last sample.
        for step, number in ((4, 0), (steps, 1)):
            sample = rows[step][number]
            found = json.loads(run("generate", f"--checkpoint={folder}", f"--step={step}", f"--prompt={sample['prompt']}", "--tokens=40", "--json"))
            assert found["text"] == sample["text"], f"{name}, step {step}: {sample} and {found['text']!r}"
        print(f"{name}: samples are those of the checkpoints")

    with tempfile.TemporaryDirectory() as folder:
        check(folder, "one rank", LLAMA, 8)
        check(folder, "shards", [*LLAMA, "--parallelism.data_parallel_replicate_degree=2", "--parallelism.data_parallel_shard_degree=2",
                                 "--parallelism.tensor_parallel_degree=2"], 4)
        check(folder, "experts", [*MIXTURE, "--parallelism.data_parallel_shard_degree=2"], 4)
        check(folder, "pipeline", [*LLAMA, *PIPELINE], 4)
        said = run("train", *LLAMA, "--dp=2", "--nproc=2", *SAMPLES, code=1)
        assert "works with all ranks in one process" in said and "each of 2 ranks" in said, said
        said = run("train", *LLAMA, "--metrics.sample_prompt=x", code=1)
        assert "--metrics.sample_every" in said, said
        said = run("train", *LLAMA, *SAMPLES, "--metrics.sample_prompt=", "--training.steps=1", code=1)
        assert "--metrics.sample_prompt is empty" in said, said
        said = run("train", *LLAMA, "--training.dataset=synthetic", *SAMPLES, "--training.steps=1", code=1)
        assert "--metrics.sample_prompt has `// The`; expected token numbers" in said, said
        # Tokens without text are numbers.
        out = run("train", *LLAMA, "--training.dataset=synthetic", "--metrics.sample_every=1", "--metrics.sample_prompt=1,2",
                  "--metrics.sample_tokens=3", "--training.steps=1")
        line = next(line for line in out.splitlines() if line.startswith("sample step:"))
        assert len(line.split('text: "')[1].rstrip('"').split(",")) == 3, line
    return 0


if __name__ == "__main__":
    sys.exit(main())
