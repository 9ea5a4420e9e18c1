"""Trains a job with PyTorch itself, one process per rank: reference.py JOB.json

`heddle verify --against=pytorch` writes the job, starts this program and compares what it prints:
lines of JSON on standard output, in the order of steps and ranks.

  {"torch": "2.13.0"}                                          ready to start
  {"missing": "No module named 'torch'"}                       cannot start
  {"initial": "`norm.weight` is not ones"}                     the initial weights are wrong
  {"step": 1, "rank": 0, "loss": "0x1.04fe7ep+3"}
  {"step": 1, "rank": 0, "validation_loss": "0x1.04fe7ep+3"}   after steps that validate
  {"step": 1, "rank": 0, "name": "...", "shape": [64, 256], "sha256": "..."}
  {"end": 1}                                                   all lines of step 1 were printed

Names are those of parameters; `.grad`, `.exp_avg`, `.exp_avg_sq` and `.momentum_buffer` after a
name are its gradient before clipping and the state of its optimizer.
"""
import ctypes
import hashlib
import json
import math
import os
import signal
import socket
import struct
import sys
from multiprocessing import connection

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as multiprocessing
    import torch.nn.functional as F

    import models
    import optimizers
    import parallel
    from layers import IGNORED, Context, wide
    from parallel import local
    from positions import Positions
except ImportError as error:
    print(json.dumps({"missing": str(error)}), flush=True)
    sys.exit(0)

MASK = (1 << 64) - 1


def die_with_parent():
    """No process of a job outlives the command."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


# --- Files and data.


class Safetensors:
    """A file of tensors: the length of a header, the header in JSON, then the bytes."""

    TYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64,
             "BOOL": torch.bool}

    def __init__(self, path):
        with open(path, "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            self.header = json.loads(file.read(size))
        self.header.pop("__metadata__", None)
        self.path, self.start = path, 8 + size

    def __getitem__(self, name):
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        with open(self.path, "rb") as file:
            file.seek(self.start + begin)
            data = bytearray(file.read(end - begin))
        return torch.frombuffer(data, dtype=self.TYPES[entry["dtype"]]).view(entry["shape"])


def scramble(x):
    """splitmix64."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


class Batches:
    """Tokens and labels of any rows of a step, and the ends of their documents: from the job's
    file, or synthetic."""

    def __init__(self, job):
        self.job = job
        self.file = Safetensors(job["data"]) if job["data"] else None

    def read(self, split, step, first, rows):
        if self.file:
            return tuple(self.file[f"{split}.{step}.{part}"][first:first + rows]
                         for part in ("tokens", "labels", "ends"))
        job, seed = self.job, self.job["seed"]
        if split == "held_out":
            seed = scramble(~seed & MASK)
        vocab, length = job["model"]["vocab_size"], job["seq_len"]
        start = (seed << 40) + (step << 32)
        tokens = torch.tensor([[scramble((start + (row << 16) + at) & MASK) % vocab
                                for at in range(length + 1)] for row in range(first, first + rows)])
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), None

    def counted(self, split, step, rows):
        """The number of labels in these rows that count towards the loss."""
        if not self.file or self.job["loss_divisor"] == "all_tokens":
            return float(rows * self.job["seq_len"])
        return float(max(1, (self.read(split, step, 0, rows)[1] != IGNORED).sum()))


def wrong_initial(job, weights):
    """Returns the error in the initial weights from Heddle; None if they are right."""
    for name in weights.header:
        if name.endswith(".expert_bias_E"):
            continue
        deviation, tensor = models.initial_deviation(job["model"], name), weights[name].double()
        if deviation is None:
            if not torch.all(tensor == 1):
                return f"`{name}` is not all ones"
            continue
        if deviation == 0:
            if torch.any(tensor != 0):
                return f"`{name}` is not all zeros"
            continue
        count = tensor.numel()
        mean, found = tensor.mean().item(), tensor.square().mean().sqrt().item()
        if abs(mean) > 6 * deviation / math.sqrt(count):
            return f"`{name}` has mean {mean:.4g} and deviation {found:.4g}, expected mean 0"
        # Values beyond three deviations may be left out, which takes 1.3 %.
        if abs(found / deviation - 1) > 0.02 + 6 / math.sqrt(2 * count):
            return f"`{name}` has deviation {found:.4g}, expected {deviation:.4g}"
    return None


