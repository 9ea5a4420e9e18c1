"""Capture of modules: the bits of eager autograd, and errors with a place and a hint."""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from torch import Tensor, nn

from heddle.capturing import AdamW, Spec, trace_step
from heddle.errors import CaptureError
from heddle.rules import Rules, matches
from modules import Encoder, NanoGPT, Norms, SelectiveScan, ViT, gpt_loss, square, text_batch
from process_group import process_group as process_group
from step_checks import (
    assert_eager_bits,
    assert_optimizer_bits,
    same_bits,
)

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def kinds(captured: Any, role: str) -> list[str]:
    return [one["label"] for one in captured.inputs if one["role"] == role]


# Bits of eager.


@pytest.mark.parametrize("flash", [True, False])
def test_nano_gpt(flash: bool) -> None:
    captured = assert_eager_bits(NanoGPT(flash=flash), text_batch(), gpt_loss)
    first = captured.inputs[0]
    assert (first["label"], first["tied"]) == ("transformer.wte.weight", ["lm_head.weight"])
    assert captured.parameters[2].unit == "transformer.h.0"
    assert kinds(captured, "batch") == ["x", "y"]


def test_dropout_draws_what_eager_draws() -> None:
    captured = assert_eager_bits(NanoGPT(dropout=0.2, flash=False), text_batch(), gpt_loss)
    assert any("native_dropout draws random numbers" in one for one in captured.remarks)


def test_dropout_of_zero_has_no_remark() -> None:
    assert trace_step(NanoGPT(), text_batch(), loss=gpt_loss).remarks == []


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_transformer_encoder(dropout: float) -> None:
    captured = assert_eager_bits(Encoder(dropout), torch.randn(2, 6, 32), square)
    assert captured.parameters[0].unit == "encoder.layers.0"


def test_vision_transformer() -> None:
    batch = (torch.randn(2, 3, 16, 16), torch.tensor([1, 3]))
    captured = assert_eager_bits(ViT(), batch, lambda m, b: F.cross_entropy(m(b[0]), b[1]))
    assert kinds(captured, "batch") == ["0", "1"]


def test_selective_scan() -> None:
    assert_eager_bits(SelectiveScan(), torch.randn(2, 8, 16), square)


def test_buffers_are_updated() -> None:
    captured = assert_eager_bits(Norms(), torch.randn(4, 3, 8, 8), square)
    updated = [one["label"] for one in captured.outputs if one["role"] == "buffer_update"]
    assert sorted(updated) == [
        "average",
        "count",
        "norm.num_batches_tracked",
        "norm.running_mean",
        "norm.running_var",
    ]


def test_lstm() -> None:
    model = nn.LSTM(4, 8, 2, batch_first=True)
    with torch.backends.mkldnn.flags(enabled=False):
        assert_eager_bits(model, torch.randn(2, 5, 4), lambda m, b: m(b)[0].sum())


def test_frozen_parameters_have_no_gradient() -> None:
    model = NanoGPT()
    model.transformer.wpe.requires_grad_(False)
    captured = assert_eager_bits(model, text_batch(), gpt_loss)
    trained = {one.name: one.trained for one in captured.parameters}
    assert not trained["transformer.wpe.weight"] and trained["transformer.wte.weight"]


@pytest.mark.parametrize("steps", [3])
def test_optimizer(steps: int) -> None:
    options = AdamW(lr=1e-2, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1, max_norm=0.3)
    assert_optimizer_bits(NanoGPT(), text_batch(), options, gpt_loss, steps)


def test_optimizer_without_clipping_and_with_buffers() -> None:
    assert_optimizer_bits(Norms(), torch.randn(4, 3, 8, 8), AdamW(lr=1e-2), square)


