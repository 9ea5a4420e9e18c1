#!/usr/bin/env python3
"""Compares training steps of pipelines with PyTorch: pipeline_steps.py HEDDLE [--all]

torch.distributed.pipelining trains llama3 over Gloo, one process per rank, in f32 without clipping.
`HEDDLE train` trains the same weights on the same tokens. Losses, gradients and weights must have
the same bits on every rank."""
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import multiprocessing, nn
from torch.distributed import pipelining

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "heddle/run/verify/pytorch"))

import models  # noqa: E402
import reference  # noqa: E402
from layers import Context  # noqa: E402

STEPS, LENGTH, LAYERS = 3, 16, 6
LR, BETAS, EPS, DECAY = 1e-3, (0.9, 0.95), 1e-8, 0.1
# The class in PyTorch, and whether a rank has several stages.
SCHEDULES = {
    "1F1B": (pipelining.Schedule1F1B, False),
    "Interleaved1F1B": (pipelining.ScheduleInterleaved1F1B, True),
    "ZBVZeroBubble": (pipelining.ScheduleZBVZeroBubble, True),
}
# Schedule, ranks, micro-batches, and further flags of Heddle.
QUICK = [("1F1B", 2, 4, ["--nproc=2"]), ("Interleaved1F1B", 2, 4, []), ("ZBVZeroBubble", 2, 4, [])]
ALL = [*QUICK, ("1F1B", 4, 8, []), ("ZBVZeroBubble", 2, 8, []), ("Interleaved1F1B", 4, 8, ["--nproc=4"]),
       ("ZBVZeroBubble", 4, 8, [])]


class Stage(nn.Module):
    """The layers of a model from one position to before another: 0 is the embedding, N is layer
    N - 1, and the last position is the output."""

    def __init__(self, model, begin, end):
        super().__init__()
        self.rotations, last = model.tables["global"], len(model.layers) + 1
        self.tok_embeddings = model.tok_embeddings if begin == 0 else None
        self.layers = nn.ModuleDict({str(i): model.layers[str(i)] for i in range(max(begin, 1) - 1, min(end, last) - 1)})
        self.norm, self.output = (model.norm, model.output) if end > last else (None, None)

    def forward(self, x):
        if self.tok_embeddings is not None:
            x = self.tok_embeddings(x)
        for block in self.layers.values():
            x = block(x, self.rotations)
        return x if self.output is None else self.output(self.norm(x))


def train_rank(job, rank, port, to_parent):
    reference.die_with_parent()
    torch.set_num_threads(1)
    torch._C._set_mkldnn_enabled(False)
    ranks, firsts = job["ranks"], job["stages"]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    model = models.make_model(job, Context(job))
    file = reference.Safetensors(job["weights"])
    model.load_state_dict({name: file[name] for name, _ in model.named_parameters()})
    schedule_class, several = SCHEDULES[job["schedule"]]
    count = len(firsts)
    if job["schedule"] == "ZBVZeroBubble":
        own = [rank, count - 1 - rank]
    else:
        own = list(range(rank, count, ranks))
    ends = [*firsts[1:], len(model.layers) + 2]
    parts = [Stage(model, firsts[stage], ends[stage]) for stage in own]
    stages = [pipelining.PipelineStage(part, stage, count, torch.device("cpu"))
              for part, stage in zip(parts, own)]
    batches, tokens_of_step = reference.Batches(job), job["rows"] * LENGTH

    def loss_of(logits, labels):
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / float(tokens_of_step)

    schedule = schedule_class(stages if several else stages[0], job["micro_batches"], loss_fn=loss_of,
                              scale_grads=False)
    named = {name: param for part in parts for name, param in part.named_parameters()}
    optimizer = torch.optim.AdamW(named.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY, fused=True,
                                  foreach=False)
    for step in range(1, STEPS + 1):
        tokens, labels, _ = batches.read("train", step, 0, job["rows"])
        optimizer.zero_grad()
        losses, hashes = [], {}
        schedule.step(*([tokens] if 0 in own else []), target=labels, losses=losses)
        if count - 1 in own:
            total = losses[0]
            for loss in losses[1:]:
                total = total + loss
            hashes["loss"] = total.item().hex()
        hashes.update({name + ".grad": reference.sha256(param.grad) for name, param in named.items()})
        optimizer.step()
        hashes.update({name: reference.sha256(param) for name, param in named.items()})
        to_parent.send(hashes)
    dist.barrier()
    dist.destroy_process_group()


