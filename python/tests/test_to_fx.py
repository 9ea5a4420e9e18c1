"""Local graphs as FX graphs: they run in processes with the bits of Heddle's ranks, and come back
with the same text."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import heddle

torch = pytest.importorskip("torch")

from heddle._parts import Layout, Place, same_bits  # noqa: E402
from modules import NanoGPT, gpt_loss  # noqa: E402
from ranks import run_ranks  # noqa: E402


class Uneven(torch.nn.Module):
    """Sizes that four ranks do not divide."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(11, 10)
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(10, 10) for _ in range(2)])
        self.norm = torch.nn.LayerNorm(10)
        self.head = torch.nn.Linear(10, 7)

    def forward(self, x: Any) -> Any:
        x = self.embed(x)
        for block in self.blocks:
            x = x + torch.nn.functional.gelu(block(x))
        return self.head(self.norm(x))


def uneven_loss(model: Any, batch: Any) -> Any:
    return torch.nn.functional.cross_entropy(model(batch["x"]).flatten(0, 1), batch["y"].flatten())


def captured(kind: str) -> tuple[heddle.Step, dict[str, Any]]:
    """A step and its whole inputs by role and label."""
    torch.manual_seed(3)
    if kind == "gpt":
        model: Any = NanoGPT()
        batch = {key: torch.randint(0, 64, (8, 16)) for key in ("x", "y")}
        loss = gpt_loss
    else:
        model = Uneven()
        batch = {"x": torch.randint(0, 11, (8, 6)), "y": torch.randint(0, 7, (8, 6))}
        loss = uneven_loss
    optimizer = heddle.AdamW(max_norm=1.0) if kind == "optimizer" else None
    step = heddle.capture(model, batch, loss=loss, optimizer=optimizer)
    return step, {**{f"batch {k}": v for k, v in batch.items()}, **_state(model)}


def _state(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"hyper lr": torch.tensor(1e-3, dtype=torch.float64)}
    found["hyper step"] = torch.tensor(1.0)
    for name, value in model.named_parameters():
        found[f"param {name}"] = value.detach()
    for name, value in model.named_buffers():
        found[f"buffer {name}"] = value
    return found


def inputs_of(graph: heddle.Graph, whole: dict[str, Any], rank: int) -> list[Any]:
    place = Place.of(graph.mesh, rank)
    found = []
    for value in graph.inputs:
        layout = Layout.parse(value.whole)
        tensor = whole.get(f"{value.role} {value.label}")
        if tensor is None:
            tensor = torch.zeros(layout.sizes, dtype=layout.dtype)
        found.append(layout.part(tensor, place).clone())
    return found


def compiled(kind: str, mesh: str, pipeline: str) -> tuple[heddle.Graph, dict[str, Any]]:
    step, whole = captured(kind)
    rules = heddle.Rules(columns=["**.mlp.0"], rows=["**.mlp.2"], units=["transformer.h.*"])
    plan = step.plan(mesh, rules=rules if kind == "gpt" else None)
    return step.compile(plan, pipeline=pipeline).graph, whole


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """As in the processes: sums over rows depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(before)


def run_in_process(rank: int, cases: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    from torch.distributed.device_mesh import init_device_mesh

    torch.use_deterministic_algorithms(True)
    found = []
    for text, whole in cases:
        graph = heddle.Graph.parse(text)
        program = heddle.Program(graph)
        sizes = graph.mesh
        mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        module = program.to_fx(mesh)
        packed = heddle.run_pipeline(graph, "pack-collectives")
        back = heddle.from_fx(module)
        assert str(back) == str(packed), packed.diff(back)
        for node in module.graph.nodes:
            if node.op == "call_function" and hasattr(node.target, "namespace"):
                assert node.target.namespace in ("aten", "prims", "_c10d_functional")
        with torch.no_grad():
            found.append([value.clone() for value in module(*inputs_of(graph, whole, rank))])
    return found


CASES = [
    ("gpt", "dp=4", "fsdp"),
    ("gpt", "dp=2,tp=2", "clean"),
    ("uneven", "dp=4", "fsdp"),
    ("uneven", "dp=4", "clean"),
    ("uneven", "dp_replicate=2,dp=2", "fsdp"),
    ("optimizer", "dp=4", "fsdp"),
]


@pytest.mark.torch
@pytest.mark.processes
def test_processes_have_the_bits_of_ranks(tmp_path: Path) -> None:
    cases = []
    for kind, mesh, pipeline in CASES:
        graph, whole = compiled(kind, mesh, pipeline)
        cases.append((str(graph), whole))
    by_rank = run_ranks(4, tmp_path, run_in_process, cases)
    # The graphs have run and read back; the bits need Heddle's ranks.
    world = pytest.importorskip("heddle._torch").World
    for at, (text, whole) in enumerate(cases):
        graph = heddle.Graph.parse(text)
        with one_thread():
            want = world(text, "gloo").run([inputs_of(graph, whole, rank) for rank in range(4)])
        different = [
            (CASES[at], rank, output.value.name)
            for rank in range(4)
            for output, a, b in zip(graph.outputs, by_rank[rank][at], want[rank], strict=True)
            if not same_bits(a, b)
        ]
        assert different == []


def test_modules_without_roles_are_refused() -> None:
    module = torch.fx.symbolic_trace(torch.nn.Identity())
    with pytest.raises(heddle.CaptureError, match="no roles of inputs and outputs"):
        heddle.from_fx(module)


NORMALIZED = """heddle 1 local
mesh [dp=1]
graph @g(%x: bf16[4,6] batch "x") -> (%y) {
 opt:
  %y = heddle.normalize(%x, eps=1e-07)                      : bf16[4,6]                 @m
}
"""


@pytest.mark.torch
def test_a_normalized_matrix_comes_back() -> None:
    from torch import distributed

    graph = heddle.Graph.parse(NORMALIZED)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    mesh = distributed.init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
    module = heddle.Program(graph).to_fx(mesh)
    distributed.destroy_process_group()
    x = torch.randn(4, 6).bfloat16()
    assert same_bits(module(x)[0], x / x.norm().clamp(min=1e-7))
    assert str(heddle.from_fx(module)) == str(graph)


class OneHead(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(64, 192, bias=False)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).unflatten(-1, (3, 1, 64)).permute(2, 0, 3, 1, 4)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


@pytest.mark.torch
def test_attention_of_gpus_comes_back() -> None:
    """It returns tensors and numbers."""
    from torch import distributed

    batch = (torch.randn(2, 16, 64).bfloat16(),)
    step = heddle.capture(
        OneHead().bfloat16(), batch, loss=lambda m, b: m(*b).float().sum(), target="cuda"
    )
    program = step.compile(step.plan("dp=1"))
    assert "flash_attention" in str(program.graph)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    mesh = distributed.init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
    module = program.to_fx(mesh)
    distributed.destroy_process_group()
    assert str(heddle.from_fx(module)) == str(program.graph)
