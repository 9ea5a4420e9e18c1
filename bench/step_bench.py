#!/usr/bin/env python3
"""Measures captures and plans, and the traces of PyTorch's make_fx: step_bench.py HEDDLE
OUT.json

Each capture and each plan runs in its own process, so that its peak memory can be read. Reports
the wall seconds of the process, and the seconds of the work. make_fx traces forward, loss and
backward of the same Llama 3 with fake tensors, in this process."""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

# Model, flavor, sequence length, goals in seconds and MiB.
CAPTURES = [("llama3", "8B", 8192, 0.4, 600), ("llama3", "405B", 8192, 2.0, 600), ("deepseek_v3", "671B", 4096, 2.5, 600)]
# The passes after lowering, with goals in seconds: the pipeline fsdp with all checks of the
# manager, and the analyses of `plan`.
PIPELINES = [("llama3", "8B", 8192, 8, 8, 0.06), ("llama3", "405B", 8192, 64, 8, 0.3)]
# Model, flavor, sequence length; shard, context and tensor degree; goals.
PLANS = [("llama3", "8B", 8192, 8, 1, 8, 0.5, 300), ("llama3", "8B", 8192, 4096, 1, 8, 0.5, 300),
         ("llama3", "8B", 131072, 8, 8, 1, 0.5, 300), ("llama3", "405B", 8192, 64, 1, 8, 2.5, 1000),
         ("deepseek_v3", "16B", 4096, 64, 1, 1, 2.5, 1000)]
# Model, flavor, sequence length and mesh of automatic plans; goals. The time excludes the
# simulation of candidates.
FOUND = [("llama3", "8B", 8192, "dp=32,tp=8", 0.6, 500), ("llama3", "405B", 8192, "dp=64,tp=8", 1.5, 1000),
         ("llama3", "1B", 8192, "r=2,dp=4,tp=8", 2.0, 1000)]
# Model, flavor, sequence length, devices; goals.
SEARCHES = [("llama3", "8B", 8192, 64, 10.0, 2000), ("llama3", "8B", 131072, 64, 15.0, 2000)]


def run_heddle(command, number):
    """Returns the median wall seconds and work seconds, and the peak memory in MiB, of five
    runs. `number` reads the seconds."""
    walls, works, peak = [], [], 0
    for _ in range(5):
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0, text
        walls.append(time.perf_counter() - begin)
        works.append(number(text))
        peak = max(peak, usage.ru_maxrss)
    return statistics.median(walls), statistics.median(works), peak / 1024


def run_capture(heddle, args):
    with tempfile.TemporaryDirectory() as directory:
        command = [heddle, "capture", "--time", "-o", os.path.join(directory, "step.hd")] + args
        return run_heddle(command, lambda text: float(re.search(r"capture ([\d.]+) s", text).group(1)))


def run_plan(heddle, args):
    return run_heddle([heddle, "plan", "--json"] + args, lambda text: sum(json.loads(text)["seconds"].values()))


def run_found(heddle, args):
    """The work is everything up to the graph: capture, pricing, solving, lowering."""
    parts = ("capture", "pricing", "solving", "parallelize")
    return run_heddle([heddle, "plan", "--json", "--parallelism.auto"] + args,
                      lambda text: sum(json.loads(text)["seconds"][part] for part in parts))


def run_search(heddle, args):
    return run_heddle([heddle, "search", "--json"] + args, lambda text: json.loads(text)["seconds"])


def show(name, wall, goal, work, peak, most):
    mark = "" if wall <= goal and peak <= most else "  over the goal"
    print(f"{name:34}{wall:8.3f} s{goal:6.1f} s{work:8.3f} s{peak:8.0f} MiB{most:8.0f} MiB{mark}")


def run_make_fx(layers):
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    import torch_llama

    def step(params, rope, tokens, labels):
        loss = torch_llama.loss([p.to(torch.bfloat16) for p in params], layers, rope, tokens, labels)
        return [loss] + list(torch.autograd.grad(loss, params))

    with FakeTensorMode():
        params = [torch.empty(s, requires_grad=True) for s in torch_llama.shapes(layers)]
        rope, tokens, labels = torch_llama.inputs()
        begin = time.perf_counter()
        graph = make_fx(step)(params, rope, tokens, labels)
        return time.perf_counter() - begin, len(graph.graph.nodes)


