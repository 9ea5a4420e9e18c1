#!/usr/bin/env python3
"""Decoding against transformers on CPU: generate_bench.py HEDDLE [RESULT] [--tokens N] [--threads N]

A Llama of 134 million parameters, trained for one step and exported to a Hugging Face folder, so
both have the same weights. Both take the likeliest tokens after the same prompt, in turns. A rate
is that of the tokens after the first: the time of a run of N + 1 tokens less that of a run of one
token, which contains loading and the prompt. The ratio is that of the best rates."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

MODEL = ["--model=llama2", "--flavor=7B", "--model.dim=768", "--model.n_layers=12", "--model.n_heads=12", "--model.n_kv_heads=12",
         "--model.ffn_dim=2048", "--model.vocab_size=32000", "--training.seq_len=512", "--training.local_batch_size=1"]
PROMPT = [(37 * i + 11) % 32000 for i in range(64)]
ROUNDS = 3


class Heddle:
    def __init__(self, heddle, folder, threads):
        self.command = [heddle, "generate", f"--checkpoint={folder}", f"--prompt={','.join(map(str, PROMPT))}", "--json",
                        f"--threads={threads}"]

    def run(self, tokens):
        done = subprocess.run(self.command + [f"--tokens={tokens}"], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)["tokens"]


class Transformers:
    def __init__(self, torch, transformers, folder, threads, dtype):
        torch.set_num_threads(threads)
        self.torch = torch
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()

    def run(self, tokens):
        prompt = self.torch.tensor([PROMPT])
        with self.torch.inference_mode():
            out = self.model.generate(prompt, attention_mask=self.torch.ones_like(prompt), max_new_tokens=tokens,
                                      min_new_tokens=tokens, do_sample=False, use_cache=True, pad_token_id=0)
        return out[0, len(PROMPT):].tolist()


def seconds(run, tokens):
    begin = time.perf_counter()
    made = run(tokens)
    return time.perf_counter() - begin, made


def rates(sides, tokens):
    """Returns tokens per second of each side, and its tokens."""
    best, made = {name: 0 for name in sides}, {}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            first, _ = seconds(side.run, 1)
            both, made[name] = seconds(side.run, tokens + 1)
            best[name] = max(best[name], tokens / (both - first))
    return best, made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle")
    parser.add_argument("result", nargs="?")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    try:
        import torch
        import transformers
    except ImportError:
        print("skipped: decoding against transformers: the package is not installed")
        return 0
    transformers.utils.logging.set_verbosity_error()
    results = {}
    for precision in ("f32", "bf16"):
        with tempfile.TemporaryDirectory() as folder:
            run = os.path.join(folder, "run")
            # The step computes in f32; job.toml states the precision of `generate`.
            subprocess.run([options.heddle, "train", *MODEL, "--precision=f32", "--training.dataset=synthetic", "--training.steps=1",
                            f"--checkpoint.folder={run}"], check=True, capture_output=True)
            job = pathlib.Path(run, "job.toml")
            job.write_text(job.read_text().replace('precision = "f32"', f'precision = "{precision}"'))
            hf = os.path.join(folder, "hf")
            subprocess.run([options.heddle, "export", f"--checkpoint={run}", f"--hf={hf}"], check=True, capture_output=True)
            dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[precision]
            sides = {"transformers": Transformers(torch, transformers, hf, options.threads, dtype),
                     "heddle": Heddle(options.heddle, run, options.threads)}
            best, made = rates(sides, options.tokens)
        if precision == "f32" and made["heddle"] != made["transformers"]:
            sys.exit(f"f32: other tokens: {made['heddle'][:8]}..., expected {made['transformers'][:8]}...")
        results[precision] = {"threads": options.threads, "tokens": options.tokens,
                              **{f"{name}_tokens_s": rate for name, rate in best.items()}}
        ratio = best["heddle"] / best["transformers"]
        print(f"{precision}, {options.threads} threads: transformers {best['transformers']:.1f} tokens/s, "
              f"heddle {best['heddle']:.1f} tokens/s, {ratio:.2f} times as fast")
    if options.result:
        pathlib.Path(options.result).write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
