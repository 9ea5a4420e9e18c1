"""Capture of modules: the bits of eager autograd, and errors with a place and a hint."""

# ruff: noqa: E402

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from torch import Tensor, nn

from heddle.capture import AdamW, Spec, trace_step
from heddle.errors import CaptureError
from heddle.rules import Rules, matches
from modules import (
    Encoder,
    NanoGPT,
    Norms,
    SelectiveScan,
    ViT,
    gpt_loss,
)
from step_checks import (
    assert_eager_bits,
    assert_optimizer_bits,
    eager,
    same_bits,
    state_of,
)

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def text_batch() -> dict[str, Tensor]:
    return dict(x=torch.randint(0, 64, (4, 16)), y=torch.randint(0, 64, (4, 16)))


def square(model: nn.Module, batch: Any) -> Tensor:
    return model(batch).square().mean()


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


@pytest.fixture(scope="module")
def process_group() -> Iterator[None]:
    import torch.distributed as dist

    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


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


# The model afterwards.


def snapshot(model: nn.Module) -> list[Any]:
    found: list[Any] = []
    for _, module in model.named_modules():
        found += [module, *module.__dict__.keys()]
        for value in module.__dict__.values():
            found.append(value)
            if isinstance(value, (dict, list, set)):
                found += list(value)
            if isinstance(value, dict):
                found += list(value.values())
    return found


