"""PyTorch's parallelism for the models: fully_shard, DTensor's tensor parallelism, all_to_all.

A rank is (replica * shard + part) * tensor + slice. Ranks that share experts, and ranks that have
positions of the same sequences, are consecutive in their shard group."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput,
                                               RowwiseParallel, SequenceParallel,
                                               parallelize_module)

from layers import IGNORED

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Groups:
    """The process groups of a job, and the coordinates of this rank."""

    def __init__(self, job, rank):
        replicate, shard, tensor = job["replicate"], job["shard"], job["tensor"]
        inside = job["expert"]
        sizes = {"replicate": replicate, "outside": shard // inside, "inside": inside,
                 "tensor": tensor}
        if inside == 1:
            sizes = {"replicate": replicate, "shard": shard, "tensor": tensor}
        kept = {name: size for name, size in sizes.items()
                if size > 1 or name in ("shard", "outside", "inside")}
        self.mesh = init_device_mesh(job["device"], tuple(kept.values()),
                                     mesh_dim_names=tuple(kept))
        self.slice = rank % tensor
        self.part = rank // tensor
        world = replicate * shard * tensor
        # The ranks that have the same slice, and so all parts of the batch.
        batches = [dist.new_group(list(range(s, world, tensor))) for s in range(tensor)]
        self.batch = batches[self.slice]
        members = shard * tensor
        replicas = [dist.new_group(list(range(r * members, (r + 1) * members)))
                    for r in range(replicate)]
        self.replica = replicas[rank // members]
        width = job["context"]
        contexts = [dist.new_group(list(range(c * width, (c + 1) * width)))
                    for c in range(world // width)]
        self.context = contexts[rank // width]

    def tensor_group(self):
        return self.mesh["tensor"].get_group()


# --- Tensor parallelism.


def apply_tensor_parallel(job, model, mesh):
    """TorchTitan's plan for dense decoders."""
    between = Shard(1) if job["sequence_parallel"] else Replicate()
    norm = SequenceParallel() if job["sequence_parallel"] else None
    logits = Shard(-1) if job["split_loss"] else Replicate()
    whole = {"output": ColwiseParallel(input_layouts=between, output_layouts=logits),
             "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=between)}
    layer = {"attention": PrepareModuleInput(input_layouts=(between, None),
                                             desired_input_layouts=(Replicate(), None)),
             "attention.wo": RowwiseParallel(output_layouts=between),
             "feed_forward": PrepareModuleInput(input_layouts=(between,),
                                                desired_input_layouts=(Replicate(),)),
             "feed_forward.w2": RowwiseParallel(output_layouts=between)}
    columns = ("attention.wq", "attention.wk", "attention.wv", "feed_forward.w1",
               "feed_forward.w3")
    for name in columns:
        layer[name] = ColwiseParallel()
    if norm:
        whole["norm"] = norm
        layer["attention_norm"] = layer["ffn_norm"] = norm
    if job["model"]["family"] == "qwen3":
        # Every rank has the norms of its own heads: dimension 2 of [batch, position, head, size].
        heads = SequenceParallel(sequence_dim=2, use_local_output=True)
        layer["attention.q_norm"] = layer["attention.k_norm"] = heads
    parallelize_module(model, mesh, whole)
    if job["model"]["tied"] == "true":
        # Both modules have made a DTensor of the one parameter.
        model.output.weight = model.tok_embeddings.weight
    for block in model.layers.values():
        parallelize_module(block, mesh, layer)


class SplitCrossEntropy(torch.autograd.Function):
    """Summed cross entropy with the classes split over ranks; this rank's begin at `begin`."""

    @staticmethod
    def forward(context, scores, labels, begin, group):
        most = scores.amax(1, keepdim=True)
        dist.all_reduce(most, dist.ReduceOp.MAX, group=group)
        shifted = scores - most
        total = shifted.exp().sum(1, keepdim=True)
        dist.all_reduce(total, group=group)
        logs = shifted - total.log()
        here = (labels >= begin) & (labels < begin + scores.shape[1])
        own = torch.where(here, labels - begin, IGNORED)
        context.save_for_backward(logs, labels, own)
        return F.nll_loss(logs, own, ignore_index=IGNORED, reduction="sum")

    @staticmethod
    def backward(context, grad):
        logs, labels, own = context.saved_tensors
        counted = (labels != IGNORED).unsqueeze(1)
        out = logs.exp() * (grad * counted)
        rows = torch.nonzero(own != IGNORED).squeeze(1)
        out[rows, own[rows]] -= grad
        return out, None, None, None


# --- Sharded parameters.


def units(model):
    """The modules whose parameters are gathered and reduced together, as TorchTitan groups them."""
    first, last = [[model.tok_embeddings]], [[model.output]]
    if hasattr(model, "position_embeddings"):
        first[0].append(model.position_embeddings)
    if hasattr(model, "norm"):
        last = [[model.norm, model.output]]
        if model.output.weight is model.tok_embeddings.weight:
            first, last = [], [first[0] + last[0]]
    return first + [[block] for block in model.layers.values()] + last


def apply_fsdp(job, model, groups):
    reduce = DTYPES["bf16"] if job["reduce"] == "bf16" else DTYPES["f32"]
    if job["precision"] == "f64":
        reduce = DTYPES["f64"]
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[job["precision"]], reduce_dtype=reduce,
                                  cast_forward_inputs=False)
    mesh = groups.mesh

    def by_expert(ranks):
        """With more ranks than experts, stacks of experts are split within each expert."""
        return lambda param: Shard(1) if param.dim() == 3 and ranks > param.shape[0] else None

    if job["expert"] > 1:
        everywhere = mesh["outside", "inside"]._flatten("everywhere")
        copies = mesh["outside"].size()
        for block in model.layers.values():
            if block.mixture:
                fully_shard(block.moe.routed_experts.inner_experts, mesh=mesh["outside"],
                            mp_policy=policy, shard_placement_fn=by_expert(copies))
    else:
        everywhere = mesh["replicate", "shard"] if job["replicate"] > 1 else mesh["shard"]
    options = {"mesh": everywhere, "mp_policy": policy,
               "shard_placement_fn": by_expert(job["shard"])}
    for unit in units(model):
        fully_shard(unit if len(unit) > 1 else unit[0], **options)
    fully_shard(model, **options)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # The loss is already divided by all tokens. Gloo has no sum that scales; a plain sum
            # has the same bits.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


# --- Clipping.


def is_whole(param):
    """Whether every tensor-parallel rank has the whole parameter."""
    names = param.device_mesh.mesh_dim_names
    return "tensor" not in names or param.placements[names.index("tensor")].is_replicate()


def total_norm(job, params, groups):
    """The norm of all gradients.

    For parameters on different meshes, PyTorch's function rounds once per axis. This function
    sums the squares of all gradients in one all_reduce instead."""
    grads = [param.grad for param in params]
    if job["tensor"] == 1 and job["expert"] == 1:
        norm = torch.nn.utils.get_total_norm(grads, 2.0)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm
    norms = torch.stack(torch._foreach_norm([local(grad) for grad in grads], 2))
    if groups.slice > 0:
        norms *= torch.tensor([0.0 if is_whole(param) else 1.0 for param in params])
    squares = norms * norms
    dist.all_reduce(squares, group=groups.replica)
    return torch.linalg.vector_norm(squares.sqrt(), 2)


def clip(job, params, groups):
    if job["max_norm"] > 0:
        norm = total_norm(job, params, groups)
        for param in params:
            # Meshes differ between parameters, so each is scaled alone.
            torch.nn.utils.clip_grads_with_norm_([param], job["max_norm"], norm)
