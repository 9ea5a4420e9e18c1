"""torch.compile with the backend: the same bits, reports, and passes of FX graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import heddle

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from heddle import backend  # noqa: E402
from heddle._parts import same_bits  # noqa: E402
from heddle.fx import as_pass, read_local  # noqa: E402
from process_group import process_group  # noqa: E402, F401

pytestmark = pytest.mark.torch


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 32), torch.nn.Linear(32, 8)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def loss_and_grads(model: Any, x: Any) -> list[Any]:
    model.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    return [loss, *(parameter.grad.clone() for parameter in model.parameters())]


def test_the_bits_of_the_model_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Model(), torch.randn(4, 8)
    want = loss_and_grads(model, x)
    count = len(backend.compiled())
    torch._dynamo.reset()
    report = tmp_path / "step.html"
    options = {"pipeline": "reorder-for-memory", "report": report}
    fast = torch.compile(model, backend=lambda gm, xs: backend.heddle(gm, xs, options=options))
    got = loss_and_grads(fast, x)
    assert all(same_bits(a, b) for a, b in zip(want, got, strict=True))
    found = backend.compiled()[count:]
    assert [one.name for one in found] == ["forward", "backward"]
    for one in found:
        assert one.before is not None and one.after is not None, one.reason
        assert 0 < one.after <= one.before * 1.01
    pages = sorted(path.name for path in tmp_path.glob("step-*.html"))
    assert len(pages) == 2 and pages[0].endswith("-forward.html")


class Blocks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Model() for _ in range(3)])
        self.drop = torch.nn.Dropout(0.1)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = self.drop(layer(x))
        return x


def saved_bytes(model: Any, x: Any) -> int:
    """The bytes of tensors that autograd keeps, without parameters and inputs."""
    known = {tensor.data_ptr() for tensor in (x, *model.parameters())}
    sizes: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        if tensor.data_ptr() not in known:
            sizes[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(x).square().mean()
    return sum(sizes.values())


@pytest.mark.parametrize("policy", ["none", "selective", "min-cut", "full"])
def test_what_is_kept_is_decided(policy: str) -> None:
    torch.manual_seed(0)
    model, x = Blocks(), torch.randn(64, 8)
    torch.manual_seed(1)
    want = loss_and_grads(model, x)
    whole = saved_bytes(model, x)
    count = len(backend.compiled())
    torch._dynamo.reset()
    options = {"checkpoint": policy}
    fast = torch.compile(model, backend=lambda gm, xs: backend.heddle(gm, xs, options=options))
    torch.manual_seed(1)
    got = loss_and_grads(fast, x)
    assert all(same_bits(a, b) for a, b in zip(want, got, strict=True))
    found = backend.compiled()[count:]
    assert [one.name for one in found] == ["forward", "backward"]
    share = {"none": 1.0, "selective": 0.6, "min-cut": 0.6, "full": 0.2}[policy]
    assert saved_bytes(fast, x) <= share * whole
    assert ("0 recomputed" in found[0].kept) == (policy == "none")


def test_a_joint_graph_that_cannot_be_read_is_left_to_torch() -> None:
    def with_size(x: Any, n: int) -> Any:
        return (x * n).sin().sum()

    torch._dynamo.reset()
    count = len(backend.compiled())
    options = {"checkpoint": "full"}
    fast = torch.compile(
        with_size, backend=lambda gm, xs: backend.heddle(gm, xs, options=options), dynamic=True
    )
    x = torch.randn(4, requires_grad=True)
    fast(x, 3).backward()
    assert same_bits(x.grad, (x * 3).cos().detach() * 3)
    assert "is not a tensor" in backend.compiled()[count].kept


@pytest.mark.usefixtures("process_group")
def test_fully_shard_with_the_backend_has_its_bits() -> None:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    x = torch.randn(64, 8)
    results = []

    def checkpointed(gm: Any, xs: Any) -> Any:
        return backend.heddle(gm, xs, options={"checkpoint": "selective"})

    for compiled in (False, True):
        torch.manual_seed(1)
        model = Blocks().eval()
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
        torch._dynamo.reset()
        run = torch.compile(model, backend=checkpointed) if compiled else model
        loss = run(x).square().mean()
        loss.backward()
        grads = [parameter.grad.full_tensor() for parameter in model.parameters()]
        results.append([loss, *grads])
    assert all(same_bits(a, b) for a, b in zip(*results, strict=True))


def test_unknown_options_are_refused() -> None:
    with pytest.raises(heddle.Error, match="checkpoint is `some`"):
        backend.heddle(None, [], options={"checkpoint": "some"})  # type: ignore[arg-type]
    with pytest.raises(heddle.Error, match="option `colour` is unknown"):
        backend.heddle(None, [], options={"colour": "blue"})  # type: ignore[arg-type]


def test_the_entry_point_names_the_backend() -> None:
    import re

    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    found = re.search(r'torch_dynamo_backends\]\nheddle = "([\w.]+):(\w+)"', text)
    assert found is not None and found.groups() == ("heddle.backend", "heddle")


def collective_graph() -> Any:
    """Two collectives whose waits come at once, as SimpleFSDP writes them."""
    ops = torch.ops._c10d_functional

    def step(x: Any, w: Any, v: Any) -> list[Any]:
        a = ops.wait_tensor(ops.all_gather_into_tensor(w, 2, "0"))
        y = x @ a
        b = ops.wait_tensor(ops.all_gather_into_tensor(v, 2, "0"))
        return [y @ b]

    shapes = [(256, 256), (128, 256), (128, 256)]
    return make_fx(step, tracing_mode="fake")(*(torch.zeros(shape) for shape in shapes))


def test_as_pass_moves_collectives() -> None:
    """The signature of GraphTrainer's passes: (gm, example_inputs) -> gm."""
    gm = collective_graph()
    done = as_pass("overlap", cluster="h100-8x")(gm, [])
    names = [node.name for node in done.graph.nodes]
    assert sorted(names) == sorted(node.name for node in gm.graph.nodes)
    before = heddle.Program(read_local(gm)).simulate()
    after = heddle.Program(read_local(done)).simulate()
    assert after.step_time < before.step_time
    # The second gather starts before the first product.
    assert names.index("all_gather_into_tensor_1") < names.index("mm")


@pytest.mark.usefixtures("process_group")
def test_as_pass_takes_the_axes_of_a_mesh() -> None:
    mesh = torch.distributed.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    ops = torch.ops._c10d_functional
    tp = mesh.get_group("tp").group_name

    def step(x: Any) -> list[Any]:
        return [ops.wait_tensor(ops.all_reduce(x, "sum", tp))]

    gm = make_fx(step, tracing_mode="fake")(torch.ones(2))
    graph = read_local(gm, mesh)
    assert graph.mesh == {"dp": 1, "tp": 1} and graph.nodes[0].attrs["over"] == ["tp"]
    assert len(as_pass("overlap", mesh=mesh)(gm, []).graph.nodes) == 4
    nameless = torch.distributed.init_device_mesh("cpu", (1,))
    with pytest.raises(heddle.PassError, match="has no names"):
        as_pass("overlap", mesh=nameless)(gm, [])


def test_passes_that_change_nodes_are_refused() -> None:
    gm = make_fx(lambda x: [x.relu(), x.relu()], tracing_mode="fake")(torch.ones(2))
    with pytest.raises(heddle.PassError, match="adds or removes `relu_1`"):
        as_pass("cse")(gm, [])
