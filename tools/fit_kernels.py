#!/usr/bin/env python3
"""Fits the constants of a cluster's kernels to measured times, and reports the errors.

    fit_kernels.py CLUSTER h200.json                errors of the existing constants
    fit_kernels.py CLUSTER h200.json --fit          better constants and their errors
    fit_kernels.py CLUSTER h200.json --fit --write  writes them, with their source, to CLUSTER

CLUSTER is a file such as heddle/price/cost/data/h200-8x.json. The formulas are those of
heddle/price/cost/kernel_time.cc; `--check build/heddle` compares this file with that program,
kernel by kernel. Pure Python. The search changes one constant after the other, in decreasing
steps. For products it starts with the constants in the cluster's file."""
import argparse
import copy
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

SIZES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1, "i64": 8, "i32": 4, "i8": 1, "u64": 8, "u8": 1, "c64": 8}

# Bytes that memory-bound kernels write, from their operands. Clusters' files use the names of
# functional ops.
WRITTEN = {
    "aten._fused_rms_norm": lambda e, t: t[0].bytes + 4 * t[0].rows,
    "aten._fused_rms_norm_backward": lambda e, t: t[1].bytes + t[3].bytes,
    "aten.silu": lambda e, t: t[0].bytes,
    "aten.silu_backward": lambda e, t: t[1].bytes,
    "aten.add.Tensor": lambda e, t: t[0].bytes,
    "aten.mul.Tensor": lambda e, t: t[0].bytes,
    "aten._to_copy": lambda e, t: t[0].bytes // SIZES[t[0].dtype] * SIZES[e["attrs"]["dtype"]],
    "aten._log_softmax": lambda e, t: t[0].bytes,
    "aten._log_softmax_backward_data": lambda e, t: t[0].bytes,
    "aten._fused_adamw_": lambda e, t: 3 * t[0].bytes,
}
# Measured to show that only the targets are read. They have no constants to fit.
LOOKUPS = {"aten.nll_loss_forward", "aten.nll_loss_backward"}


class Tensor:
    def __init__(self, text):
        match = re.fullmatch(r"(\w+)\[([\d,]*)\]", text)
        self.dtype = match[1]
        self.dims = [int(d) for d in match[2].split(",") if d]
        self.bytes = SIZES[self.dtype] * math.prod(self.dims)
        self.rows = math.prod(self.dims[:-1])


