#!/usr/bin/env python3
"""Compares training on text with PyTorch: text_loss.py HEDDLE [--steps N] [--layers N] [--length
N]

PyTorch's eager autograd and AdamW train the llama3 debug model of transformers. `heddle train`
trains the same weights on four ranks with the same bytes. Losses must agree within TOLERANCES.
With 200 steps or more, the last loss must be below 3.0 on both sides. A run of Heddle without
weight decay must not agree. Skipped, with a message, without transformers."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

RANKS = 4
# The maximum relative difference, up to a step. Rounding makes 6e-7 in 10 steps and 2e-6 in 20, and
# grows from step to step. A missing weight decay makes 2.5e-4 in 10 and 9e-4 in 20.
TOLERANCES = ((20, 1e-4), (10**9, 1e-3))
LEARNT = 3.0
RATE, BETAS, EPS, DECAY, MOST_NORM, WARMUP = 8e-4, (0.9, 0.95), 1e-8, 0.1, 1.0, 10


def corpus(size):
    """The docs and headers of the project, as one text."""
    root = pathlib.Path(__file__).resolve().parents[2]
    files = sorted([*root.glob("docs/*.md"), *root.glob("heddle/**/*.h"), *root.glob("heddle/**/*.cc")])
    text = b"".join(file.read_text(encoding="utf-8").encode("ascii", "ignore") for file in files)
    return (text * (size // len(text) + 1))[:size]


def train_there(torch, model, text, options):
    """Returns rows in order, split as in docs/data.md."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, eps=EPS, weight_decay=DECAY)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARMUP))
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    losses = []
    for step in range(options.steps):
        begins = [(step * RANKS + row) * options.length for row in range(RANKS)]
        rows = torch.stack([tokens[begin:begin + options.length + 1] for begin in begins])
        logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MOST_NORM)
        optimizer.step()
        warm_up.step()
        losses.append(loss.item())
    return losses


def train_here(heddle, folder, text_file, options, decay=DECAY):
    metrics = os.path.join(folder, f"metrics_{decay}.jsonl")
    subprocess.check_call(
        [heddle, "train", "--model=hf", f"--checkpoint.initial_load_path={folder}", "--precision=f32",
         f"--parallelism.data_parallel_shard_degree={RANKS}", "--training.local_batch_size=1", f"--training.seq_len={options.length}",
         f"--training.steps={options.steps}", f"--training.dataset={text_file}", "--training.shuffle=false",
         f"--training.max_norm={MOST_NORM}", f"--optimizer.lr={RATE}", f"--optimizer.beta1={BETAS[0]}", f"--optimizer.beta2={BETAS[1]}",
         f"--optimizer.eps={EPS}", f"--optimizer.weight_decay={decay}", f"--lr_scheduler.warmup_steps={WARMUP}",
         f"--metrics.jsonl={metrics}"], stdout=subprocess.DEVNULL)
    with open(metrics, encoding="utf-8") as file:
        return [line["loss"] for line in map(json.loads, file) if "loss" in line]


def furthest(here, there):
    """Returns the largest relative difference of two lists of losses as a share of its
    tolerance, that difference, and the step."""
    shares = []
    for step, (a, b) in enumerate(zip(here, there, strict=True), 1):
        allowed = next(tolerance for last, tolerance in TOLERANCES if step <= last)
        shares.append((abs(a - b) / b / allowed, abs(a - b) / b, step))
    return max(shares)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--length", type=int, default=128)
    options = parser.parse_args()
    try:
        import transformers
    except ImportError:
        print("skipped: transformers is not installed")
        return 77
    import torch
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(1)
    config = transformers.LlamaConfig(hidden_size=256, intermediate_size=768, num_hidden_layers=options.layers, num_attention_heads=16,
                                      num_key_value_heads=16, vocab_size=2048, rope_theta=500000.0, rms_norm_eps=1e-5,
                                      tie_word_embeddings=False, max_position_embeddings=4096)
    model = transformers.LlamaForCausalLM(config)
    text = corpus((options.steps * RANKS + 1) * options.length)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        text_file = os.path.join(folder, "corpus.txt")
        pathlib.Path(text_file).write_bytes(text)
        here = train_here(options.heddle, folder, text_file, options)
        without = train_here(options.heddle, folder, text_file, options, decay=0)
    there = train_there(torch, model, text, options)
    apart, noticed = furthest(here, there), furthest(without, there)
    print(f"{len(here)} losses here, {len(there)} there; first {here[0]:.4f} and {there[0]:.4f}, last {here[-1]:.4f} and {there[-1]:.4f}; "
          f"furthest apart at step {apart[2]}, by {apart[1]:.2e}, {apart[0]:.2g} times what it may; "
          f"without weight decay here at step {noticed[2]}, by {noticed[1]:.2e}, {noticed[0]:.2g} times")
    learnt = options.steps < 200 or max(here[-1], there[-1]) < LEARNT
    return 0 if len(here) == options.steps and apart[0] <= 1 < noticed[0] and learnt else 1


if __name__ == "__main__":
    sys.exit(main())