def test_optimizer_has_the_form_of_heddles_own_steps() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    captured = trace_step(model, Spec((3, 4)), loss=square, optimizer=AdamW(max_norm=1.0))
    assert [(one["role"], one["index"], one["label"]) for one in captured.inputs][:8] == [
        ("param", 0, "0.weight"),
        ("param", 1, "0.bias"),
        ("param", 2, "1.weight"),
        ("param", 3, "1.bias"),
        ("opt", 0, "exp_avg"),
        ("opt", 0, "exp_avg_sq"),
        ("opt", 1, "exp_avg"),
        ("opt", 1, "exp_avg_sq"),
    ]
    assert kinds(captured, "hyper") == ["lr", "step"]
    names = [
        str(node.target)
        for node in captured.graph_module.graph.nodes
        if node.meta.get("heddle_phase") == "opt" and "getitem" not in str(node.target)
    ]
    assert names[:6] == [
        "heddle.squared_norm.default",
        "aten.sqrt.default",
        "aten.linalg_vector_norm.default",
        "aten.add.Scalar",
        "aten.reciprocal.default",
        "aten.mul.Scalar",
    ]
    assert names.count("aten._fused_adamw.tensor_lr") == 4
    updates = [one for one in captured.outputs if one["role"] == "update"]
    assert [captured.inputs[one["input"]]["label"] for one in updates[:3]] == [
        "0.weight",
        "exp_avg",
        "exp_avg_sq",
    ]


# Mixed precision.


@pytest.mark.parametrize("name", ["gpt", "encoder"])
def test_param_dtype_has_the_bits_of_fsdp2(name: str, process_group: None) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    def sharded(model: nn.Module, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (1,))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        value = loss(model, batch)
        value.backward()
        named = model.named_parameters()
        return value, {n: p.grad.to_local() for n, p in named if p.grad is not None}

    if name == "gpt":
        model, batch, loss = NanoGPT(), text_batch(), gpt_loss
    else:
        model, batch, loss = Encoder(), torch.randn(2, 6, 32), square
    captured = assert_eager_bits(model, batch, loss, reference=sharded, param_dtype=torch.bfloat16)
    assert captured.parameters[0].dtype == torch.float32


def test_casts_are_where_parameters_are_used() -> None:
    captured = trace_step(NanoGPT(), text_batch(), loss=gpt_loss, param_dtype=torch.bfloat16)
    nodes = [n for n in captured.graph_module.graph.nodes if n.op == "call_function"]
    casts = [
        n
        for n in nodes
        if n.args and getattr(n.args[0], "op", "") == "placeholder" and "_to_copy" in str(n.target)
    ]
    scopes = {n.args[0].name: n.meta["heddle_scope"] for n in casts}
    assert scopes["transformer_h_1_mlp_0_weight"] == "transformer.h.1.mlp.0"
    assert nodes.index(casts[-1]) > len(nodes) // 4


def test_parameters_of_lists_are_cast() -> None:
    captured = trace_step(
        nn.LSTM(4, 8),
        Spec((5, 2, 4)),
        loss=lambda m, b: m(b)[0].float().sum(),
        param_dtype=torch.bfloat16,
    )
    products = [n for n in captured.graph_module.graph.nodes if "mm" in str(n.target)]
    assert products and all(n.meta["val"].dtype == torch.bfloat16 for n in products)


# What the graph says.


def test_scopes_of_backward() -> None:
    captured = trace_step(NanoGPT(), text_batch(), loss=gpt_loss)
    nodes = [n for n in captured.graph_module.graph.nodes if n.op == "call_function"]
    products = [
        (n.meta["heddle_phase"], n.meta["heddle_scope"])
        for n in nodes
        if str(n.target) in ("aten.mm.default", "aten.addmm.default")
    ]
    for scope in ("transformer.h.0.attn.c_attn", "transformer.h.1.mlp.2"):
        assert products.count(("fwd", scope)) == 1
        assert products.count(("bwd", scope)) == 2
    phases = [n.meta["heddle_phase"] for n in nodes]
    assert phases == sorted(phases, key=["fwd", "bwd", "opt"].index)


