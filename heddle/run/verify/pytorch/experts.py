"""Mixtures of experts, whose experts several ranks may share.

Part of `heddle verify --against=pytorch` and `make oracle`.
"""
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from layers import FeedForward, linear, wide


class MoveRows(torch.autograd.Function):
    """Sends rows, sorted by expert, to the ranks that have the experts, or back.

    Received rows are sorted by expert, then by the sending rank. `table` has the number of rows
    from each rank for each expert of this rank."""

    @staticmethod
    def forward(context, rows, counts, table, group, there):
        context.rest = counts, table, group, there
        return MoveRows.move(rows, *context.rest)

    @staticmethod
    def backward(context, grad):
        counts, table, group, there = context.rest
        moved = MoveRows.move(grad.contiguous(), counts, table, group, not there)
        return moved, None, None, None, None

    @staticmethod
    def move(rows, counts, table, group, there):
        sent = counts.view(len(table), -1).sum(1).tolist()
        received = table.sum(1).tolist()
        expert = torch.arange(table.shape[1]).repeat(len(table)).repeat_interleave(table.flatten())
        order = torch.sort(expert, stable=True)[1]
        if there:
            arrived = rows.new_empty(sum(received), rows.shape[1])
            dist.all_to_all_single(arrived, rows.contiguous(), received, sent, group=group)
            return arrived[order]
        by_rank = torch.empty_like(rows)
        by_rank[order] = rows
        back = rows.new_empty(sum(sent), rows.shape[1])
        dist.all_to_all_single(back, by_rank, sent, received, group=group)
        return back


def clamped_gate(gate, up):
    """gpt-oss's."""
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return (up + 1.0) * (gate * torch.sigmoid(gate * 1.702))


class Experts(nn.Module):
    """The experts of this rank."""

    def __init__(self, m, context):
        super().__init__()
        own = m["moe.experts"] // context.expert_ranks
        self.context, dim, hidden = context, m["dim"], m["moe.ffn_dim"]
        self.w1_EFD = nn.Parameter(torch.empty(own, hidden, dim))
        self.w2_EDF = nn.Parameter(torch.empty(own, dim, hidden))
        self.w3_EFD = nn.Parameter(torch.empty(own, hidden, dim))
        self.biased = m["family"] == "gpt_oss"
        if self.biased:
            self.w1_bias_EF1 = nn.Parameter(torch.empty(own, hidden, 1))
            self.w2_bias_ED1 = nn.Parameter(torch.empty(own, dim, 1))
            self.w3_bias_EF1 = nn.Parameter(torch.empty(own, hidden, 1))

    def products(self, rows, counts):
        ends = counts.cumsum(0).to(torch.int32)

        def product(x, w):
            return torch._grouped_mm(x, w.transpose(-2, -1), offs=ends)

        def biased(x, w, bias):
            ones = torch.ones(len(x), 8, dtype=x.dtype)
            return product(x, w) + product(ones, F.pad(bias, (0, 7)))

        if self.biased:
            gate = biased(rows, self.w1_EFD, self.w1_bias_EF1)
            up = biased(rows, self.w3_EFD, self.w3_bias_EF1)
            return biased(clamped_gate(gate, up), self.w2_EDF, self.w2_bias_ED1)
        hidden = F.silu(product(rows, self.w1_EFD)) * product(rows, self.w3_EFD)
        return product(hidden, self.w2_EDF)

    def forward(self, rows, counts):
        if self.context.expert_ranks == 1:
            return self.products(rows, counts)
        group = self.context.expert_group
        table = torch.empty_like(counts)
        dist.all_to_all_single(table, counts, group=group)
        table = table.view(self.context.expert_ranks, -1)
        rows = MoveRows.apply(rows, counts, table, group, True)
        rows = self.products(rows, table.sum(0))
        return MoveRows.apply(rows, counts, table, group, False)


class Holder(nn.Module):
    """A module that only names its children."""

    def __init__(self, **modules):
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


