"""Measured training steps, with their sources: the rows of docs/accuracy.md."""

TITAN = "TorchTitan benchmarks/llama3_h100_202412_torchtitan.md, 2024-12"
TITAN_TP = "TorchTitan benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md, 2025-06"
TITAN_A100 = "TorchTitan docs/performance.md, 2024"
FOUNDRY = "MosaicML LLM Foundry scripts/train/benchmarking/README.md, 2023"
FMS = "foundation-model-stack/fms-fsdp README.md, 2024: 128 A100 with 400 Gb/s"
HERE = "bench/gpu/rivals.py and family.py, torch 2.11, one H200, 2026-11-19"
OURS = "heddle train, one H200, 2026-11"


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


# Size, tokens of a sequence, devices, sequences of a micro-batch, micro-batches, full recomputation,
# and tokens per second and device: all rows in bf16 from 1b on, but 30b with 8192 tokens, which
# needs 97 % of the memory, so that the allocator frees and allocates in every step.
FOUNDRY_H100 = (
    ("70b", 2048, 512, 8, 1, 1, 1007), ("70b", 2048, 256, 8, 1, 1, 1035), ("70b", 2048, 128, 8, 1, 1, 1058),
    ("30b", 2048, 512, 8, 1, 1, 2115), ("30b", 2048, 256, 8, 1, 1, 2148), ("30b", 2048, 128, 8, 1, 1, 2199),
    ("13b", 2048, 512, 16, 1, 1, 4952), ("13b", 2048, 256, 16, 1, 1, 4989), ("13b", 2048, 128, 16, 1, 1, 5080),
    ("7b", 2048, 512, 6, 1, 0, 9670), ("7b", 2048, 256, 6, 1, 0, 10119), ("7b", 2048, 128, 6, 1, 0, 10475),
    ("3b", 2048, 512, 8, 1, 0, 21664), ("3b", 2048, 256, 8, 1, 0, 22772), ("3b", 2048, 128, 8, 1, 0, 23422),
    ("1b", 2048, 512, 12, 1, 0, 39837), ("1b", 2048, 256, 12, 1, 0, 42555), ("1b", 2048, 128, 12, 1, 0, 44123),
    ("70b", 2048, 64, 8, 4, 1, 1039), ("70b", 2048, 32, 2, 16, 1, 882),
    ("30b", 4096, 8, 1, 21, 1, 1802), ("30b", 2048, 32, 14, 3, 1, 2308), ("30b", 2048, 16, 10, 3, 1, 2263),
    ("30b", 2048, 8, 3, 21, 1, 2002), ("30b", 1024, 8, 6, 21, 1, 2084), ("13b", 32768, 8, 1, 3, 1, 1976),
    ("13b", 16384, 8, 3, 3, 1, 2985), ("13b", 4096, 8, 10, 3, 1, 4717), ("13b", 2048, 64, 2, 1, 0, 4800),
    ("13b", 2048, 32, 2, 1, 0, 4811), ("13b", 2048, 16, 2, 1, 0, 4767), ("13b", 2048, 8, 2, 1, 0, 4792),
    ("13b", 1024, 8, 40, 3, 1, 5502), ("7b", 65536, 8, 1, 2, 1, 1956), ("7b", 32768, 8, 2, 2, 1, 3318),
    ("7b", 8192, 8, 8, 2, 1, 6935), ("7b", 4096, 8, 16, 2, 1, 8611), ("7b", 2048, 8, 6, 1, 0, 10643),
    ("7b", 1024, 8, 64, 2, 1, 10203), ("3b", 65536, 8, 1, 2, 1, 3262), ("3b", 32768, 8, 3, 6, 1, 5873),
    ("3b", 16384, 8, 1, 6, 0, 11152), ("3b", 8192, 8, 3, 6, 0, 16578), ("3b", 4096, 8, 5, 6, 0, 20964),
    ("3b", 2048, 64, 6, 3, 0, 22525), ("3b", 2048, 32, 6, 3, 0, 23021), ("3b", 2048, 16, 10, 3, 0, 24142),
    ("3b", 1024, 8, 20, 6, 0, 27046), ("3b", 512, 8, 40, 6, 0, 27965), ("1b", 65536, 8, 1, 2, 1, 5506),
    ("1b", 32768, 8, 1, 4, 0, 12025), ("1b", 16384, 8, 2, 4, 0, 19649), ("1b", 8192, 8, 3, 4, 0, 29157),
    ("1b", 4096, 8, 7, 4, 0, 38535), ("1b", 2048, 64, 20, 1, 0, 44402), ("1b", 2048, 32, 20, 1, 0, 45130),
    ("1b", 2048, 16, 20, 1, 0, 46037), ("1b", 2048, 8, 14, 1, 0, 45455), ("1b", 1024, 8, 18, 4, 0, 48910),
    ("1b", 512, 8, 56, 4, 0, 52275),
)
FOUNDRY_A100 = (
    ("70b", 2048, 64, 8, 4, 1, 410), ("70b", 2048, 32, 2, 16, 1, 373),
    ("30b", 4096, 8, 1, 21, 1, 814), ("30b", 2048, 8, 3, 21, 1, 916), ("30b", 1024, 8, 6, 21, 1, 946),
    ("30b", 512, 8, 12, 21, 1, 967), ("13b", 32768, 8, 1, 3, 1, 1016), ("13b", 16384, 8, 3, 3, 1, 1431),
    ("13b", 8192, 8, 5, 3, 1, 1795), ("13b", 4096, 8, 10, 3, 1, 2060), ("13b", 2048, 8, 2, 3, 0, 2262),
    ("13b", 1024, 8, 40, 3, 1, 2330), ("7b", 65536, 8, 1, 2, 1, 1013), ("7b", 32768, 8, 2, 2, 1, 1672),
    ("7b", 16384, 8, 4, 2, 1, 2453), ("7b", 8192, 8, 8, 2, 1, 3206), ("7b", 4096, 8, 16, 2, 1, 3684),
    ("7b", 2048, 8, 6, 2, 0, 4641), ("7b", 1024, 8, 64, 2, 1, 4357), ("3b", 65536, 8, 1, 2, 1, 1767),
    ("3b", 32768, 8, 3, 6, 1, 3029), ("3b", 16384, 8, 1, 6, 0, 5529), ("3b", 8192, 8, 3, 6, 0, 7695),
    ("3b", 4096, 8, 5, 6, 0, 9457), ("3b", 2048, 8, 10, 2, 0, 10811), ("3b", 1024, 8, 20, 6, 0, 11580),
    ("3b", 512, 8, 40, 6, 0, 12127), ("1b", 65536, 8, 1, 2, 1, 3044), ("1b", 32768, 8, 1, 4, 0, 6275),
    ("1b", 16384, 8, 2, 4, 0, 9956), ("1b", 8192, 8, 3, 4, 0, 13814), ("1b", 4096, 8, 7, 4, 0, 17807),
    ("1b", 2048, 8, 14, 4, 0, 20513), ("1b", 1024, 8, 18, 4, 0, 22112), ("1b", 512, 8, 56, 4, 0, 23148),
)