def test_specs_and_tensors_give_the_same_graph() -> None:
    batch = text_batch()
    specs = {name: Spec(tuple(t.shape), t.dtype) for name, t in batch.items()}
    with torch.device("meta"):
        model = NanoGPT()
    a = trace_step(NanoGPT(), batch, loss=gpt_loss)
    b = trace_step(model, specs, loss=gpt_loss)
    assert a.graph_module.code == b.graph_module.code
    assert a.inputs == b.inputs and a.outputs == b.outputs


def test_nested_batches_have_paths_as_labels() -> None:
    batch = {"views": [torch.ones(2, 4), torch.ones(2, 4)], "scale": 2.0, "mask": None}

    def loss(model: nn.Module, batch: Any) -> Tensor:
        assert batch["mask"] is None
        return (model(batch["views"][0]) * batch["scale"] + model(batch["views"][1])).sum()

    captured = assert_eager_bits(nn.Linear(4, 2), batch, loss)
    assert kinds(captured, "batch") == ["views.0", "views.1"]


def test_tensors_outside_of_the_state_become_constants() -> None:
    table = torch.randn(4)

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        return (model(batch) * table * torch.tensor(0.5)).sum()

    captured = assert_eager_bits(nn.Linear(4, 4), torch.randn(2, 4), loss)
    assert kinds(captured, "buffer") == ["constant.0"]
    assert same_bits(captured.constants["constant.0"], table)
    assert "aten.full" in captured.graph_module.code


def test_activation_checkpointing() -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in "ab"])

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return x

    captured = assert_eager_bits(Checkpointed(), torch.randn(2, 4), square)
    again = [
        n.meta["heddle_scope"]
        for n in captured.graph_module.graph.nodes
        if str(n.target) == "aten.addmm.default" and n.meta["heddle_phase"] == "bwd"
    ]
    assert "blocks.1.0" in again or "blocks.0.0" in again


def test_writes_to_the_batch_stay_inside() -> None:
    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        batch.clamp_(min=0.0)
        return model(batch).sum()

    batch = torch.randn(2, 4)
    before = batch.clone()
    captured = assert_eager_bits(nn.Linear(4, 2), batch, loss)
    assert same_bits(batch, before)
    assert captured.remarks == ["the step writes to `batch` of its batch; callers do not see it"]


def test_unused_parameters_on_request() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.Linear(4, 4)
            self.spare = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.up(x)
            return out

    with pytest.raises(CaptureError, match="`spare.weight`, `spare.bias`") as caught:
        trace_step(Unused(), torch.ones(2, 4), loss=square)
    assert "allow_unused" in caught.value.diagnostics[0].hint
    captured = assert_eager_bits(Unused(), torch.randn(2, 4), square, allow_unused=True)
    assert any("spare.weight" in one for one in captured.remarks)


def test_custom_ops_are_opaque_with_a_remark() -> None:
    @torch.library.custom_op("heddle_test::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    twice.register_fake(lambda x: torch.empty_like(x))
    twice.register_autograd(lambda context, grad: grad * 2)

    captured = assert_eager_bits(nn.Linear(4, 2), torch.randn(2, 4), lambda m, b: twice(m(b)).sum())
    assert captured.remarks == ["heddle_test.twice is opaque to plans (once)"]


# Rules.


def test_globs() -> None:
    assert matches("**.up", "up") and matches("**.up", "a.b.up")
    assert not matches("*.up", "a.b.up") and not matches("a.up", "axup")


def test_units_of_nested_lists_are_the_outermost() -> None:
    inner = nn.ModuleDict(dict(experts=nn.ModuleList([nn.Linear(2, 2)])))
    model = nn.Sequential(nn.ModuleList([inner]))
    from heddle.capturing import rules_of

    assert rules_of(model) == Rules(units=["0.*"])


def test_units_of_several_modules() -> None:
    rules = Rules(units=["layers.*", "norm|head"])
    assert rules.unit("norm.weight") == rules.unit("head.weight") == "head"
    assert rules.unit("layers.2.up.weight") == "layers.2"


def test_html() -> None:
    html = trace_step(NanoGPT(), text_batch(), loss=gpt_loss)._repr_html_()
    assert "transformer.h.1.mlp.0.weight" in html and "lm_head.weight" in html