class Caching(nn.Module):
    """Writes what it should not: attributes, lists, hooks of its own."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(4))
        self.history: list[Tensor] = []
        self.fails = fails
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.cache = self.up(x)
        self.history.append(self.cache)
        self.seen = self.seen + 1
        self.seen.add_(1)
        if self.fails:
            raise RuntimeError("no")
        return self.cache


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_as_before(fails: bool) -> None:
    model = Caching(fails)
    before, state = snapshot(model), state_of(model)
    random = torch.get_rng_state()
    if fails:
        with pytest.raises(CaptureError):
            trace_step(model, torch.ones(2, 4), loss=square)
    else:
        trace_step(model, torch.ones(2, 4), loss=square)
    after = snapshot(model)
    assert len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True))
    assert all(
        same_bits(a, b) for a, b in zip(state.values(), state_of(model).values(), strict=True)
    )
    assert torch.equal(random, torch.get_rng_state())
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert not torch.nn.modules.module._global_forward_hooks
    if not fails:
        value, _ = eager(model, torch.ones(2, 4), square)
        assert value.requires_grad


def test_capture_after_a_failure() -> None:
    with pytest.raises(CaptureError):
        trace_step(Caching(True), torch.ones(2, 4), loss=square)
    assert_eager_bits(NanoGPT(), text_batch(), gpt_loss)


# Errors.


class Branching(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "write":
            with torch.no_grad():
                self.up.weight.clamp_(-1, 1)
        y = self.up(x)
        if self.how == "item" and y.sum().item() > 0:
            return y
        if self.how == "branch" and y.sum() > 0:
            return y
        if self.how == "nonzero":
            return y[y.nonzero()[:, 0]]
        if self.how == "data":
            self.up.weight.data.view(-1).mul_(0.5)
        if self.how == "raise":
            raise KeyError("missing key")
        return y


class Outer(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4), Branching(how)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize(
    ("how", "kind", "message", "source"),
    [
        ("item", "capture-data", "`blocks.1` reads a number from a tensor", "y.sum().item()"),
        ("branch", "capture-data", "`blocks.1` reads a number from a tensor", "y.sum() > 0"),
        ("nonzero", "capture-data", "whose size depends on data: aten.nonzero", "y.nonzero()"),
        ("write", "capture-write", "`blocks.1.up.weight` in place: aten.clamp_", "clamp_(-1, 1)"),
        ("data", "capture-write", "`blocks.1.up.weight` in place: aten.mul_", "mul_(0.5)"),
        ("raise", "capture-model", "KeyError: 'missing key'", "raise KeyError"),
    ],
)
def test_mistakes_of_a_module(how: str, kind: str, message: str, source: str) -> None:
    with pytest.raises(CaptureError) as caught:
        trace_step(Outer(how), torch.ones(2, 4), loss=square)
    (found,) = caught.value.diagnostics
    assert found.kind == kind
    assert message in found.message
    assert found.file == __file__ and source in found.source
    assert found.hint or kind == "capture-model"


def no_number(model: nn.Module, batch: Tensor) -> Any:
    return {"loss": model(batch).sum()}


def two_numbers(model: nn.Module, batch: Tensor) -> Any:
    return model(batch).sum(0)


def detached(model: nn.Module, batch: Tensor) -> Any:
    return model(batch).sum().detach()


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (no_number, "the loss is of type dict"),
        (two_numbers, r"the loss has the shape \[2\], expected one number"),
        (detached, "depends on no trained parameter"),
        (lambda m, b: (m(b) > 0).sum(), "type torch.int64"),
    ],
)
def test_mistakes_of_a_loss(loss: Any, message: str) -> None:
    with pytest.raises(CaptureError, match=message) as caught:
        trace_step(nn.Linear(4, 2), torch.ones(2, 4), loss=loss)
    found = caught.value.diagnostics[0]
    assert found.file == __file__ and found.line == loss.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(target="tpu"), "target 'tpu' is unknown"),
        (dict(optimizer=torch.optim.AdamW), "expected heddle.AdamW"),
        (dict(param_dtype=torch.int8), "floating-point"),
        (dict(batch={"x": 3}), "has no tensor"),
        (dict(model="llama"), "the model is a str"),
        (dict(model=nn.LazyLinear(4)), "no shape yet"),
        (dict(model=nn.ReLU()), "no trained parameter"),
    ],
)
def test_mistakes_of_arguments(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = dict(model=nn.Linear(4, 2), batch=torch.ones(2, 4), loss=square)
    given.update(options)
    with pytest.raises(CaptureError, match=message):
        trace_step(given.pop("model"), given.pop("batch"), **given)


def test_models_on_two_devices() -> None:
    from heddle.capture import _check_devices

    def leaf(label: str, device: str) -> Any:
        return types.SimpleNamespace(
            label=label, tensor=types.SimpleNamespace(device=torch.device(device))
        )

    _check_devices([leaf("a", "cpu"), leaf("b", "meta")])
    with pytest.raises(CaptureError, match="`a` on cuda:0, `b` on cuda:1"):
        _check_devices([leaf("a", "cuda:0"), leaf("b", "cuda:1")])


def test_ops_that_cannot_be_traced() -> None:
    @torch.library.custom_op("heddle_test::hidden", mutates_args=())
    def hidden(x: Tensor) -> Tensor:
        return x.clone()

    with pytest.raises(CaptureError) as caught:
        trace_step(nn.Linear(4, 2), torch.ones(2, 4), loss=lambda m, b: hidden(m(b)).sum())
    found = caught.value.diagnostics[0]
    assert found.kind == "capture-opaque" and "register_fake" in found.hint


def test_parallel_models_are_refused(process_group: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = nn.Linear(4, 2)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(CaptureError, match="`weight` is a DTensor"):
        trace_step(model, torch.ones(2, 4), loss=square)


def test_own_loss_is_missing() -> None:
    with pytest.raises(CaptureError, match="gives a tuple without a loss") as caught:
        trace_step(NanoGPT(), (torch.zeros(1, 4, dtype=torch.long),) * 2)
    assert "loss=" in caught.value.diagnostics[0].hint


# Rules.


def test_globs() -> None:
    assert matches("**.up", "up") and matches("**.up", "a.b.up")
    assert not matches("*.up", "a.b.up") and not matches("a.up", "axup")


def test_units_of_nested_lists_are_the_outermost() -> None:
    inner = nn.ModuleDict(dict(experts=nn.ModuleList([nn.Linear(2, 2)])))
    model = nn.Sequential(nn.ModuleList([inner]))
    from heddle.capture import rules_of

    assert rules_of(model) == Rules(units=["0.*"])


def test_units_of_several_modules() -> None:
    rules = Rules(units=["layers.*", "norm|head"])
    assert rules.unit("norm.weight") == rules.unit("head.weight") == "head"
    assert rules.unit("layers.2.up.weight") == "layers.2"


def test_html() -> None:
    html = trace_step(NanoGPT(), text_batch(), loss=gpt_loss)._repr_html_()
    assert "transformer.h.1.mlp.0.weight" in html and "lm_head.weight" in html