class Row:
    """`tokens`: per second and device; or `ms`: of a step. `peak`: GiB. `group`: rows of one source,
    machine and execution, which share constants. `goal`: the largest error that was asked for.
    `batches`: micro-batches of a step, of which the last one has the optimizer. `changes`: values of
    the cluster's file that differ on the machine of the row."""

    def __init__(self, name, group, cluster, execution, arguments, source, tokens=None, ms=None, peak=None, goal=15, batches=1, changes=()):
        self.name, self.group, self.cluster, self.execution = name, group, cluster, execution
        self.arguments, self.source, self.tokens, self.ms, self.peak, self.goal = arguments, source, tokens, ms, peak, goal
        self.batches, self.changes = batches, changes


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
    for flavor, shard, sequences, mode, tokens in (("70B", 32, 16, recompute("full"), 597.3),
                                                   ("8B", 8, 12, recompute("selective", "op"), 4378)):
        out.append(Row(f"Llama 3 {flavor}, FSDP {shard}, TP 8, compiled", "H100 500 W", "h100-500w-8x", "compiled",
                       [*big, f"--flavor={flavor}", *batch(sequences, 8192), *mode, f"--parallelism.data_parallel_shard_degree={shard}",
                        "--parallelism.tensor_parallel_degree=8"], TITAN_TP, tokens=tokens))
    for name, shape, sequences, mode, replicas, tokens in (
            ("7B", llama(4096, 32, 32, 32, 11008, 32000), 2, "none", 16, 3760), ("13B", llama13, 1, "none", 16, 1700),
            ("70B", llama70, 6, "full", 1, 380)):
        out.append(Row(f"Llama 2 {name}, {mode}, 128 A100", "A100", "a100-8x", "eager",
                       [*big, *shape, *batch(sequences, 4096), *recompute(mode), "--training.mixed_precision_reduce=bf16",
                        f"--parallelism.data_parallel_shard_degree={128 // replicas}",
                        f"--parallelism.data_parallel_replicate_degree={replicas}"], FMS, tokens=tokens,
                       changes=(("links/network/gb_per_s", 6.25),)))
    for machine, cluster, runs in (("H100", "h100-8x", FOUNDRY_H100), ("A100", "a100-8x", FOUNDRY_A100)):
        for size, length, devices, sequences, batches, full, tokens in runs:
            out.append(Row(f"MPT {size}, {length}, {devices} {machine}", f"{machine}, MPT", cluster, "eager",
                           [*big, *mpt(size), *batch(sequences, length), *recompute("full" if full else "none"),
                            f"--parallelism.data_parallel_shard_degree={devices}"], FOUNDRY, tokens=tokens, batches=batches))
    shapes = {"160M": ["--model=llama3", *llama(768, 12, 12, 4, 2048, 32000), *batch(8, 1024)],
              "1.5B": ["--model=llama3", *llama(2048, 16, 32, 8, 8192, 128256), *batch(4, 4096)],
              "Qwen 3 0.6B": ["--model=qwen3", "--flavor=0.6B", *batch(8, 2048)],
              "Llama 3 8B, 4 layers": ["--model=llama3", "--flavor=8B", "--model.n_layers=4", *batch(2, 8192)],
              "DeepSeek 16B, 4 layers": ["--model=deepseek_v3", "--flavor=16B", "--model.n_layers=4", *batch(4, 4096)]}
    for shape, execution, ms, peak, source in (
            ("160M", "heddle", 14.4, 4.22, OURS), ("160M", "compiled", 20.6, 4.3, HERE), ("160M", "eager", 28.7, 7.1, HERE),
            ("1.5B", "heddle", 251, 41.7, OURS), ("1.5B", "compiled", 263, 42.2, OURS), ("1.5B", "eager", 303.0, 65.3, HERE),
            ("Qwen 3 0.6B", "heddle", 147.7, 31.9, OURS), ("Qwen 3 0.6B", "compiled", 161.0, 32.1, HERE),
            ("Qwen 3 0.6B", "eager", 248.0, 57.7, HERE),
            ("Llama 3 8B, 4 layers", "heddle", 259.7, 36.9, OURS), ("Llama 3 8B, 4 layers", "compiled", 274.0, 37.8, HERE),
            ("Llama 3 8B, 4 layers", "eager", 303.4, 58.2, HERE), ("DeepSeek 16B, 4 layers", "heddle", 148.3, 43.1, OURS),
            ("DeepSeek 16B, 4 layers", "compiled", 166.0, None, HERE), ("DeepSeek 16B, 4 layers", "eager", 200.0, 60.1, HERE)):
        # cuDNN has no kernels for heads of 192 elements.
        attention = "flash" if shape.startswith("DeepSeek") else "cudnn"
        out.append(Row(f"{shape}, H200, {execution}", "H200", "h200-8x", execution,
                       [*shapes[shape], f"--attention={attention}", "--precision=bf16", "--parallelism.data_parallel_shard_degree=1"], source,
                       ms=ms, peak=peak, goal=8))
    return out
