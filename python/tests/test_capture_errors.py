"""Mistakes that stop a capture: each has a place and a hint, and leaves the model as it was."""

# ruff: noqa: E402

from __future__ import annotations

import types
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn

from heddle.capturing import Spec, trace_step
from heddle.errors import CaptureError
from modules import NanoGPT, gpt_loss, square, text_batch
from process_group import process_group as process_group
from step_checks import (
    assert_eager_bits,
    eager,
    same_bits,
    state_of,
)

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


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
    """Writes attributes, lists and buffers, and seeds the generator."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(4))
        self.history: list[Tensor] = []
        self.fails = fails
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        torch.manual_seed(3)
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
    from heddle._leaves import check_devices

    def leaf(label: str, device: str) -> Any:
        return types.SimpleNamespace(
            role="param", label=label, tensor=types.SimpleNamespace(device=torch.device(device))
        )

    with pytest.raises(CaptureError, match="`a` on cuda:0, `b` on cuda:1"):
        check_devices([leaf("a", "cuda:0"), leaf("b", "cuda:1")])


def test_models_partly_on_meta() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, device="meta"))
    message = "on two devices: `0.weight` on cpu, `1.weight` on meta"
    with pytest.raises(CaptureError, match=message) as caught:
        trace_step(model, Spec((2, 4)), loss=square)
    (found,) = caught.value.diagnostics
    assert found.kind == "capture-device" and "or on `meta`" in found.hint
    # A buffer of a model on a CPU has no values either: what trains would lack it.
    normed = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    normed[1].running_var = torch.ones(4, device="meta")
    with pytest.raises(CaptureError, match="`0.weight` on cpu, `1.running_var` on meta"):
        trace_step(normed, Spec((2, 4)), loss=square)
    # As Accelerate's `init_empty_weights` makes models.
    normed = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to("meta")
    normed[1].running_var = torch.ones(4)
    trace_step(normed, Spec((2, 4)), loss=square)


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


def test_tensors_on_another_device() -> None:
    class Scaled(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 2, device="meta")
            self.scale = torch.ones(2, device="meta")

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * self.scale

    with pytest.raises(CaptureError) as caught:
        trace_step(Scaled(), Spec((3, 4)), loss=square)
    (found,) = caught.value.diagnostics
    assert found.kind == "capture-device"
    assert found.source == "return super().forward(x) * self.scale"
    assert "x.device" in found.hint


def test_buffers_keep_their_shape() -> None:
    class Growing(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 2)
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.seen = torch.cat([self.seen, x.new_zeros(1)])
            return super().forward(x)

    with pytest.raises(CaptureError, match=r"replaces buffer `seen`, \[1\]"):
        trace_step(Growing(), torch.ones(3, 4), loss=square)


def test_paths_of_a_batch_are_unique() -> None:
    batch = {"a.b": torch.ones(2, 4), "a": {"b": torch.ones(2, 4)}}
    with pytest.raises(CaptureError, match="2 tensors of the batch have the path `a.b`") as caught:
        trace_step(nn.Linear(4, 4), batch, loss=lambda m, b: m(b["a.b"] + b["a"]["b"]).sum())
    assert caught.value.diagnostics[0].kind == "capture-batch"


def test_parameters_in_the_same_memory() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight.data = model[0].weight.data
    with pytest.raises(CaptureError, match="`0.weight` and `1.weight` are different") as caught:
        trace_step(model, torch.ones(2, 4), loss=square)
    assert "tie them" in caught.value.diagnostics[0].hint
    # Parts of one tensor that do not overlap are parameters like others.
    both = torch.randn(8, 4)
    model[0].weight.data, model[1].weight.data = both[:4], both[4:]
    assert_eager_bits(model, torch.ones(2, 4), square)


def test_a_loss_that_runs_backward() -> None:
    def step(model: nn.Module, batch: Tensor) -> Tensor:
        loss = square(model, batch)
        loss.backward()
        return loss

    model = nn.Linear(4, 4)
    with pytest.raises(CaptureError, match="the loss runs backward itself"):
        trace_step(model, torch.ones(2, 4), loss=step)
    assert model.weight.grad is None


def test_modules_of_torchscript() -> None:
    model = nn.Sequential(torch.jit.script(nn.Linear(4, 4)))
    with pytest.raises(CaptureError, match="`0` is a RecursiveScriptModule"):
        trace_step(model, torch.ones(2, 4), loss=square)


class Odd(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 4, sparse=how == "sparse")
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "data":
            self.table.weight.data = self.table.weight.data * 0.5
        out: Tensor = self.table(x)
        if self.how == "generator":
            out = out + torch.rand(4, generator=torch.Generator().manual_seed(1))
        return out


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("data", "capture-write", "the step sets `.data` of `0.table.weight`"),
        ("sparse", "capture-layout", "`0.table.weight` has the layout sparse_coo"),
        ("generator", "capture-constant", "`0` reads an object other than a tensor"),
    ],
)
def test_what_no_graph_shows(how: str, kind: str, message: str) -> None:
    model = nn.Sequential(Odd(how))
    before = snapshot(model)
    with pytest.raises(CaptureError) as caught:
        trace_step(model, torch.arange(4), loss=square)
    (found,) = caught.value.diagnostics
    assert found.kind == kind and message in found.message and found.hint
    assert all(a is b for a, b in zip(before, snapshot(model), strict=True))


def test_an_interrupt_leaves_the_model_as_it_was() -> None:
    class Interrupted(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            raise KeyboardInterrupt

    model = Interrupted(4, 4)
    before = snapshot(model)
    with pytest.raises(KeyboardInterrupt):
        trace_step(model, torch.ones(2, 4), loss=square)
    assert all(a is b for a, b in zip(before, snapshot(model), strict=True))
    assert_eager_bits(nn.Linear(4, 4), torch.ones(2, 4), square)
