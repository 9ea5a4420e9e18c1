#!/usr/bin/env python3
"""Measures PyTorch's own passes over collectives on its graph of Llama 3, and Heddle's pipeline
on the same model: pass_bench.py HEDDLE OUT.json [LAYERS]

make_fx traces the step of one of eight FSDP ranks with fake tensors and a fake process group:
forward gathers every parameter, and backward scatters every gradient. Inductor's bucketing and
its overlap scheduling run on that graph, and `fsdp` on Heddle's."""
import json
import logging
import subprocess
import sys
import time
import warnings

import torch
import torch.distributed as dist
from torch._inductor.fx_passes.bucketing import bucket_all_gather, bucket_reduce_scatter
from torch._inductor.fx_passes.overlap_scheduling import schedule_overlap_bucketing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._functional_collectives import all_gather_tensor_autograd
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils import _runtime_estimation

import torch_llama

RANKS = 8


def trace(layers):
    """The graph of forward, loss and backward of one rank."""
    group = dist.group.WORLD

    def step(shards, rope, tokens, labels):
        full = [all_gather_tensor_autograd(p.to(torch.bfloat16), 0, group) for p in shards]
        loss = torch_llama.loss(full, layers, rope, tokens, labels)
        return [loss] + list(torch.autograd.grad(loss, shards))

    with FakeTensorMode() as mode:
        shards = [torch.empty((s[0] // RANKS, *s[1:]), requires_grad=True) for s in torch_llama.shapes(layers)]
        return make_fx(step)(shards, *torch_llama.inputs()), mode


def seconds(work):
    begin = time.process_time()
    work()
    return time.process_time() - begin


def run_inductor(layers):
    """Returns CPU seconds of bucketing and of scheduling with bucketing, and the number of
    nodes."""
    # The pass asks for the speed of the GPU, but none is needed. These are the numbers of an H100.
    _runtime_estimation.get_gpu_dram_gbps = lambda: 3350
    _runtime_estimation.get_device_tflops = lambda dtype: 989
    graph, mode = trace(layers)
    nodes = len(graph.graph.nodes)
    with mode:
        buckets = seconds(lambda: (bucket_all_gather(graph), bucket_reduce_scatter(graph)))
    graph, mode = trace(layers)
    with mode:
        overlap = seconds(lambda: schedule_overlap_bucketing(
            graph, collective_bucketing=True, compute_estimator="analytical", collective_estimator="analytical",
            custom_runtime_estimation=lambda node, size: 0.1))
    return nodes, buckets, overlap


def run_heddle(heddle, layers):
    command = [heddle, "plan", "--json", "--flavor=debugmodel", f"--model.n_layers={layers}", f"--training.seq_len={torch_llama.POSITIONS}",
               f"--parallelism.data_parallel_shard_degree={RANKS}", "--without-optimizer"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return report["seconds"]["passes"]


def main():
    heddle, out = sys.argv[1:3]
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.ERROR)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    rows = []
    for layers in map(int, sys.argv[3:] or ("6", "32")):
        ours = min(run_heddle(heddle, layers) for _ in range(5))
        nodes, buckets, overlap = run_inductor(layers)
        print(f"llama3 debugmodel, {layers} layers, {RANKS} ranks ({nodes} nodes): inductor's buckets {buckets:.2f} s, overlap with buckets {overlap:.2f} s; "
              f"heddle's fsdp with all checks {ours * 1e3:.1f} ms, {overlap / ours:.0f} times faster")
        rows.append({"layers": layers, "nodes": nodes, "bucket_seconds": buckets, "overlap_seconds": overlap, "heddle_seconds": ours})
    with open(out, "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
