#!/usr/bin/env python3
"""How long PyTorch's own passes over collectives take on its graph of Llama 3, and Heddle's pipeline on the same model:
pass_bench.py HEDDLE OUT.json [LAYERS]

make_fx traces the step of one of eight FSDP ranks with fake tensors and a fake process group: every parameter gathered in forward, every
gradient scattered in backward. Inductor's bucketing and its overlap scheduling then run on that graph, and `fsdp` on Heddle's.
"""
import json
import logging
import subprocess
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._inductor.fx_passes.bucketing import bucket_all_gather, bucket_reduce_scatter
from torch._inductor.fx_passes.overlap_scheduling import schedule_overlap_bucketing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._functional_collectives import all_gather_tensor_autograd
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils import _runtime_estimation

RANKS = 8
DIM, HEADS, FFN, VOCAB, POSITIONS = 256, 16, 768, 2048, 2048


def rotate(x, rope):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rope[None, :, None, :]).flatten(3).to(x.dtype)


def trace(layers):
    """The graph of forward, loss and backward of one rank."""
    size = DIM // HEADS
    shapes = [(VOCAB, DIM)] + ([(DIM, DIM)] * 4 + [(FFN, DIM), (DIM, FFN), (FFN, DIM), (DIM,), (DIM,)]) * layers + [(DIM,), (VOCAB, DIM)]
    group = dist.group.WORLD

    def step(shards, rope, tokens, labels):
        full = iter([all_gather_tensor_autograd(p.to(torch.bfloat16), 0, group) for p in shards])
        x = F.embedding(tokens, next(full))
        for _ in range(layers):
            wq, wk, wv, wo, w1, w2, w3, n1, n2 = (next(full) for _ in range(9))
            h = F.rms_norm(x, (DIM,), n1, 1e-5)
            q, k, v = (F.linear(h, w).view(1, POSITIONS, HEADS, size) for w in (wq, wk, wv))
            q, k = rotate(q, rope), rotate(k, rope)
            out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
            x = x + F.linear(out.transpose(1, 2).reshape(1, POSITIONS, -1), wo)
            h = F.rms_norm(x, (DIM,), n2, 1e-5)
            x = x + F.linear(F.silu(F.linear(h, w1)) * F.linear(h, w3), w2)
        x = F.rms_norm(x, (DIM,), next(full), 1e-5)
        logits = F.linear(x, next(full)).float().flatten(0, 1)
        loss = F.cross_entropy(logits, labels.flatten(), reduction="sum") / POSITIONS
        return [loss] + list(torch.autograd.grad(loss, shards))

    with FakeTensorMode() as mode:
        shards = [torch.empty((s[0] // RANKS, *s[1:]), requires_grad=True) for s in shapes]
        rope = torch.empty(POSITIONS, size // 2, dtype=torch.complex64)
        tokens, labels = (torch.zeros(1, POSITIONS, dtype=torch.int64) for _ in range(2))
        return make_fx(step)(shards, rope, tokens, labels), mode


def seconds(work):
    begin = time.process_time()
    work()
    return time.process_time() - begin


def run_inductor(layers):
    """CPU seconds of bucketing and of scheduling with bucketing, and the nodes of the graph."""
    # It asks the GPU how fast it is; there need not be one. Those of an H100.
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
    command = [heddle, "plan", "--json", "--flavor=debugmodel", f"--model.n_layers={layers}", f"--training.seq_len={POSITIONS}",
               f"--parallelism.data_parallel_shard_degree={RANKS}"]
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