def learning_rate(job, step):
    """TorchTitan's schedule: warm-up, stable, decay. Steps count from 1."""
    steps, lr, kind = job["steps"], job["lr"], job["decay"]
    warmup = min(job["warmup_steps"], steps)
    decay = min(steps - warmup, round(steps * job["decay_ratio"])) if kind != "none" else 0
    stable_until = steps + 1 - decay
    if step <= warmup:
        return lr * (step / warmup)
    if step <= stable_until or decay == 0:
        return lr
    progress = min((step - stable_until) / decay, 1.0)
    left = {"linear": lambda: 1 - progress, "sqrt": lambda: 1 - math.sqrt(progress),
            "cosine": lambda: 0.5 * (1 + math.cos(math.pi * progress))}[kind]()
    floor = job["min_lr_factor"]
    return lr * (floor + (1 - floor) * left)


# --- One rank.


def places_in_documents(ends):
    """A document begins with its row, and after the end of another."""
    places = torch.zeros(ends.shape, dtype=torch.int64, device=ends.device)
    for at in range(1, ends.shape[1]):
        places[:, at] = torch.where(ends[:, at - 1], 0, places[:, at - 1] + 1)
    return places



def sha256(tensor):
    tensor = local(tensor).detach().cpu().contiguous()
    size = tensor.numel() * tensor.element_size()
    return hashlib.sha256((ctypes.c_char * size).from_address(tensor.data_ptr())
                          if size else b"").hexdigest()


class Rank:
    def __init__(self, job, rank):
        self.job, self.rank = job, rank
        self.groups = parallel.Groups(job, rank)
        expert_group = self.groups.mesh["inside"].get_group() if job["expert"] > 1 else None
        self.context = Context(job, expert_group)
        if job["context"] > 1:
            self.context.positions = Positions(job, self.groups.part, self.groups.context)
        self.model = self.load()
        if job["tensor"] > 1:
            parallel.apply_tensor_parallel(job, self.model, self.groups.mesh["tensor"])
        parallel.apply_fsdp(job, self.model, self.groups)
        self.batches = Batches(job)
        self.optimizers = optimizers.make_optimizers(job, self.model)

    def load(self):
        job, file = self.job, Safetensors(self.job["weights"])
        model = models.make_model(job, self.context).to_device(job["device"])
        tensors = {}
        for name, param in model.named_parameters():
            tensor = file[name]
            if ".inner_experts." in name:
                owner = self.groups.part % job["expert"]
                tensor = tensor.chunk(job["expert"])[owner].contiguous()
            tensors[name] = tensor
        if self.context.positions and not job["documents"]:
            model.select_positions(self.context.positions.own)
        # A tied output is not in the file.
        model.load_state_dict(tensors, strict=job["model"]["tied"] != "true")
        for name, mixture in models.mixtures(model).items():
            if mixture.expert_bias_E is not None:
                mixture.expert_bias_E = file[f"{name}.expert_bias_E"]
        return model

    def loss_sum(self, tokens, labels):
        self.context.loss_terms.clear()
        logits = wide(local(self.model(tokens))).flatten(0, 1)
        labels = labels.flatten()
        if self.job["tensor"] > 1 and self.job["split_loss"]:
            begin = -(-self.job["model"]["vocab_size"] // self.job["tensor"]) * self.groups.slice
            group = self.groups.tensor_group()
            loss = parallel.SplitCrossEntropy.apply(logits, labels, begin, group)
        else:
            loss = F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED)
        if self.job["z_loss"] > 0:
            squares = torch.logsumexp(logits, 1) ** 2
            loss = loss + (squares * (labels != IGNORED)).sum() * self.job["z_loss"]
        for term in self.context.loss_terms:
            loss = loss + term
        return loss

    def summed(self, loss):
        """The loss of all ranks. If the loss is not split, every slice has all of it."""
        loss = loss.detach().clone()
        split = self.job["tensor"] > 1 and self.job["split_loss"]
        dist.all_reduce(loss, group=dist.group.WORLD if split else self.groups.batch)
        return loss

    def rows(self):
        """Rows of all ranks in a batch."""
        job = self.job
        return job["rows"] * job["replicate"] * job["shard"] // job["context"]

    def run_batch(self, split, step, batch, count):
        """The loss of this rank's rows of a batch, divided by `count` tokens."""
        rows = self.job["rows"]
        part = self.groups.part // self.job["context"]
        first = batch * self.rows() + part * rows
        tokens, labels, ends = self.batches.read(split, step, first, rows)
        tokens, labels = (t.to(self.job["device"]) for t in (tokens, labels))
        if self.job["documents"]:
            self.context.documents = places_in_documents(ends).to(self.job["device"])
        if self.context.positions:
            own = self.context.positions.own
            tokens, labels = (t[:, own] for t in (tokens, labels))
            if self.job["documents"]:
                self.context.documents = self.context.documents[:, own]
        return self.loss_sum(tokens, labels) / count

    def train_step(self, step):
        """Lines of JSON: the whole state of this rank after the step."""
        job, total = self.job, None
        rows = self.rows() * job["accumulated"]
        count = self.batches.counted("train", step, rows)
        self.model.zero_grad()
        self.model.train()
        for batch in range(job["accumulated"]):
            loss = self.run_batch("train", step, batch, count)
            loss.backward()
            summed = self.summed(loss)
            total = summed if total is None else total + summed
        named = dict(self.model.named_parameters())
        lines = [{"loss": total.item().hex()}]
        lines += [self.hashed(name + ".grad", param.grad) for name, param in named.items()]
        parallel.clip(job, list(named.values()), self.groups)
        for optimizer in self.optimizers:
            optimizer.step(learning_rate(job, step))
        for name, param in named.items():
            lines.append(self.hashed(name, param))
            lines += [self.hashed(f"{name}.{kind}", tensor) for optimizer in self.optimizers
                      for kind, tensor in optimizer.state(param).items()]
        for name, mixture in models.mixtures(self.model).items():
            mixture.update_bias()
            if mixture.expert_bias_E is not None and job["model"]["moe.bias_rate"] > 0:
                lines.append(self.hashed(f"{name}.expert_bias_E", mixture.expert_bias_E))
        if job["validation_interval"] > 0 and step % job["validation_interval"] == 0:
            lines.append({"validation_loss": self.validate().hex()})
        return [json.dumps({"step": step, "rank": self.rank, **line}) for line in lines]

    @torch.no_grad()
    def validate(self):
        """The mean loss of held-out rows, read in batches of the step's size."""
        batches = self.job["accumulated"]
        rows = self.rows() * batches
        self.model.eval()
        losses = []
        for number in range(1, self.job["validation_steps"] + 1):
            count = self.batches.counted("held_out", number, rows)
            losses.append(sum(self.summed(self.run_batch("held_out", number, batch, count)).item()
                              for batch in range(batches)))
        return sum(losses) / len(losses)

    def hashed(self, name, tensor):
        return {"name": name, "shape": list(local(tensor).shape), "sha256": sha256(tensor)}


