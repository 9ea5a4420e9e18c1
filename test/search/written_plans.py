#!/usr/bin/env python3
"""A written plan is the plan that was found: it gives the same graph, byte for byte, within its
budget.

usage: written_plans.py HEDDLE [--all]     (--all: large models instead)"""
import pathlib
import re
import subprocess
import sys
import tempfile

LLAMA = "--model=llama3 --flavor=debugmodel --training.seq_len=256"
MOE = "--model=qwen3 --flavor=debugmodel_moe --training.seq_len=128"
DEEPSEEK = "--model=deepseek_v3 --flavor=debugmodel --training.seq_len=128"
DEGREES = "--parallelism.data_parallel_shard_degree=2 --parallelism.tensor_parallel_degree=2"
PLANS = [
    f"{LLAMA} --parallelism.auto --mesh=dp=2,tp=2",
    f"{LLAMA} --parallelism.auto --mesh=dp=4",
    f"{LLAMA} --parallelism.auto --mesh=dp=2,tp=4 --with-optimizer --compile.pipeline=overlap",
    f"{MOE} --parallelism.auto --mesh=dp=2,tp=2",
    f"{DEEPSEEK} --parallelism.auto --mesh=dp=4",
    # By degrees: the plan includes decisions of flags.
    f"{LLAMA} {DEGREES} --activation_checkpoint.mode=selective --compile.prefetch_forward=2"
    " --parallelism.fsdp_reshard_after_forward=never --training.local_batch_size=2",
    f"{LLAMA} {DEGREES} --parallelism.axis_names=a,b,c,d"
    " --parallelism.data_parallel_replicate_degree=2 --parallelism.reduce_before_scatter",
    # Recomputation found by a search, node by node.
    f"{LLAMA} --with-optimizer --parallelism.data_parallel_shard_degree=2 --memory.budget=80MiB",
    f"{LLAMA} --with-optimizer --parallelism.auto --mesh=dp=2,tp=2 --memory.budget=60MiB",
]
MODELS = [("llama3", "8B"), ("llama3", "70B"), ("qwen3", "32B"), ("qwen3", "30B-A3B"),
          ("deepseek_v3", "16B")]
LARGE = [
    f"--model={model} --flavor={flavor} --training.seq_len=4096 --with-optimizer"
    f" --parallelism.auto --mesh={mesh}"
    for model, flavor in MODELS for mesh in ["dp=64", "dp=8,tp=8"]
] + ["--model=llama3 --flavor=8B --training.seq_len=8192 --with-optimizer --parallelism.auto"
     " --mesh=dp=8,tp=8 --memory.budget=6GiB"]
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def run(heddle, folder, command, code=0):
    done = subprocess.run([heddle, *command.split()], capture_output=True, text=True, cwd=folder)
    if done.returncode != code:
        sys.exit(f"heddle {command}\nexit {done.returncode}, expected {code}:\n"
                 f"{done.stdout}{done.stderr}")
    return done.stdout if code == 0 else done.stderr


def check(condition, what):
    if not condition:
        sys.exit(what)


def check_graph(heddle, folder, plan):
    """The plan contains everything but the model and whether there is an optimizer."""
    run(heddle, folder, f"plan {plan} --write-plan=found.plan -o found.hd")
    kept = re.compile(r"--(model|flavor|with-optimizer)")
    model = " ".join(word for word in plan.split() if kept.match(word))
    run(heddle, folder, f"plan {model} --plan=found.plan -o again.hd --write-plan=again.plan")
    found, again = ((folder / name).read_bytes() for name in ["found.hd", "again.hd"])
    check(found == again, f"heddle plan {plan}: the written plan gives another graph")
    run(heddle, folder, "plan --diff=found.plan,again.plan")
    lines = (folder / "found.plan").read_text().count("\n")
    check(lines < 400, f"heddle plan {plan}: the plan has {lines} lines")


def peak_of(screen):
    amount, unit = re.search(r"^memory +([\d.]+) (\w+) per rank", screen, re.M).groups()
    return float(amount) * UNITS[unit]


def check_budget(heddle, folder):
    """Training with a plan, or with a budget, keeps to the budget."""
    step = "--model=llama3 --flavor=debugmodel"
    mesh = "--training.seq_len=512 --parallelism.data_parallel_shard_degree=4"
    free = peak_of(run(heddle, folder, f"train {step} {mesh} --training.steps=1"))
    budget = int(free * 0.6 / 2**20)
    within = f"--memory.budget={budget}MiB"
    run(heddle, folder, f"plan {step} {mesh} --precision=f32 --device=cpu --with-optimizer {within}"
        " --write-plan=small.plan")
    # Micro-batches keep gradients between them.
    more = f"--memory.budget={budget + 8}MiB --training.global_batch_size=12"
    for how, limit in [("--plan=small.plan", budget), (f"--plan=small.plan {within}", budget),
                       (f"{mesh} {within}", budget),
                       (f"{mesh} {more} --validation.interval=1", budget + 8)]:
        screen = run(heddle, folder, f"train {step} {how} --training.steps=1")
        check(peak_of(screen) <= limit * 2**20, f"train {how}: more than {limit} MiB:\n{screen}")
    verified = run(heddle, folder, f"verify {step} {mesh} {within} --training.steps=1")
    check("have the same bits" in verified, f"not verified:\n{verified}")
    check_refusals(heddle, folder, f"train {step}", budget)


def check_refusals(heddle, folder, train, budget):
    """Flags that contradict the plan, and a step that exceeds the plan's budget."""
    said = run(heddle, folder, f"{train} --plan=small.plan --memory.budget=1GiB", code=1)
    check("--memory.budget=1GiB" in said and f"budget {budget}MiB" in said, said)
    said = run(heddle, folder, f"{train} --plan=small.plan --activation_checkpoint.mode=full",
               code=1)
    check("--activation_checkpoint.mode=full" in said and "keep" in said, said)
    tight = (folder / "small.plan").read_text().replace(f"budget {budget}MiB", "budget 1MiB")
    (folder / "tight.plan").write_text(tight)
    check("1.00 MiB" in run(heddle, folder, f"{train} --plan=tight.plan", code=3), "no budget")


def main():
    heddle = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if "--all" in sys.argv:
            for plan in LARGE:
                check_graph(heddle, folder, plan)
                print(f"same graph: {plan}", flush=True)
            return
        for plan in PLANS:
            check_graph(heddle, folder, plan)
        check_budget(heddle, folder)


if __name__ == "__main__":
    main()
