"""Context parallelism: ranks that have different positions of the same sequences.

Part of `heddle verify --against=pytorch` and `make oracle`.
"""
import torch
import torch.distributed as dist

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def stored(x):
    """Stores positions before heads, as attention does. Sums over both depend on it."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


class Positions:
    """The positions of this rank, and of all ranks in their order."""

    def __init__(self, job, part, group):
        ranks, length = job["context"], job["seq_len"]
        parts = torch.arange(length).chunk(2 * ranks if job["head_tail"] else ranks)
        pieces = [[parts[r], parts[-1 - r]] if job["head_tail"] else [parts[r]]
                  for r in range(ranks)]
        self.by_heads, self.group, self.ranks = job["context_heads"], group, ranks
        self.rank = part % ranks
        self.pieces = pieces[self.rank]
        self.own = torch.cat(self.pieces)
        self.all = torch.cat([piece for both in pieces for piece in both])

    def gather(self, part, dim):
        parts = [torch.empty_like(part, memory_format=torch.contiguous_format)
                 for _ in range(self.ranks)]
        dist.all_gather(parts, part.contiguous(), group=self.group)
        return torch.cat(parts, dim)

    def gather_sorted(self, part):
        return self.gather(part, 2)[:, :, torch.argsort(self.all)]

    def reduce(self, whole, dtype):
        """The sum over ranks, in f32, for this rank's positions. Tensors move as they are stored,
        with positions before heads."""
        whole = whole.to(dtype)[:, :, self.all].transpose(1, 2)
        wide = whole.float() if dtype == torch.bfloat16 else whole
        batch, length, heads, size = wide.shape
        by_rank = wide.reshape(batch, self.ranks, length // self.ranks, heads, size).transpose(0, 1)
        own = wide.new_empty(by_rank[0].numel())
        dist.reduce_scatter_tensor(own, by_rank.flatten(), group=self.group)
        return own.view(by_rank[0].shape).to(dtype).transpose(1, 2)


class Gathered(torch.autograd.Function):
    """Attention of this rank's queries over the keys of all ranks."""

    @staticmethod
    def mask(piece, dtype):
        keys = torch.arange(int(piece[-1]) + 1)
        later = keys.unsqueeze(0) > piece.unsqueeze(1)
        return torch.zeros(later.shape, dtype=dtype).masked_fill_(later, -torch.inf)

    @staticmethod
    def forward(context, q, k, v, positions, scale):
        keys, values = positions.gather_sorted(k), positions.gather_sorted(v)
        outs, sums, at = [], [], 0
        for piece in positions.pieces:
            mask, end = Gathered.mask(piece, q.dtype), int(piece[-1]) + 1
            out, logsumexp = FORWARD(q[:, :, at:at + len(piece)], keys[:, :, :end],
                                     values[:, :, :end], 0.0, False, attn_mask=mask, scale=scale)
            outs.append(out)
            sums.append(logsumexp)
            at += len(piece)
        out = stored(torch.cat(outs, 2))
        context.save_for_backward(q, k, v, out, torch.cat(sums, 2))
        context.rest = positions, scale
        return out

    @staticmethod
    def backward(context, grad):
        q, k, v, out, logsumexp = context.saved_tensors
        positions, scale = context.rest
        keys, values = positions.gather_sorted(k), positions.gather_sorted(v)
        wide = torch.float32 if q.dtype == torch.bfloat16 else q.dtype
        key_sum, value_sum = (torch.zeros_like(t, dtype=wide) for t in (keys, values))
        queries, at = [], 0
        for piece in positions.pieces:
            mask, end, here = Gathered.mask(piece, q.dtype), int(piece[-1]) + 1, slice(
                at, at + len(piece))
            dq, dk, dv = BACKWARD(grad[:, :, here], q[:, :, here], keys[:, :, :end],
                                  values[:, :, :end], out[:, :, here], logsumexp[:, :, here], 0.0,
                                  False, attn_mask=mask, scale=scale)
            queries.append(dq)
            key_sum[:, :, :end] += dk
            value_sum[:, :, :end] += dv
            at += len(piece)
        return (stored(torch.cat(queries, 2)), positions.reduce(key_sum, k.dtype),
                positions.reduce(value_sum, v.dtype), None, None)


class Swap(torch.autograd.Function):
    """Moves the split of a tensor from positions to heads, or back."""

    @staticmethod
    def move(x, positions, to_heads):
        whole = positions.gather(x, 2 if to_heads else 1)
        return stored(whole.chunk(positions.ranks, 1 if to_heads else 2)[positions.rank])

    @staticmethod
    def forward(context, x, positions, to_heads):
        context.rest = positions, to_heads
        return Swap.move(x, positions, to_heads)

    @staticmethod
    def backward(context, grad):
        positions, to_heads = context.rest
        return Swap.move(grad, positions, not to_heads), None, None


class Repeat(torch.autograd.Function):
    """Repeats every head, and sums gradients in f32."""

    @staticmethod
    def forward(context, x, times):
        context.times = times
        return x.repeat_interleave(times, 1)

    @staticmethod
    def backward(context, grad):
        stored = grad.transpose(1, 2).contiguous()
        wide = stored.float() if grad.dtype == torch.bfloat16 else stored
        summed = wide.unflatten(2, (-1, context.times)).sum(3)
        return summed.to(grad.dtype).transpose(1, 2), None


def attend(q, k, v, positions, scale):
    """Causal attention over the positions of all ranks."""
    if not positions.by_heads:
        return Gathered.apply(q, k, v, positions, scale)

    def swapped(x):
        if x.shape[1] % positions.ranks:
            x = Repeat.apply(x, positions.ranks // x.shape[1])
        return Swap.apply(x, positions, True)

    out = FORWARD(swapped(q), swapped(k), swapped(v), 0.0, True, scale=scale)[0]
    return Swap.apply(out, positions, False)
