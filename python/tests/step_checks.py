"""Compares captured steps with eager autograd, bit by bit."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from heddle.capturing import AdamW, CapturedStep, trace_step

SEED = 7
Loss = Callable[[nn.Module, Any], Tensor]


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """On several threads the CPU adds to the rows of experts in any order otherwise."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def own_loss(model: nn.Module, batch: Any) -> Tensor:
    loss: Tensor = model(**batch).loss
    return loss


def same_bits(a: Tensor, b: Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = a.detach().contiguous(), b.detach().contiguous()
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def state_of(model: nn.Module) -> dict[str, Tensor]:
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: tensor.detach().clone() for name, tensor in named}


def arguments(
    captured: CapturedStep,
    state: dict[str, Tensor],
    batch: Any,
    moments: dict[tuple[int, str], Tensor] | None = None,
    hyper: dict[str, Tensor] | None = None,
) -> list[Tensor]:
    """The tensors that a captured step takes, in its order."""
    rest = iter([leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)])
    values = {**captured.constants, **state}
    found = []
    for given in captured.inputs:
        if given["role"] == "batch":
            found.append(next(rest))
        elif given["role"] == "opt":
            assert moments is not None
            found.append(moments[given["index"], given["label"]])
        elif given["role"] == "hyper":
            assert hyper is not None
            found.append(hyper[given["label"]])
        else:
            found.append(values[given["label"]])
    return found


def eager(model: nn.Module, batch: Any, loss: Loss) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss and gradients of a copy; the copy's buffers are written back."""
    value = loss(model, copy.deepcopy(batch))
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    grads = torch.autograd.grad(value, list(named.values()), allow_unused=True)
    return value, {n: g for n, g in zip(named, grads, strict=True) if g is not None}


def assert_functional(captured: CapturedStep) -> None:
    for node in captured.graph_module.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        assert node.op == "call_function", node.format_node()
        assert node.meta["heddle_phase"] in ("fwd", "bwd", "opt")
        assert isinstance(node.meta["heddle_scope"], str)
        assert "val" in node.meta
        if isinstance(node.target, torch._ops.OpOverload):
            assert not node.target._schema.is_mutable, node.format_node()


@deterministic()
def assert_eager_bits(
    model: nn.Module,
    batch: Any,
    loss: Loss = own_loss,
    *,
    reference: Callable[[nn.Module, Any], tuple[Tensor, dict[str, Tensor]]] | None = None,
    **options: Any,
) -> CapturedStep:
    """Captures a step and compares loss, gradients and buffers with eager autograd."""
    given = None if loss is own_loss else loss
    captured = trace_step(model, batch, loss=given, **options)
    assert_functional(captured)
    before = state_of(model)
    torch.manual_seed(SEED)
    with torch.no_grad():
        got = captured.graph_module(*arguments(captured, before, copy.deepcopy(batch)))
    torch.manual_seed(SEED)
    compared = copy.deepcopy(model)
    want, grads = reference(compared, batch) if reference else eager(compared, batch, loss)
    buffers = dict(compared.named_buffers())
    names = [one.name for one in captured.parameters]
    different, seen, changed = [], set(), set()
    for output, value in zip(captured.outputs, got, strict=True):
        if output["role"] == "loss":
            name, expected = "loss", want.reshape(())
        elif output["role"] == "grad":
            name = names[output["index"]]
            expected = grads[name]
            seen.add(name)
        else:
            assert output["role"] == "buffer_update"
            name = captured.inputs[output["input"]]["label"]
            assert name == output["label"]
            expected = buffers[name]
            changed.add(name)
        if not same_bits(value, expected):
            different.append(name)
    assert different == []
    assert seen == set(grads)
    if reference is None:
        for name, value in buffers.items():
            if name not in changed:
                assert same_bits(value, before[name]), f"the step does not update {name}"
    return captured


@deterministic()
def assert_optimizer_bits(
    model: nn.Module, batch: Any, options: AdamW, loss: Loss = own_loss, steps: int = 3
) -> None:
    """Runs steps with the optimizer in the graph, and the same steps with torch's own."""
    given = None if loss is own_loss else loss
    captured = trace_step(model, batch, loss=given, optimizer=options)
    assert_functional(captured)
    state = state_of(model)
    names = [one.name for one in captured.parameters]
    moments = {
        (one["index"], one["label"]): torch.zeros_like(state[names[one["index"]]])
        for one in captured.inputs
        if one["role"] == "opt"
    }
    trained = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(
        [p for p in trained.parameters() if p.requires_grad],
        lr=options.lr,
        betas=options.betas,
        eps=options.eps,
        weight_decay=options.weight_decay,
        fused=True,
    )
    for number in range(1, steps + 1):
        lr = options.lr * (1 - 0.1 * number)
        hyper = {"lr": torch.tensor(lr, dtype=torch.float64), "step": torch.tensor(float(number))}
        with torch.no_grad():
            got = captured.graph_module(*arguments(captured, state, batch, moments, hyper))
        optimizer.zero_grad()
        value = loss(trained, batch)
        value.backward()
        outputs = list(zip(captured.outputs, got, strict=True))
        if options.max_norm > 0:
            norm = torch.nn.utils.clip_grad_norm_(trained.parameters(), options.max_norm)
            metric = [v for o, v in outputs if o["role"] == "metric" and o["label"] == "grad_norm"]
            assert len(metric) == 1 and same_bits(metric[0], norm)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        assert same_bits(outputs[0][1], value)
        for output, new in outputs:
            if output["role"] not in ("update", "buffer_update"):
                continue
            target = captured.inputs[output["input"]]
            if target["role"] == "opt":
                moments[target["index"], target["label"]] = new
            else:
                state[target["label"]] = new
    now = {**dict(trained.named_parameters()), **dict(trained.named_buffers())}
    assert [n for n, value in now.items() if not same_bits(state[n], value)] == []
    for (index, label), moment in moments.items():
        parameter = dict(trained.named_parameters())[names[index]]
        assert same_bits(moment, optimizer.state[parameter][label]), (names[index], label)
