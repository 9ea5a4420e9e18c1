#!/usr/bin/env python3
"""Runs every command in processes that differ in irrelevant ways, and compares the outputs byte
by byte.

Addresses are random (ASLR), the environment and the working directory have different lengths,
and the allocator fills, pads and maps memory differently. This exposes outputs that depend on
addresses, on their hashes, or on uninitialized memory.

usage: determinism.py HEDDLE CORPUS [--torch]"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Environments; all outputs are compared with those of the first. `no_aslr` turns off random
# addresses.
VARIANTS = [
    {},
    {"MALLOC_PERTURB_": "85", "PADDING": "x" * 1000},
    {"MALLOC_PERTURB_": "170", "MALLOC_MMAP_THRESHOLD_": "4096", "PADDING": "x" * 50_000},
    {"MALLOC_PERTURB_": "255", "MALLOC_ARENA_MAX": "1", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"},
    {"MALLOC_TOP_PAD_": "1048576", "no_aslr": "1"},
]

# Times may differ.
TIMES = [
    (re.compile(r'"nanoseconds": \d+'), '"nanoseconds": T'),
    (re.compile(r"planned in [\d.]+ s: capture [\d.]+, find [\d.]+, parallelize [\d.]+, passes [\d.]+"),
     "planned in T"),
    (re.compile(r'("seconds": \{)[^}]*\}'), r"\1T}"),
    (re.compile(r'(seconds": )[\d.e+-]+'), r"\1T"),
    (re.compile(r"(solved|read) in [\d.]+ (ns|us|ms|s)\b"), r"\1 in T"),
]


def step(layers):
    """A captured training step with `layers` layers: many names, scopes, types and equal calls."""
    inputs, forward, backward, outputs = ['%x0: bf16[64,32] batch "x"'], [], [], []
    for i in range(layers):
        width = 32 + 8 * (i % 5)
        inputs.append(f'%u{i}: f32[{width},32] param {2 * i} "layers.{i}.up" unit "layers.{i}"')
        inputs.append(f'%d{i}: f32[32,{width}] param {2 * i + 1} "layers.{i}.down" unit "layers.{i}"')
        forward += [
            f"%uh{i} = aten._to_copy(%u{i}, dtype=bf16) @layers.{i}.up",
            f"%ut{i} = aten.t(%uh{i}) @layers.{i}.up",
            f"%h{i} = aten.mm(%x{i}, %ut{i}) @layers.{i}.up",
            f"%r{i} = aten.relu(%h{i}) @layers.{i}",
            f"%dh{i} = aten._to_copy(%d{i}, dtype=bf16) @layers.{i}.down",
            f"%dt{i} = aten.t(%dh{i}) @layers.{i}.down",
            f"%y{i} = aten.mm(%r{i}, %dt{i}) @layers.{i}.down",
            f"%x{i + 1} = aten.add.Tensor(%x{i}, %y{i}) @layers.{i}",
        ]
    forward += [f"%f = aten._to_copy(%x{layers}, dtype=f32)", "%loss = aten.sum(%f)"]
    backward += [f"%g{layers} = aten.ones_like(%x{layers})"]
    outputs.append("loss %loss")
    for i in reversed(range(layers)):
        backward += [
            f"%gt{i} = aten.t(%g{i + 1}) @layers.{i}.down",
            f"%dw{i} = aten.mm(%gt{i}, %r{i}) @layers.{i}.down",
            f"%dg{i} = aten._to_copy(%dw{i}, dtype=f32) @layers.{i}.down",
            f"%s{i} = aten.mm(%g{i + 1}, %dh{i}) @layers.{i}.down",
            f"%b{i} = aten.threshold_backward(%s{i}, %h{i}, threshold=0) @layers.{i}",
            f"%bt{i} = aten.t(%b{i}) @layers.{i}.up",
            f"%uw{i} = aten.mm(%bt{i}, %x{i}) @layers.{i}.up",
            f"%ug{i} = aten._to_copy(%uw{i}, dtype=f32) @layers.{i}.up",
            f"%z{i} = aten.mm(%b{i}, %uh{i}) @layers.{i}.up",
            f"%g{i} = aten.add.Tensor(%g{i + 1}, %z{i}) @layers.{i}",
        ]
        outputs += [f"grad {2 * i} %ug{i}", f"grad {2 * i + 1} %dg{i}"]
    lines = [" fwd:"] + forward + [" bwd:"] + backward
    return f"heddle 1 global\ngraph @step({', '.join(inputs)}) -> ({', '.join(outputs)}) {{\n" + "\n".join(lines) + "\n}\n"


PLAN = """heddle plan 1
mesh [rep=2, dp=2, tp=2]
input "*" [{rep,dp}]
param "layers.*.up" store [{tp,dp},-] compute [tp,-]
param "layers.*.down" store [dp,tp] compute [-,tp]
"""

# Each command prints to standard output and error, and some write files. Commands may use earlier
# files.
COMMANDS = [
    "doc ops",
    "doc ops --json",
    "doc passes",
    "doc passes --json",
    "check step.hd",
    "parallelize step.hd --plan plan --stage planned --remarks",
    "parallelize step.hd --plan plan --stage lowered -o lowered.hd",
    "parallelize step.hd --plan plan --json --dump-dir dumps -o final.hd",
    "opt --pipeline=clean --stats --remarks lowered.hd",
    "opt --pipeline=clean,dedup-unshard --json lowered.hd",
    "stats final.hd",
    "stats --json final.hd",
    "diff lowered.hd final.hd",
    "diff --json lowered.hd final.hd",
    "reduce small.hd --pipeline=localize --error=steps",
    "solve corpus/a_problem.json",
    "solve corpus/a_problem.json --json",
]
TORCH_COMMANDS = [
    "models --json",
    "capture --model=llama3 --with-optimizer",
    "capture --model=deepseek_v3",
    "plan --model=llama3 --parallelism.data_parallel_shard_degree=4 --parallelism.tensor_parallel_degree=2 --remarks"
    " --write-plan llama.plan -o llama.hd",
    "plan --model=qwen3 --flavor=debugmodel_moe --parallelism.data_parallel_shard_degree=4 --json -o qwen.hd",
    "plan --model=deepseek_v3 --with-optimizer --parallelism.data_parallel_replicate_degree=2"
    " --parallelism.data_parallel_shard_degree=2 -o deepseek.hd",
]

# A redistribution with several steps, which localize rejects.
SMALL = """heddle 1 global
mesh [a=2, b=2]
graph @g(%x: f32[8{a,b},8]) -> (%d) {
  %a = aten.neg(%x) : f32[8{a,b},8]
  %b = shard.redistribute(%a, why=tensor) : f32[8,8{b,a}]
  %c = aten.exp(%b) : f32[8,8{b,a}]
  %d = aten.neg(%c) : f32[8,8{b,a}]
}
"""


def without_times(data):
    text = data.decode()
    for pattern, by in TIMES:
        text = pattern.sub(by, text)
    return text


def run_all(heddle, corpus, commands, variant, top, number):
    """Returns the outputs of every command by name."""
    # Directories with names of different lengths.
    work = top / ("w" * (1 + 37 * number))
    work.mkdir()
    (work / "step.hd").write_text(step(24))
    (work / "plan").write_text(PLAN)
    (work / "small.hd").write_text(SMALL)
    shutil.copytree(corpus, work / "corpus")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    environment.update({k: v for k, v in variant.items() if k != "no_aslr"})
    prefix = ["setarch", "-R"] if "no_aslr" in variant and shutil.which("setarch") else []
    wrote = {}
    for command in commands:
        done = subprocess.run(prefix + [str(heddle)] + command.split(), cwd=work, env=environment, capture_output=True, check=False)
        wrote[command] = f"exit {done.returncode}\n" + without_times(done.stdout + done.stderr)
    for path in sorted(p for p in work.rglob("*") if p.is_file()):
        wrote[str(path.relative_to(work))] = path.read_text()
    return wrote


def first_difference(a, b):
    for number, (x, y) in enumerate(zip(a.splitlines(), b.splitlines()), 1):
        if x != y:
            return f"line {number}:\n  {x[:300]}\n  {y[:300]}"
    return f"{len(a)} and {len(b)} characters"


def main():
    heddle, corpus = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    graphs = [f"opt --pipeline=clean --stats corpus/{p.name}" for p in sorted(corpus.glob("*.hd"))]
    commands = COMMANDS + graphs + (TORCH_COMMANDS if "--torch" in sys.argv else [])
    aslr = pathlib.Path("/proc/sys/kernel/randomize_va_space")
    if aslr.exists() and aslr.read_text().strip() == "0":
        print("addresses are not random on this machine: only memory and lengths differ")
    problems = []
    with tempfile.TemporaryDirectory() as top:
        runs = [run_all(heddle, corpus, commands, v, pathlib.Path(top), n) for n, v in enumerate(VARIANTS)]
    for command in commands:
        # Skips nothing: a failing command would hide differences. reduce and diff have other exit
        # codes.
        expected = {"diff": "exit 2"}.get(command.split()[0], "exit 0")
        if not runs[0][command].startswith(expected):
            problems.append(f"heddle {command}: {runs[0][command][:500]}")
    for number, run in enumerate(runs[1:], 1):
        for name in sorted(set(runs[0]) | set(run)):
            if runs[0].get(name) != run.get(name):
                difference = first_difference(runs[0].get(name, ""), run.get(name, ""))
                problems.append(f"{name} differs in run {number}, {difference}")
    print("\n".join(problems) if problems else f"{len(commands)} commands and {len(runs[0]) - len(commands)} files, the same in {len(runs)} processes")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