class Kernel:
    """The properties of one call that the formulas use."""

    def __init__(self, entry):
        self.op = entry["op"]
        self.entry = entry
        self.us = entry["ms"] * 1000
        tensors = [None if t == "none" else Tensor(t) for t in entry["operands"]]
        read = sum(t.bytes for t in tensors if t)
        self.attention = "attention" in self.op
        self.memory = self.op in WRITTEN
        if self.memory:
            self.bytes = read + WRITTEN[self.op](entry, tensors)
            longest = max((t for t in tensors if t), key=lambda t: t.bytes // SIZES[t.dtype])
            self.elements = longest.bytes // SIZES[longest.dtype]
            self.row = longest.dims[-1] if longest.dims else 1
            wider = self.op == "aten._to_copy" and SIZES[entry["attrs"]["dtype"]] > SIZES[tensors[0].dtype]
            self.name = "aten._to_copy.wider" if wider else self.op.removesuffix("_")
            return
        if self.attention:
            backward = "backward" in self.op
            q, k, v = tensors[1:4] if backward else tensors[:3]
            batch, heads, queries, size = q.dims
            keys, value_size = k.dims[2], v.dims[3]
            self.dtype = q.dtype
            self.flops = batch * heads * queries * keys * (2 * (3 * size + 2 * value_size) if backward else 2 * (size + value_size))
            self.keys, self.queries, self.rows, self.head = keys, queries, batch * heads, size
            self.causal = entry.get("attrs", {}).get("is_causal") == "true"
            written = q.bytes + k.bytes + v.bytes
            if not backward:
                # The output, a logarithm per row, and the state of dropout.
                written = batch * heads * queries * (value_size * SIZES[q.dtype] + 4) + (24 if "flash" in self.op else 16)
            self.bytes = read + written
            return
        a, b = tensors[0], tensors[1]
        self.dtype = a.dtype
        if self.op == "aten.mm":
            self.batch, self.m, self.k, self.n = 1, a.dims[0], a.dims[1], b.dims[1]
            results = self.m * self.n
        elif self.op == "aten._grouped_mm" and len(a.dims) == 2 and len(b.dims) == 3:
            self.batch, self.k, self.n = b.dims
            self.m = a.dims[0] / self.batch
            results = a.dims[0] * self.n
        else:
            raise ValueError(f"no formula for {self.op}({', '.join(entry['operands'])})")
        self.flops = 2 * self.batch * self.m * self.k * self.n
        self.bytes = read + results * SIZES[a.dtype]


def stream(device, count):
    return count / (device["memory_gb_per_s"] * device["memory_efficiency"])


def waves(blocks, device, loss):
    full = blocks / device["cores"]
    return full + loss * (math.ceil(full) - full)


def predict(kernel, device):
    """Nanoseconds."""
    if kernel.memory:
        f = device["kernels"].get(kernel.name, {"memory": 1})
        least = f.get("block_us", 0) * 1000 * min(1, kernel.elements / f["block"]) if f.get("block") else 0
        share = f["memory"] * kernel.row / (kernel.row + f.get("half_row", 0))
        return math.ceil(max(stream(device, kernel.bytes) / share, least)) + device["launch_us"] * 1000
    peak = device["tflops"].get(kernel.dtype, device["vector_tflops"]) * 1000
    figures = device["kernels"]
    if kernel.attention:
        f = figures.get(kernel.op, figures["attention"])
        blocks = math.ceil(kernel.queries / f["block"])
        # One block of queries with one key, on one core.
        unit = kernel.flops / (kernel.rows * blocks * kernel.keys) / (peak / device["cores"] * f["efficiency"])
        unit *= 1 + f.get("narrow", 0) * max(0, 128 / kernel.head - 1)
        keys = min(kernel.keys, (kernel.keys + f["block"]) / 2) if kernel.causal else kernel.keys
        shared = kernel.rows * blocks * (keys + f["half"]) / device["cores"]
        longest = kernel.keys + f["half"]
        time = unit * (max(shared, longest) + f["wave_loss"] * min(shared, longest))
    else:
        f = figures["matmul"]
        time = math.inf
        for rows, columns, efficiency in f["tiles"]:
            blocks = kernel.batch * math.ceil(kernel.m / rows) * math.ceil(kernel.n / columns)
            parts = 1
            while parts <= f["splits"]:
                depth = math.ceil(kernel.k / parts) + f["fill"]
                one = device["cores"] * waves(blocks * parts, device, f["wave_loss"]) * 2 * rows * columns * depth / (peak * efficiency)
                if parts > 1:
                    one += stream(device, 2 * parts * kernel.batch * kernel.m * kernel.n * 4)
                time = min(time, one)
                parts *= 2
    time /= device.get("sustained", 1)
    memory = stream(device, kernel.bytes)
    roof = max(time, memory) + device.get("roof_overlap", 0) * min(time, memory)
    return max(device.get("shortest_us", 0) * 1000, math.ceil(roof)) + device["launch_us"] * 1000


def measured(kernel, device):
    """Returns the time that a timer around one kernel measures. It exceeds the kernel's time in
    a queue."""
    return (predict(kernel, device) + 1000 * device.get("clock_us", 0)) / 1000


def errors(kernels, device):
    return [measured(k, device) / k.us - 1 for k in kernels]


def loss(kernels, device):
    """Returns the mean distance of the logarithms. Errors above a tenth count extra, because the
    goal is nine in ten within a tenth."""
    total = 0
    for kernel in kernels:
        off = abs(math.log(measured(kernel, device) / kernel.us))
        total += off + max(0, off - 0.095)
    return total / len(kernels)


def knobs(device, kernels):
    """Returns (holder, key, min, max) of every constant of these kernels, all of one kind."""
    if kernels[0].attention:
        f = device["kernels"].setdefault(kernels[0].op, copy.deepcopy(device["kernels"]["attention"]))
        return [(f, "efficiency", 0.05, 1), (f, "half", 0, 8192), (f, "wave_loss", 0, 1)]
    f = device["kernels"]["matmul"]
    return ([(tile, 2, 0.05, 1) for tile in f["tiles"]] + [(f, "fill", 0, 4096), (f, "wave_loss", 0, 1)] +
            [(device, "clock_us", 0, 20), (device, "roof_overlap", 0, 1)])


def descend(kernels, device):
    """Changes one constant after the other, in decreasing steps, until nothing improves. Returns
    the loss."""
    best = loss(kernels, device)
    step = 0.3
    while step > 0.005:
        moved = False
        for holder, key, least, most in knobs(device, kernels):
            for factor in (1 + step, 1 / (1 + step)):
                old = holder[key]
                # Factors cannot change a value of 0, so it gets a first step.
                value = min(most, max(least, old * factor if old else (step if factor > 1 else 0)))
                holder[key] = value
                now = loss(kernels, device)
                if now < best - 1e-9:
                    best, moved = now, True
                else:
                    holder[key] = old
        if not moved:
            step /= 2
    return best


def fit(kernels, device, most):
    """Fits products first, which determine the overhead of a timer, then each op of attention
    with the best of several block sizes."""
    device = copy.deepcopy(device)
    device["clock_us"] = 2.0
    random.seed(1)
    products = [k for k in kernels if not k.attention]
    if products:
        descend(random.sample(products, min(most, len(products))), device)
    for op in sorted({k.op for k in kernels if k.attention}):
        members = [k for k in kernels if k.op == op]
        found = []
        for block in (64, 128, 192, 256):
            for wave_loss in (0.05, 0.5):
                device["kernels"][op] = {"efficiency": 0.5, "half": 256, "block": block, "wave_loss": wave_loss}
                found.append((descend(members, device), block, device["kernels"][op]))
        device["kernels"][op] = min(found, key=lambda f: f[:2])[2]
    for group in [products] + [[k for k in kernels if k.op == op] for op in sorted({k.op for k in kernels if k.attention})]:
        for holder, key, _, _ in knobs(device, group) if group else []:
            holder[key] = float(f"{holder[key]:.3g}")
    return device


def fit_memory(kernels, device):
    """Returns the median share of the streaming rate, for kernels below that rate. Only long
    ones count: launches delay short ones."""
    for name in sorted({k.name for k in kernels if k.memory}):
        shares = sorted(stream(device, k.bytes) / ((k.us - device["launch_us"] - device["clock_us"]) * 1000)
                        for k in kernels if k.memory and k.name == name and k.us > 60)
        share = min(1.0, shares[len(shares) // 2]) if shares else 1.0
        if share < 0.95 or name in device["kernels"]:
            device["kernels"].setdefault(name, {})["memory"] = float(f"{share:.2g}")


def report(kernels, device):
    """Prints the distribution of errors. Returns the share within a tenth."""
    groups = {"all": kernels}
    for op in sorted({k.op for k in kernels}):
        groups[op] = [k for k in kernels if k.op == op]
    print(f"{'':58}{'kernels':>8}{'median':>9}{'90th':>8}{'within 10 %':>13}")
    for name, members in groups.items():
        off = sorted(abs(e) for e in errors(members, device))
        within = sum(e <= 0.1 for e in off) / len(off)
        print(f"{name:58}{len(off):8}{100 * off[len(off) // 2]:8.1f}%{100 * off[int(len(off) * 0.9)]:7.1f}%{100 * within:12.1f}%")
    worst = sorted(zip(errors(kernels, device), kernels), key=lambda pair: -abs(pair[0]))[:10]
    print("worst:")
    for error, kernel in worst:
        print(f"  {100 * error:+7.1f} %  {kernel.us:10.1f} us  {kernel.op}({', '.join(kernel.entry['operands'][:4])})")
    return sum(abs(e) <= 0.1 for e in errors(kernels, device)) / len(kernels)


def show(value, indent=0):
    """Formats JSON like the files of clusters: short values stay on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or (indent > 0 and len(flat) + indent <= 104):
        return flat
    pad = " " * (indent + 2)
    if isinstance(value, list):
        return "[\n" + ",\n".join(pad + show(v, indent + 2) for v in value) + "\n" + " " * indent + "]"
    return "{\n" + ",\n".join(f"{pad}{json.dumps(k)}: {show(v, indent + 2)}" for k, v in value.items()) + "\n" + " " * indent + "}"


CHECKED = [("aten.mm", [f"bf16[{m},{k}]", f"bf16[{k},{n}]"], None)
           for m in (1, 128, 3000, 8192) for k in (64, 4096, 14336) for n in (1, 1024, 6144)]
CHECKED += [("aten._grouped_mm", ["bf16[4096,2048]", "bf16[8,2048,1408]", "i32[8]", "none"], None)]
CHECKED += [(f"aten._scaled_dot_product_{kind}_attention", [f"bf16[2,32,{s},{d}]", f"bf16[2,8,{s},{d}]", f"bf16[2,8,{s},{d}]"] +
             (["none"] if kind == "cudnn" else []), {"is_causal": causal})
            for kind in ("flash", "cudnn") for s in (100, 1024, 8192) for d in (64, 128) for causal in ("true", "false")]


def check(program, cluster_path, device):
    """Compares predict() with the program."""
    entries = [{"op": op, "operands": types, "attrs": attrs or {}, "ms": 1} for op, types, attrs in CHECKED]
    inputs, body = [], []
    for i, e in enumerate(entries):
        names = [f"%i{i}_{j}" for j in range(len(e["operands"]))]
        inputs += [f"{n}: {t}" for n, t in zip(names, e["operands"]) if t != "none"]
        given = [n for n, t in zip(names, e["operands"]) if t != "none"]
        results = {"flash": 7, "cudnn": 7}.get(next((k for k in ("flash", "cudnn") if k in e["op"]), ""), 1)
        extra = ", compute_log_sumexp=true" if "cudnn" in e["op"] else ""
        if e["attrs"].get("is_causal") == "true":
            extra += ", is_causal=true"
        if "grouped" in e["op"]:
            given[2] = "offs=" + given[2]
        body.append(f"  {', '.join(f'%n{i}' + (f'_{r}' if r else '') for r in range(results))} = {e['op']}({', '.join(given)}{extra})")
    text = "heddle 1 local\ngraph @g(" + ", ".join(inputs) + ") -> () {\n" + "\n".join(body) + "\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "g.hd")
        with open(path, "w") as file:
            file.write(text)
        run = subprocess.run([program, "sim", path, f"--cluster={cluster_path}", "--trace=-"], capture_output=True, text=True)
    if run.returncode != 0:
        print(run.stderr)
        return 1
    times = {e["name"]: e["dur"] * 1000 for e in json.loads(run.stdout)["traceEvents"] if e["ph"] == "X"}
    wrong = 0
    for i, entry in enumerate(entries):
        mine, theirs = predict(Kernel(entry), device), times[f"%n{i}"]
        # Allows a nanosecond for rounding a sum whose last digit differs.
        if abs(mine - theirs) > 1.5:
            wrong += 1
            print(f"{entry['op']}({', '.join(entry['operands'])}): {theirs:.0f} ns by the program, {mine:.0f} here")
    print(f"{len(entries)} kernels, {wrong} differ from {os.path.basename(program)}")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cluster")
    parser.add_argument("measured", nargs="*")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--most", type=int, default=500, help="search with so many products; all of them are reported")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", metavar="HEDDLE")
    options = parser.parse_args()
    cluster = json.load(open(options.cluster))
    if options.check:
        return check(options.check, options.cluster, cluster["device"])
    kernels, about = [], []
    for path in options.measured:
        data = json.load(open(path))
        about.append(data.get("about", os.path.basename(path)))
        kernels += [Kernel(entry) for entry in data["ops"] if entry["op"] not in LOOKUPS]
    if not kernels:
        print("no measured kernels given", file=sys.stderr)
        return 1
    within = report(kernels, cluster["device"])
    if not options.fit:
        return 0
    # Additions reach the highest streaming rate.
    rates = sorted(k.bytes / k.us / 1000 for k in kernels if k.op == "aten.add.Tensor")
    if rates:
        cluster["device"]["memory_efficiency"] = float(f"{rates[-1] / cluster['device']['memory_gb_per_s']:.3g}")
    cluster["device"] = fit([k for k in kernels if not k.memory], cluster["device"], options.most)
    fit_memory(kernels, cluster["device"])
    print("\nfitted:")
    within = report(kernels, cluster["device"])
    print(json.dumps({k: cluster["device"][k] for k in ("launch_us", "roof_overlap", "memory_efficiency", "kernels")}, indent=1))
    clock = cluster["device"].pop("clock_us")
    print(f"a clock around one kernel shows {clock} us more")
    if options.write:
        source = f"fitted by tools/fit_kernels.py to {'; '.join(about)}: {100 * within:.0f} % within 10 %"
        for key in ("device/roof_overlap", "device/memory_efficiency", "device/kernels"):
            cluster.setdefault("sources", {})[key] = source
        with open(options.cluster, "w") as file:
            file.write(show(cluster) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
