"""Measured training steps, with their sources: the rows of docs/accuracy.md."""

TITAN = "TorchTitan benchmarks/llama3_h100_202412_torchtitan.md, 2024-12"
TITAN_A100 = "TorchTitan docs/performance.md, 2024"
FOUNDRY = "MosaicML LLM Foundry scripts/train/benchmarking/README.md, 2023"
HERE = "bench/gpu/rivals.py, torch 2.11, one H200, 2026-11-19"
OURS = "docs/gpu.md, one H200, 2026-11"


def llama(dim, layers, heads, kv_heads, ffn, vocabulary):
    return [f"--model.dim={dim}", f"--model.n_layers={layers}", f"--model.n_heads={heads}", f"--model.n_kv_heads={kv_heads}",
            f"--model.head_dim={dim // heads}", f"--model.ffn_dim={ffn}", f"--model.vocab_size={vocabulary}"]


def batch(sequences, length):
    return [f"--training.local_batch_size={sequences}", f"--training.seq_len={length}"]


def recompute(mode, option=None):
    return [f"--activation_checkpoint.mode={mode}"] + ([f"--activation_checkpoint.selective_ac_option={option}"] if option else [])


# Dimension, layers, heads. MPT has two matrices of 4 x dim in a block; Llama's three of 8 / 3 x dim
# have the same parameters.
MPT = {"1b": (2048, 24, 16), "3b": (2560, 32, 20), "7b": (4096, 32, 32), "13b": (5120, 40, 40), "30b": (7168, 48, 56),
       "70b": (8192, 80, 64)}


def mpt(size):
    dim, layers, heads = MPT[size]
    return llama(dim, layers, heads, heads, round(dim * 8 / 3 / 256) * 256, 50368)


class Row:
    """`tokens`: per second and device; or `ms`: of a step. `peak`: GiB. `group`: rows of one source,
    machine and execution, which share constants. `goal`: the largest error that was asked for."""

    def __init__(self, name, group, cluster, execution, arguments, source, tokens=None, ms=None, peak=None, goal=20):
        self.name, self.group, self.cluster, self.execution = name, group, cluster, execution
        self.arguments, self.source, self.tokens, self.ms, self.peak, self.goal = arguments, source, tokens, ms, peak, goal


def rows():
    out = []
    big = ["--model=llama3", "--attention=flash", "--precision=bf16"]
    for devices, eager, compiled in ((8, (5762, 82.4), (6667, 77.0)), (128, (5605, 67.0), (6514, 62.0))):
        for execution, (tokens, peak) in (("eager", eager), ("compiled", compiled)):
            out.append(Row(f"Llama 3 8B, {devices} H100, {execution}", "H100 500 W", "h100-500w-8x", execution,
                           [*big, "--flavor=8B", *batch(2, 8192), *recompute("selective", "op"),
                            f"--parallelism.data_parallel_shard_degree={devices}"], TITAN, tokens=tokens, peak=peak, goal=10))
    a100 = [*big, "--parallelism.data_parallel_shard_degree=64"]
    llama13, llama70 = llama(5120, 40, 40, 40, 13824, 32000), llama(8192, 80, 64, 8, 28672, 32000)
    for name, arguments, tokens, goal in (
            ("Llama 3 8B, selective ops", ["--flavor=8B", *batch(1, 8192), *recompute("selective", "op")], 2973, 10),
            ("Llama 3 8B, every second layer", ["--flavor=8B", *batch(1, 8192), *recompute("selective", "2")], 2904, 20),
            ("Llama 3 70B, full", ["--flavor=70B", *batch(1, 8192), *recompute("full")], 331, 10),
            ("Llama 2 13B, none", [*llama13, *batch(2, 4096), *recompute("none")], 2162, 20),
            ("Llama 2 13B, every second layer", [*llama13, *batch(2, 4096), *recompute("selective", "2")], 1914, 20),
            ("Llama 2 13B, selective ops", [*llama13, *batch(2, 4096), *recompute("selective", "op")], 1904, 20),
            ("Llama 2 70B, selective ops", [*llama70, *batch(1, 4096), *recompute("selective", "op")], 355, 20),
            ("Llama 2 70B, full", [*llama70, *batch(2, 4096), *recompute("full")], 353, 20)):
        out.append(Row(name + ", 64 A100", "A100", "a100-8x", "eager", [*a100, *arguments], TITAN_A100, tokens=tokens, goal=goal))
    # All rows of sequences of 2048 tokens, from 1b on.
    for machine, cluster, runs in (
            ("H100", "h100-8x", (("1b", 8, 14, 0, 45455), ("1b", 16, 20, 0, 46037), ("1b", 32, 20, 0, 45130), ("1b", 64, 20, 0, 44402),
                                 ("3b", 16, 10, 0, 24142), ("3b", 32, 6, 0, 23021), ("3b", 64, 6, 0, 22525), ("7b", 8, 6, 0, 10643),
                                 ("13b", 8, 2, 0, 4792), ("13b", 16, 2, 0, 4767), ("13b", 32, 2, 0, 4811), ("13b", 64, 2, 0, 4800),
                                 ("30b", 8, 3, 1, 2002), ("30b", 16, 10, 1, 2263), ("30b", 32, 14, 1, 2308), ("70b", 32, 2, 1, 882),
                                 ("70b", 64, 8, 1, 1039))),
            ("A100", "a100-8x", (("1b", 8, 14, 0, 20513), ("3b", 8, 10, 0, 10811), ("7b", 8, 6, 0, 4641), ("13b", 8, 2, 0, 2262),
                                 ("30b", 8, 3, 1, 916), ("70b", 32, 2, 1, 373), ("70b", 64, 8, 1, 410)))):
        for size, devices, sequences, full, tokens in runs:
            out.append(Row(f"MPT {size}, {devices} {machine}", f"{machine}, MPT", cluster, "eager",
                           [*big, *mpt(size), *batch(sequences, 2048), *recompute("full" if full else "none"),
                            f"--parallelism.data_parallel_shard_degree={devices}"], FOUNDRY, tokens=tokens))
    shapes = {"160M": ["--model=llama3", *llama(768, 12, 12, 4, 2048, 32000), *batch(8, 1024)],
              "1.5B": ["--model=llama3", *llama(2048, 16, 32, 8, 8192, 128256), *batch(4, 4096)],
              "Qwen 3 0.6B": ["--model=qwen3", "--flavor=0.6B", *batch(8, 2048)]}
    for shape, execution, ms, peak, source in (
            ("160M", "heddle", 14.4, 4.22, OURS), ("160M", "compiled", 20.6, 4.3, HERE), ("160M", "eager", 28.7, 7.1, HERE),
            ("1.5B", "heddle", 251, 41.7, OURS), ("1.5B", "compiled", 263, 42.2, OURS), ("1.5B", "eager", 303.0, 65.3, HERE),
            ("Qwen 3 0.6B", "heddle", 147.7, 31.9, OURS), ("Qwen 3 0.6B", "compiled", 161.0, 32.1, HERE),
            ("Qwen 3 0.6B", "eager", 248.0, 57.7, HERE)):
        out.append(Row(f"{shape}, H200, {execution}", "H200", "h200-8x", execution,
                       [*shapes[shape], "--attention=cudnn", "--precision=bf16", "--parallelism.data_parallel_shard_degree=1"], source,
                       ms=ms, peak=peak, goal=8))
    return out
