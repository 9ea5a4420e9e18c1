#!/usr/bin/env python3
"""Measures the Python package: python_bench.py OUT.json [--capture HEDDLE]

- `run`: a step of `heddle.Run`, of Heddle's own runtime on the same graph, and of eager PyTorch, in
  one process.
- `fx`: a step of the graph module of `Program.to_fx` in two processes over Gloo, and of FSDP2.
- `capture` (with --capture): capture of Llama 3 8B on meta, and handing it over to C++; then a plan for
  64 ranks and its simulation, of that step and of the program HEDDLE's own capture.

Times are CPU seconds of one thread, because other load on the machine does not count there. What is
compared runs alternately, and the minimum counts."""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

import heddle

TURNS, STEPS = 6, 4


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm, self.attention_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, size=128, layers=4, vocabulary=1000):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, size)
        self.layers = nn.ModuleList([Block(size) for _ in range(layers)])
        self.head = nn.Linear(size, vocabulary, bias=False)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def loss_of(model, batch):
    return F.cross_entropy(model(batch["x"]).flatten(0, 1), batch["y"].flatten())


def batch_of(rows):
    return {key: torch.randint(0, 1000, (rows, 128)) for key in ("x", "y")}


def least(works):
    """The least CPU time of a call of each, by name."""
    found = dict.fromkeys(works, float("inf"))
    for _ in range(TURNS):
        for name, work in works.items():
            for _ in range(STEPS):
                begin = time.process_time()
                work()
                found[name] = min(found[name], time.process_time() - begin)
    return found


def bench_run():
    from heddle import _torch

    torch.manual_seed(0)
    model, batch = Model(), batch_of(8)
    step = heddle.capture(model, batch, loss=loss_of)
    program = step.compile(step.plan("dp=1"))
    run = program.start(weights=model)
    world = _torch.World(str(program.graph))
    inputs = [run.inputs(batch)]
    parameters = list(model.parameters())

    def of_run():
        run(batch)
        for parameter in run.parameters():
            parameter.grad = None

    def of_eager():
        loss_of(model, batch).backward()
        for parameter in parameters:
            parameter.grad = None

    return least({"run": of_run, "own": lambda: world.run(inputs), "eager": of_eager})


def fx_rank(rank, store, out):
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    torch.manual_seed(0)
    model, batch = Model(), batch_of(8)
    own = {key: rows.chunk(2)[rank] for key, rows in batch.items()}
    step = heddle.capture(model, batch, loss=loss_of)
    program = step.compile(step.plan("dp=2"))
    run = program.start(mesh, weights=model)
    module, inputs = program.to_fx(mesh), run.inputs(own)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    parameters = list(model.parameters())

    @torch.no_grad()
    def of_fx():
        module(*inputs)

    def of_fsdp():
        loss_of(model, own).backward()
        for parameter in parameters:
            parameter.grad = None

    found = least({"fx": of_fx, "fsdp2": of_fsdp})
    dist.barrier()
    if rank == 0:
        Path(out).write_text(json.dumps(found))
    dist.destroy_process_group()


def bench_fx(folder):
    out = folder / "python_fx.json"
    store = folder / "python_fx.store"
    store.unlink(missing_ok=True)
    mp.spawn(fx_rank, (str(store), str(out)), nprocs=2)
    store.unlink(missing_ok=True)
    found = json.loads(out.read_text())
    out.unlink()
    return found


def bench_capture(heddle_program, folder):
    import transformers
    from heddle import _core
    from heddle._captured import with_flat_results
    from heddle.capturing import rules_of, trace_step

    config = transformers.LlamaConfig(
        vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=8192)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    tokens = heddle.Spec((64, 8192), torch.int64)
    begin = time.process_time()
    captured = trace_step(
        model, dict(input_ids=tokens, labels=tokens), param_dtype=torch.bfloat16, target="cuda",
        optimizer=heddle.AdamW(max_norm=1.0))
    traced = time.process_time() - begin
    module = with_flat_results(captured.graph_module)

    def hand_over():
        return _core.read_fx(module, captured.inputs, captured.outputs, None)

    own = folder / "python_own.hd"
    subprocess.run(
        [heddle_program, "capture", "--model=llama3", "--flavor=8B", "--training.seq_len=8192",
         "--training.local_batch_size=64", "-o", own], check=True)
    ours = heddle.Step(heddle.Graph.load(own))
    own.unlink()
    steps = {"": heddle.Step(hand_over(), rules=rules_of(model)), "own_": ours}
    works = {"hand_over": hand_over}
    for name, step in steps.items():
        program = step.compile(step.plan("dp=64"))
        works[name + "plan"] = lambda step=step: step.compile(step.plan("dp=64"))
        works[name + "simulate"] = program.simulate
    nodes = {name + "nodes": len(step.graph.nodes) for name, step in steps.items()}
    return {"capture": traced, **nodes, **least(works)}


def main():
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    found = {"run": bench_run(), "fx": bench_fx(out.resolve().parent)}
    if "--capture" in sys.argv[2:]:
        found["capture"] = bench_capture(sys.argv[3], out.resolve().parent)
    run, fx = found["run"], found["fx"]
    print(f"Run {run['run'] * 1e3:.1f} ms, {run['run'] / run['own']:.2f} x Heddle's runtime, {run['run'] / run['eager']:.2f} x eager")
    print(f"FX graph {fx['fx'] * 1e3:.1f} ms, {fx['fx'] / fx['fsdp2']:.2f} x FSDP2")
    if "capture" in found:
        of = found["capture"]
        print("capture of 8B {capture:.1f} s, hand-over {hand_over:.3f} s".format(**of))
        for name in ("plan", "simulate"):
            ratio = of[name] / of["own_" + name]
            print(f"{name} {of[name]:.3f} s, {ratio:.2f} x that of Heddle's own capture")
        print("{nodes} nodes, {own_nodes} of Heddle's own capture".format(**of))
    out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
