#!/usr/bin/env python3
"""Captured steps on a GPU through the Python package: the bits of eager PyTorch, and the times.

Usage: python_step.py [--json=FILE] [--steps=10]. The package is on PYTHONPATH, with heddle._torch.
Each model trains with AdamW in the graph (recorded as a CUDA graph), with the optimizer of torch,
and as an FX graph. Exit code 77: no GPU, or no package. 1: some bits differ."""

import argparse
import copy
import json
import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python/tests"))
OPTIONS = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def tokens(vocabulary, rows, length):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(3, vocabulary, (rows, length), generator=generator)


def llama(dtype):
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=2048, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4,
        max_position_embeddings=512)
    model = transformers.LlamaForCausalLM(config).train().to(dtype)
    ids = tokens(2048, 4, 512)
    return model, dict(input_ids=ids, labels=ids.clone()), None


def nanogpt(dtype):
    from modules import NanoGPT, gpt_loss

    return NanoGPT().to(dtype), {key: tokens(64, 64, 16) for key in ("x", "y")}, gpt_loss


CASES = {
    "llama bf16": (llama, torch.bfloat16),
    "llama f32": (llama, torch.float32),
    "nanogpt f32": (nanogpt, torch.float32),
    "nanogpt bf16": (nanogpt, torch.bfloat16),
}


def on_gpu(batch):
    return {key: value.cuda() for key, value in batch.items()}


def timed(step, steps):
    """Results of all steps, and the median time in milliseconds of those after the first three."""
    results, times = [], []
    for _ in range(steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        result = step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
        results.append(result.detach().clone())
    return results, statistics.median(times[3:])


def eager(model, batch, loss, steps):
    trained = copy.deepcopy(model).cuda()
    data = on_gpu(batch)
    lr = torch.tensor(OPTIONS["lr"], device="cuda")
    optimizer = torch.optim.AdamW(trained.parameters(), fused=True, **{**OPTIONS, "lr": lr})

    def step():
        value = loss(trained, data) if loss else trained(**data).loss
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value

    losses, ms = timed(step, steps)
    return losses, {name: value.detach() for name, value in trained.named_parameters()}, ms


def captured(heddle, model, batch, loss, steps, kind):
    given = heddle.AdamW(**OPTIONS) if kind == "recorded" else None
    step = heddle.capture(model, batch, loss=loss, optimizer=given, target="cuda")
    program = step.compile(step.plan("dp=1"))
    if kind == "fx":
        mesh = dist.init_device_mesh("cuda", (1,), mesh_dim_names=("dp",))
        run = program.start(mesh, weights=model)
    else:
        run = program.start(weights=model, device="cuda")
    optimizer = None
    if given is None:
        lr = torch.tensor(OPTIONS["lr"], device="cuda")
        optimizer = torch.optim.AdamW(run.parameters(), fused=True, **{**OPTIONS, "lr": lr})
    data = on_gpu(batch)

    def one():
        value = run(data)
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        return value

    losses, ms = timed(one, steps)
    notes = getattr(run._module, "notes", [])
    recorded = bool(getattr(run._module, "is_recorded", False))
    return losses, {name: value.detach() for name, value in run.named_parameters()}, ms, notes, recorded


def differing(a, b):
    return [name for name in a if not torch.equal(a[name], b[name])]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", default="")
    parser.add_argument("--steps", type=int, default=10)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return 77
    try:
        import heddle
        import heddle._torch
    except ImportError as error:
        print(f"skipped: no package: {error}")
        return 77
    # With warn_only, attention adds in an order that changes from run to run.
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    rows, failed = [], 0
    for name, (make, dtype) in CASES.items():
        torch.manual_seed(0)
        try:
            model, batch, loss = make(dtype)
        except ImportError as error:
            print(f"skipped: {name}: {error}")
            continue
        want, weights, eager_ms = eager(model, batch, loss, given.steps)
        for kind in ("recorded", "launched", "fx"):
            try:
                got, ours, ms, notes, recorded = captured(heddle, model, batch, loss, given.steps, kind)
            except Exception as error:  # One case must not hide the others.
                print(f"{name}, {kind}: {type(error).__name__}: {error}")
                rows.append(dict(case=name, kind=kind, error=str(error)))
                failed += 1
                continue
            losses = [i for i, (a, b) in enumerate(zip(want, got)) if not torch.equal(a, b.reshape(a.shape))]
            tensors = differing(weights, ours)
            same = not losses and not tensors
            failed += not same or (kind == "recorded" and not recorded)
            print(f"{name}, {kind}: {'same bits' if same else f'losses {losses} and {len(tensors)} tensors differ'}, "
                  f"{ms:.3f} ms, eager {eager_ms:.3f} ms{', CUDA graph' if recorded else ''}", flush=True)
            for note in notes:
                print(f"  {note}")
            rows.append(dict(case=name, kind=kind, same=same, losses=losses, tensors=tensors[:4], ms=ms, eager_ms=eager_ms,
                             recorded=recorded, notes=notes))
    dist.destroy_process_group()
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