def main():
    heddle, out = sys.argv[1:3]
    report = {"captures": [], "plans": [], "found": [], "searches": [], "pipelines": [], "make_fx": []}
    print(f"{'':34}{'process':>10}{'goal':>8}{'work':>10}{'peak':>12}{'goal':>12}")
    for model, flavor, seq_len, goal, most in CAPTURES:
        wall, work, peak = run_capture(heddle, [f"--model={model}", f"--flavor={flavor}", f"--training.seq_len={seq_len}"])
        show(f"capture {model} {flavor}", wall, goal, work, peak, most)
        report["captures"].append({"model": model, "flavor": flavor, "seconds": wall, "capture_seconds": work, "peak_mib": peak})
    for model, flavor, seq_len, shard, context, tensor, goal, most in PLANS:
        wall, work, peak = run_plan(heddle, [f"--model={model}", f"--flavor={flavor}", f"--training.seq_len={seq_len}",
                                             f"--parallelism.data_parallel_shard_degree={shard}", f"--parallelism.tensor_parallel_degree={tensor}",
                                             f"--parallelism.context_parallel_degree={context}"])
        show(f"plan {model} {flavor} {shard} x {context} x {tensor}", wall, goal, work, peak, most)
        report["plans"].append({"model": model, "flavor": flavor, "shard": shard, "context": context, "tensor": tensor, "seconds": wall, "work_seconds": work, "peak_mib": peak})
    for model, flavor, seq_len, mesh, goal, most in FOUND:
        wall, work, peak = run_found(heddle, [f"--model={model}", f"--flavor={flavor}", f"--training.seq_len={seq_len}", f"--mesh={mesh}"])
        show(f"auto {model} {flavor} {mesh}", work, goal, wall, peak, most)
        report["found"].append({"model": model, "flavor": flavor, "mesh": mesh, "seconds": wall, "work_seconds": work, "peak_mib": peak})
    for model, flavor, seq_len, devices, goal, most in SEARCHES:
        wall, work, peak = run_search(heddle, [f"--model={model}", f"--flavor={flavor}", f"--training.seq_len={seq_len}", f"--devices={devices}"])
        show(f"search {model} {flavor} {seq_len} on {devices}", wall, goal, work, peak, most)
        report["searches"].append({"model": model, "flavor": flavor, "devices": devices, "seconds": wall, "peak_mib": peak})
    for model, flavor, seq_len, shard, tensor, goal in PIPELINES:
        command = [heddle, "plan", "--json", f"--model={model}", f"--flavor={flavor}", f"--training.seq_len={seq_len}",
                   f"--parallelism.data_parallel_shard_degree={shard}", f"--parallelism.tensor_parallel_degree={tensor}"]
        _, work, _ = run_heddle(command, lambda text: json.loads(text)["seconds"]["passes"])
        print(f"{f'fsdp {model} {flavor} {shard} x {tensor}':34}{work * 1e3:8.1f} ms{goal * 1e3:5.0f} ms{'' if work <= goal else '  over the goal'}")
        report["pipelines"].append({"model": model, "flavor": flavor, "shard": shard, "tensor": tensor, "seconds": work})
    for layers in (6, 32):
        _, capture, _ = run_capture(heddle, ["--flavor=debugmodel", f"--model.n_layers={layers}", "--without-optimizer"])
        seconds, nodes = run_make_fx(layers)
        print(f"llama3 debugmodel, {layers:2} layers: make_fx {seconds:.2f} s ({nodes} nodes), heddle {capture:.3f} s, {seconds / capture:.0f} times faster")
        report["make_fx"].append({"layers": layers, "make_fx_seconds": seconds, "heddle_seconds": capture, "ratio": seconds / capture})
    json.dump(report, open(out, "w"), indent=1)


if __name__ == "__main__":
    main()