def pytorch(job):
    """By step, the hashes of all ranks."""
    context = multiprocessing.get_context("fork")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pipes, processes = [], []
    for rank in range(job["ranks"]):
        reader, writer = context.Pipe(duplex=False)
        processes.append(context.Process(target=train_rank, args=(job, rank, port, writer), daemon=True))
        processes[-1].start()
        writer.close()
        pipes.append(reader)
    steps = []
    for _ in range(STEPS):
        steps.append({name: value for one in reference.receive(pipes, processes) for name, value in one.items()})
    for process in processes:
        process.join()
    return steps


def heddle_steps(heddle, folder, flags):
    """By step, the hashes of all ranks; and their losses, which must be one."""
    file = os.path.join(folder, "hashes.jsonl")
    subprocess.run([heddle, "train", *flags, f"--training.steps={STEPS}", f"--optimizer.lr={LR}", f"--hashes={file}",
                    "--hash-gradients"], check=True, stdout=subprocess.DEVNULL)
    steps = [{} for _ in range(STEPS)]
    with open(file, encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            step = steps[row["step"] - 1]
            name, value = (row["name"], row["sha256"]) if "name" in row else ("loss", float.fromhex(row["loss"]).hex())
            if step.setdefault(name, value) != value:
                sys.exit(f"ranks have different values of {name}")
    return steps


def compare(heddle, schedule, ranks, micro_batches, flags):
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--model=llama3", f"--model.n_layers={LAYERS}", "--model.dim=64", "--model.n_heads=4",
                 "--model.n_kv_heads=2", "--model.ffn_dim=96", "--model.vocab_size=257", "--precision=f32",
                 f"--training.seq_len={LENGTH}", f"--training.local_batch_size={micro_batches}",
                 "--training.dataset=synthetic", "--training.max_norm=0", "--lr_scheduler.warmup_steps=0",
                 "--lr_scheduler.decay=none", f"--optimizer.beta1={BETAS[0]}", f"--optimizer.beta2={BETAS[1]}",
                 f"--optimizer.eps={EPS}", f"--optimizer.weight_decay={DECAY}",
                 f"--parallelism.pipeline_parallel_degree={ranks}",
                 f"--parallelism.pipeline_parallel_schedule={schedule}", *flags]
        # A step with a learning rate of 0 saves the initial weights.
        initial = [flag for flag in flags if "nproc" not in flag and "pipeline" not in flag]
        for name, job in (("pipeline", flags), ("alone", initial)):
            subprocess.run([heddle, "train", *job, "--training.steps=1", "--optimizer.lr=0",
                            f"--checkpoint.folder={folder}/{name}"], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
        saved = pathlib.Path(folder, "alone", "step-00000001")
        state = json.loads((saved / "manifest.json").read_text())["manifest"]["state"]
        plan = pathlib.Path(folder, "pipeline", "step.plan").read_text()
        job = {"ranks": ranks, "schedule": schedule, "micro_batches": micro_batches, "rows": micro_batches,
               "stages": [int(first) for first in re.search(r"^stages ([\d/]+)", plan, re.M)[1].split("/")],
               "weights": str(saved / "rank-00000.safetensors"), "seq_len": LENGTH, "precision": "f32",
               "attention": "flash", "aux_loss": 0, "expert": 1, "data": "", "seed": state["seed"],
               "model": {"family": state["model"], **state["constants"]}}
        here, there = heddle_steps(heddle, folder, flags), pytorch(job)
    different = [f"step {step}: {name}" for step, (own, other) in enumerate(zip(here, there), 1)
                 for name in sorted({*own, *other}) if own.get(name) != other.get(name)]
    same = sum(len(step) for step in there) - len(different)
    what = f"{schedule}, {ranks} ranks, {micro_batches} micro-batches"
    print(f"{what}: {same} values have the same bits, {len(different)} differ", *different[:5], sep="\n  ")
    return same > 0 and not different


def main():
    jobs = ALL if "--all" in sys.argv[2:] else QUICK
    return 0 if all([compare(sys.argv[1], *job) for job in jobs]) else 1


if __name__ == "__main__":
    sys.exit(main())