class Mixture(nn.Module):
    def __init__(self, m, context):
        super().__init__()
        self.m, self.context = m, context
        self.experts, self.top_k = m["moe.experts"], m["moe.top_k"]
        self.routed_experts = Holder(inner_experts=Experts(m, context))
        self.router = Holder(gate=linear(m["dim"], self.experts, m["family"] == "gpt_oss"))
        if m["moe.shared_experts"] > 0:
            self.shared_experts = FeedForward(m["dim"], m["moe.ffn_dim"] * m["moe.shared_experts"])
        # State of the training, not a parameter: AdamW and FSDP leave it alone.
        self.expert_bias_E = torch.zeros(self.experts) if m["moe.bias"] == "true" else None
        self.tokens_seen = torch.zeros(self.experts, dtype=torch.int64)

    def choose(self, scores):
        """The experts of each token. The bias and the groups change the choice, not the scores."""
        if self.expert_bias_E is not None:
            scores = scores + self.expert_bias_E
        groups, judged = self.m["moe.groups"], self.m["moe.limited_groups"]
        if groups > 0:
            grouped = scores.view(len(scores), groups, -1)
            if self.m["moe.group_score"] == "max":
                quality = grouped.amax(-1)
            else:
                quality = grouped.topk(min(2, self.experts // groups), -1)[0].sum(-1)
            best = quality.topk(judged, -1, sorted=False)[1]
            excluded = torch.ones_like(quality, dtype=torch.bool).scatter_(1, best, False)
            scores = grouped.masked_fill(excluded.unsqueeze(-1), -math.inf).view_as(scores)
        return scores.topk(self.top_k, -1, sorted=False)[1]

    def add_balance(self, scores, chosen, positions):
        """DeepSeek's balance loss of each sequence, times its tokens."""
        if self.m["moe.score"] == "sigmoid":
            scores = scores / (scores.sum(-1, keepdim=True) + 1e-20)
        uses = torch.zeros_like(scores).scatter(1, chosen, 1)
        uses, shares = (t.view(-1, positions, self.experts).sum(1) for t in (uses, scores))
        balance = (uses * shares).sum() / (self.top_k * positions / self.experts)
        self.context.loss_terms.append(balance * self.context.aux_loss)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        scores = F.linear(wide(tokens), wide(self.router.gate.weight))
        if self.router.gate.bias is not None:
            scores = scores + wide(self.router.gate.bias)
        sigmoid = self.m["moe.score"] == "sigmoid"
        scores = scores.sigmoid() if sigmoid else scores.softmax(-1)
        chosen = self.choose(scores)
        shares = scores.gather(1, chosen)
        if self.m["moe.normalize"] == "true":
            shares = shares / (shares.sum(-1, keepdim=True) + 1e-20)
        shares = shares * self.m["moe.route_scale"]
        counts = torch.bincount(chosen.flatten(), minlength=self.experts)
        if self.training:
            self.tokens_seen += counts
        order = torch.sort(chosen.flatten(), stable=True)[1]
        rows = tokens.index_select(0, order // self.top_k)
        rows = self.routed_experts.inner_experts(rows, counts)
        by_token = rows.index_select(0, torch.sort(order, stable=True)[1])
        by_token = by_token.view(len(tokens), self.top_k, -1)
        out = (wide(by_token) * shares.unsqueeze(-1)).sum(1).to(x.dtype)
        if self.m["moe.shared_experts"] > 0:
            out = out + self.shared_experts(tokens)
        if self.context.aux_loss > 0:
            self.add_balance(scores, chosen, x.shape[1])
        return out.view(x.shape)

    def update_bias(self):
        """Increases the bias of experts with few tokens and decreases that of experts with many."""
        rate = self.m["moe.bias_rate"]
        if self.expert_bias_E is not None and rate > 0:
            dist.all_reduce(self.tokens_seen)
            tokens = self.tokens_seen.float()
            step = torch.sign(tokens.mean() - tokens) * rate
            self.expert_bias_E = self.expert_bias_E + (step - step.mean())
        self.tokens_seen = torch.zeros_like(self.tokens_seen)
