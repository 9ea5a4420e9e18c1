"""FX graphs from memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import heddle
from heddle import _core

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def trace(function: Callable[..., Any], *example: Any) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function, tracing_mode="fake")(*example)


def mlp() -> Any:
    def step(w: Any, v: Any, x: Any) -> list[Any]:
        h = torch.relu(x @ w)
        loss = (h @ v).sum()
        return [loss, h.t() @ torch.ones(8, 4), v.sum() * w]

    return trace(step, torch.ones(16, 32), torch.ones(32, 4), torch.ones(8, 16))


INPUTS = [
    dict(role="param", index=0, label="up.weight", unit="up", tied=[]),
    dict(role="param", index=1, label="down.weight", unit=None, tied=["head.weight"]),
    dict(role="batch", index=None, label="tokens", unit=None, tied=[]),
]
OUTPUTS = [
    dict(role="loss", index=None, input=None, label=""),
    dict(role="grad", index=1, input=None, label=""),
    dict(role="grad", index=0, input=None, label=""),
]


def test_roles_labels_and_units() -> None:
    graph = _core.read_fx(mlp(), INPUTS, OUTPUTS, None)
    assert graph.view == "global" and graph.remarks == []
    assert [(v.role, v.index, v.label, v.unit) for v in graph.inputs] == [
        ("param", 0, "up.weight", "up"),
        ("param", 1, "down.weight", ""),
        ("batch", None, "tokens", ""),
    ]
    assert [(o.role, o.index) for o in graph.outputs] == [("loss", None), ("grad", 1), ("grad", 0)]
    assert heddle.Graph.parse(str(graph)) == graph


def test_phases_and_scopes() -> None:
    traced = mlp()
    calls = [node for node in traced.graph.nodes if node.op == "call_function"]
    for node in calls:
        node.meta["heddle_phase"] = "bwd" if node is calls[-1] else "fwd"
        node.meta["heddle_scope"] = "layers.0.up"
    del calls[0].meta["heddle_scope"]
    graph = _core.read_fx(traced, INPUTS, OUTPUTS, {calls[0].name: "layers.1"})
    assert [node.phase for node in graph.nodes] == ["fwd"] * (len(graph) - 1) + ["bwd"]
    assert [node.scope for node in graph.nodes] == ["layers.1"] + ["layers.0.up"] * (len(graph) - 1)


def test_optimizer_state_and_updates() -> None:
    def step(w: Any, m: Any, lr: Any, g: Any) -> list[Any]:
        moment = m * 0.9 + g
        return [g.sum(), w - lr * moment, moment]

    traced = trace(step, torch.ones(4), torch.ones(4), torch.tensor(0.1), torch.ones(4))
    graph = heddle.from_fx(
        traced,
        [
            dict(role="param", index=0, label="w"),
            dict(role="opt", index=0, label="momentum"),
            dict(role="hyper", label="lr"),
            dict(role="batch", label="g"),
        ],
        [dict(role="loss"), dict(role="update", input=0), dict(role="buffer_update", input=1)],
    )
    assert [(v.role, v.index, v.label) for v in graph.inputs][1:3] == [
        ("opt", 0, "momentum"),
        ("hyper", None, "lr"),
    ]
    updates = [(o.role, o.target.name) for o in graph.outputs if o.target is not None]
    assert updates == [("update", "w_1"), ("update", "m_1")]


def test_several_results() -> None:
    def step(x: Any) -> list[Any]:
        a, b = torch.ops.aten.split.Tensor(x, 2)
        norm, _, rstd = torch.ops.aten.native_layer_norm.default(b, [4], None, None, 1e-5)
        return [a + norm, rstd]

    graph = heddle.from_fx(
        trace(step, torch.ones(4, 4)),
        [dict(role="batch", label="x")],
        [dict(role="result", label="sum"), dict(role="metric", label="rstd")],
    )
    assert [node.op for node in graph.nodes][:2] == ["aten.split.Tensor", "aten.native_layer_norm"]
    assert [(o.role, o.label) for o in graph.outputs] == [("metric", "sum"), ("metric", "rstd")]


def test_lists_among_results() -> None:
    def step(w: Any, v: Any, gw: Any, gv: Any) -> list[Any]:
        zeros = [[torch.zeros_like(x) for x in (w, v)] for _ in range(2)]
        steps = [torch.ones(()), torch.ones(())]
        out = torch.ops.aten._fused_adamw.default(
            [w, v],
            [gw, gv],
            *zeros,
            [],
            steps,
            lr=0.1,
            beta1=0.9,
            beta2=0.95,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
        return [out[0][0], out[0][1], out[2][1]]

    tensors = [torch.ones(4), torch.ones(2, 3), torch.ones(4), torch.ones(2, 3)]
    graph = heddle.from_fx(
        trace(step, *tensors),
        [dict(role="param", index=i, label=f"p{i}") for i in range(2)]
        + [dict(role="batch", label=f"g{i}") for i in range(2)],
        [dict(role="update", input=0), dict(role="update", input=1), dict(role="metric")],
    )
    assert [o.value.shape for o in graph.outputs] == [(4,), (2, 3), (2, 3)]
    (update,) = [node for node in graph.nodes if "adamw" in node.op]
    assert len({o.value.name for o in graph.outputs}) == 3
    assert all(o.value.producer == update for o in graph.outputs)


def test_collectives_make_a_local_graph() -> None:
    from torch.fx import Graph, GraphModule

    graph = Graph()
    x = graph.placeholder("x")
    gather = torch.ops._c10d_functional.all_gather_into_tensor.default
    full = graph.call_function(gather, (x, 4, "dp"))
    done = graph.call_function(torch.ops._c10d_functional.wait_tensor.default, (full,))
    graph.output((done,))
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        x.meta["val"] = torch.empty(2)
        full.meta["val"] = done.meta["val"] = torch.empty(8)
    read = heddle.from_fx(
        GraphModule({}, graph), [dict(role="param", index=0, label="x")], [dict(role="result")]
    )
    assert read.view == "local" and read.nodes[0].op == "comm.all_gather"


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (INPUTS[:2], OUTPUTS, "roles are given for 2"),
        ([*INPUTS, INPUTS[2]], OUTPUTS, "3 placeholders, and roles are given for 4"),
        (INPUTS, OUTPUTS[:2], "3 outputs, and roles are given for 2"),
        ([dict(INPUTS[0], role="weight"), *INPUTS[1:]], OUTPUTS, "role `weight`"),
        (INPUTS, [dict(OUTPUTS[0], role="cost"), *OUTPUTS[1:]], "role `cost`"),
        (INPUTS, [OUTPUTS[0], dict(OUTPUTS[1], index=7), OUTPUTS[2]], "not an input"),
        (INPUTS, [dict(role="update", input=9), *OUTPUTS[1:]], "input 9, and there are 3"),
        (INPUTS, [dict(role="update", input=0), *OUTPUTS[1:]], "role-type"),
        ([INPUTS[0], INPUTS[0], INPUTS[2]], OUTPUTS, "not an input|duplicate"),
    ],
)
def test_bad_roles(
    inputs: list[dict[str, Any]], outputs: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(heddle.CaptureError, match=message):
        _core.read_fx(mlp(), inputs, outputs, None)


def test_a_mistake_names_module_op_and_line() -> None:
    traced = mlp()
    relu = next(node for node in traced.graph.nodes if "relu" in node.name)
    relu.meta["val"] = relu.meta["val"].new_empty(3, 3)
    relu.meta["heddle_scope"] = "layers.0"
    relu.meta["stack_trace"] = 'File "model.py", line 7, in forward\n    h = relu(x)\n'
    with pytest.raises(heddle.CaptureError) as caught:
        _core.read_fx(traced, INPUTS, OUTPUTS, None)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message.startswith("in layers.0: ") and "model.py:7" in diagnostic.message
    assert "aten.relu" in diagnostic.source


def test_constants_and_submodules_are_refused() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    constant = torch.ones(4)
    traced = make_fx(lambda x: [x + constant])(torch.ones(4))
    with pytest.raises(heddle.CaptureError, match="get_attr"):
        heddle.from_fx(traced, [dict(role="batch", label="x")], [dict(role="result")])


def test_a_node_takes_microseconds() -> None:
    def step(x: Any) -> list[Any]:
        for _ in range(1000):
            x = torch.relu(x) + 1
        return [x]

    traced = trace(step, torch.ones(4))
    roles = ([dict(role="batch", label="x")], [dict(role="result")])
    _core.read_fx(traced, *roles, None)
    begin = time.process_time()
    graph = _core.read_fx(traced, *roles, None)
    each = (time.process_time() - begin) / len(graph)
    assert len(graph) == 2000 and each < 100e-6
