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
        self.ring, self.head_tail = job["context_ring"], job["head_tail"]
        # Keys and values come from latents of all positions, in the order of ranks.
        self.latents = job["context_latents"]
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
        whole = part if self.latents else self.gather(part, 2)
        return whole[:, :, torch.argsort(self.all)]

    def reduce(self, whole, dtype):
        """The sum over ranks, in f32, for this rank's positions. Tensors move as they are stored,
        with positions before heads."""
        whole = whole.to(dtype)[:, :, self.all].transpose(1, 2)
        # The gradients of latents are summed instead.
        return (whole.contiguous() if self.latents else self.reduce_stored(whole)).transpose(1, 2)

    def reduce_stored(self, whole):
        wide = whole.float() if whole.dtype == torch.bfloat16 else whole
        batch, length, *rest = wide.shape
        by_rank = wide.reshape(batch, self.ranks, length // self.ranks, *rest).transpose(0, 1)
        own = wide.new_empty(by_rank[0].numel())
        dist.reduce_scatter_tensor(own, by_rank.flatten(), group=self.group)
        return own.view(by_rank[0].shape).to(whole.dtype)


class Latents(torch.autograd.Function):
    """Gathers latents, [batch, positions, ...], and sums their gradients."""

    @staticmethod
    def forward(context, x, positions):
        context.positions = positions
        return positions.gather(x, 1)

    @staticmethod
    def backward(context, grad):
        return context.positions.reduce_stored(grad), None


class Call:
    """A call of the kernel: the queries of some rows with consecutive positions, and the keys from
    the first that they see."""

    def __init__(self, rows, at, piece, first):
        self.rows, self.at, self.piece, self.first = rows, at, piece, first
        self.end = int(piece[-1]) + 1

    def own(self, x):
        return x[self.rows, :, self.at:self.at + len(self.piece)]

    def seen(self, x):
        return x[self.rows, :, self.first:self.end]

    def mask(self, dtype):
        later = torch.arange(self.first, self.end).unsqueeze(0) > self.piece.unsqueeze(1)
        return torch.zeros(later.shape, dtype=dtype).masked_fill_(later, -torch.inf)


def calls_for(pieces, documents):
    """A list for each row, or one for all rows without documents."""
    starts = [sum(len(piece) for piece in pieces[:i]) for i in range(len(pieces))]
    if documents is None:
        return [[Call(slice(None), at, piece, 0) for at, piece in zip(starts, pieces)]]
    rows = []
    for row, places in enumerate(documents):
        calls = []
        for at, piece in zip(starts, pieces):
            firsts, counts = torch.unique_consecutive(piece - places[at:at + len(piece)],
                                                      return_counts=True)
            for first, part in zip(firsts.tolist(), piece.split(counts.tolist())):
                calls.append(Call(slice(row, row + 1), at, part, first))
                at += len(part)
        rows.append(calls)
    return rows


class Gathered(torch.autograd.Function):
    """Attention of this rank's queries over the keys of all ranks."""

    @staticmethod
    def forward(context, q, k, v, documents, positions, scale):
        keys, values = positions.gather_sorted(k), positions.gather_sorted(v)
        results = [[FORWARD(call.own(q), call.seen(keys), call.seen(values), 0.0, False,
                            attn_mask=call.mask(q.dtype), scale=scale) for call in row]
                   for row in calls_for(positions.pieces, documents)]
        out, sums = (torch.cat([torch.cat([both[i] for both in row], 2) for row in results])
                     for i in range(2))
        out = stored(out)
        context.save_for_backward(q, k, v, out, sums)
        context.rest = documents, positions, scale
        return out

    @staticmethod
    def backward(context, grad):
        q, k, v, out, logsumexp = context.saved_tensors
        documents, positions, scale = context.rest
        keys, values = positions.gather_sorted(k), positions.gather_sorted(v)
        wide = torch.float32 if q.dtype == torch.bfloat16 else q.dtype
        key_sum, value_sum = (torch.zeros_like(t, dtype=wide) for t in (keys, values))
        rows = []
        for row in calls_for(positions.pieces, documents):
            queries = []
            for call in row:
                dq, dk, dv = BACKWARD(call.own(grad), call.own(q), call.seen(keys),
                                      call.seen(values), call.own(out), call.own(logsumexp), 0.0,
                                      False, attn_mask=call.mask(q.dtype), scale=scale)
                queries.append(dq)
                call.seen(key_sum).add_(dk)
                call.seen(value_sum).add_(dv)
            rows.append(torch.cat(queries, 2))
        return (stored(torch.cat(rows)), positions.reduce(key_sum, k.dtype),
                positions.reduce(value_sum, v.dtype), None, None, None)


class Ring(torch.autograd.Function):
    """PyTorch's own ring attention, with the kernels of the CPU."""

    @staticmethod
    def templates(positions):
        from torch.distributed.tensor.experimental._context_parallel import _attention
        options = _attention._cp_options
        options.enable_load_balance = positions.head_tail
        options.rotate_method = _attention._RotateMethod.ALL_TO_ALL
        return _attention

    @staticmethod
    def forward(context, q, k, v, positions, scale):
        out, sums = Ring.templates(positions)._templated_ring_attention(
            positions.group, 2, FORWARD, q, k, v, is_causal=True, scale=scale)
        out = stored(out)
        context.save_for_backward(q, k, v, out, sums)
        context.rest = positions, scale
        return out

    @staticmethod
    def backward(context, grad):
        positions, scale = context.rest
        grads = Ring.templates(positions)._templated_ring_attention_backward(
            positions.group, 2, BACKWARD, grad, "grad_out", *context.saved_tensors,
            is_causal=True, dropout_p=0.0, scale=scale)
        return *(stored(x) for x in grads), None, None


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


def attend_whole(q, k, v, documents, scale):
    """Causal attention to all positions of this rank, or of the same document."""
    if documents is None:
        return FORWARD(q, k, v, 0.0, True, scale=scale)[0]
    rows = calls_for([torch.arange(q.shape[2])], documents)
    outs = []
    for own, calls in zip(q.split(1), rows):
        parts = own.split([len(call.piece) for call in calls], 2)
        outs.append(torch.cat([FORWARD(part, call.seen(k), call.seen(v), 0.0, True, scale=scale)[0]
                               for part, call in zip(parts, calls)], 2))
    return torch.cat(outs)


def attend(q, k, v, documents, positions, scale):
    """Causal attention over the positions of all ranks. `documents` are the places of this rank's
    positions in their documents; None: a row is one document."""
    if positions.ring:
        return Ring.apply(q, k, v, positions, scale)
    if not positions.by_heads:
        return Gathered.apply(q, k, v, documents, positions, scale)

    def swapped(x):
        if x.shape[1] % positions.ranks:
            x = Repeat.apply(x, positions.ranks // x.shape[1])
        return Swap.apply(x, positions, True)

    if documents is not None:
        documents = positions.gather(documents, 1)
    out = attend_whole(swapped(q), swapped(k), swapped(v), documents, scale)
    return Swap.apply(out, positions, False)