def train_rank(job, rank, port, to_parent):
    die_with_parent()
    torch.set_num_threads(1)
    torch._C._set_mkldnn_enabled(False)
    # The command may be a rank of torchrun's; this job is not, and has a store of its own.
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      WORLD_SIZE=str(job["world"]), LOCAL_RANK=str(rank),
                      LOCAL_WORLD_SIZE=str(job["world"]))
    if job["device"] == "cuda":
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if job["device"] == "cuda" else "gloo")
    trained = Rank(job, rank)
    for step in range(1, job["steps"] + 1):
        to_parent.send(trained.train_step(step))
    dist.barrier()
    dist.destroy_process_group()


# --- All ranks.


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def receive(pipes, processes):
    """Yields the next message of every rank. Exits if a rank has ended instead."""
    received, waiting = {}, dict(enumerate(pipes))
    while waiting:
        ended = [rank for rank, process in enumerate(processes) if process.exitcode]
        if ended:
            sys.exit(f"rank {ended[0]} ended with exit code {processes[ended[0]].exitcode}")
        for pipe in connection.wait(waiting.values(), timeout=1):
            rank = pipes.index(pipe)
            try:
                received[rank] = pipe.recv()
            except EOFError:
                processes[rank].join()
                continue
            del waiting[rank]
    return [received[rank] for rank in range(len(pipes))]


def main():
    die_with_parent()
    # Processes that are forked later cannot use a pool of threads made here.
    torch.set_num_threads(1)
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    if job["initial"] and (wrong := wrong_initial(job, Safetensors(job["weights"]))):
        print(json.dumps({"initial": wrong}), flush=True)
        return
    print(json.dumps({"torch": torch.__version__}), flush=True)
    # Forked processes need no import of their own, but cannot use a GPU.
    context = multiprocessing.get_context("spawn" if job["device"] == "cuda" else "fork")
    port, pipes, processes = free_port(), [], []
    for rank in range(job["world"]):
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(target=train_rank, args=(job, rank, port, writer), daemon=True)
        process.start()
        writer.close()
        pipes.append(reader)
        processes.append(process)
    for step in range(1, job["steps"] + 1):
        for lines in receive(pipes, processes):
            print("\n".join(lines))
        print(json.dumps({"end": step}), flush=True)
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
