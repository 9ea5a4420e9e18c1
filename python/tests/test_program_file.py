"""Programs in files: what is read back, and files that are not programs."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

import heddle


def test_a_program_is_read_back(step: heddle.Graph, plan: heddle.Plan, tmp_path: Path) -> None:
    program = heddle.Program(step, plan, cluster="a100-8x")
    program.save(tmp_path / "a")
    program.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    again = heddle.Program.load(tmp_path / "a")
    assert again.graph == program.graph and again.plan == program.plan
    assert (again.pipeline, again.cluster) == (program.pipeline, program.cluster)
    assert again.simulate().step_time == program.simulate().step_time
    again.save(tmp_path / "c")
    assert (tmp_path / "c").read_bytes() == (tmp_path / "a").read_bytes()


@pytest.mark.torch
def test_a_program_from_a_file_trains(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Scaled(torch.nn.Linear):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__(4, 2)
            self.scale = [torch.arange(2.0)]

        def forward(self, x: object) -> object:
            return (super().forward(x) * self.scale[0]).square().mean()

    torch.manual_seed(0)
    model, batch = Scaled(), {"x": torch.randn(8, 4)}
    step = heddle.capture(model, batch, optimizer=heddle.AdamW(lr=1e-2))
    program = step.compile(step.plan("dp=1"))
    assert program.constants and program.hyper
    program.save(tmp_path / "program")
    again = heddle.Program.load(tmp_path / "program")
    runs = [one.start(weights=model) for one in (program, again)]
    losses = [[run(batch).item() for _ in range(3)] for run in runs]
    assert losses[0] == losses[1] and losses[0][2] < losses[0][0]
    if pytest.importorskip("heddle._torch"):
        with pytest.raises(heddle.RunError, match="not captured from a module"):
            heddle.verify(again, batch)


def damaged(kind: str, file: Path) -> None:
    if kind == "empty":
        file.write_bytes(b"")
        return
    facts = {"version": 1, "cluster": "h100-8x", "pipeline": "fsdp", "hyper": {}}
    graph = "heddle 1 local\ngraph @g(%x: f32[4]) -> (%y) {\n  %y = aten.relu(%x)\n}\n"
    parts = {"program.json": json.dumps(facts), "graph.hd": graph}
    if kind == "version":
        parts["program.json"] = json.dumps({**facts, "version": 7})
    elif kind == "no cluster":
        parts["program.json"] = json.dumps({**facts, "cluster": 3})
    elif kind == "not json":
        parts["program.json"] = "{"
    elif kind == "global":
        parts["graph.hd"] = graph.replace("local", "global")
    elif kind == "constants":
        parts["constants.pt"] = "no tensors"
    elif kind == "syntax":
        parts["graph.hd"] = graph.replace("relu", "relu(")
    else:
        del parts["graph.hd"]
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("empty", "is not a program"),
        ("version", "has version 7, expected 1"),
        ("no cluster", "no str `cluster`"),
        ("not json", "is not a program"),
        ("global", "has a global graph"),
        ("constants", "constants.pt"),
        ("syntax", "graph.hd"),
        ("no graph", "has no part 'graph.hd'"),
    ],
)
def test_files_that_are_not_programs(kind: str, message: str, tmp_path: Path) -> None:
    if kind == "constants":
        pytest.importorskip("torch")
    damaged(kind, tmp_path / "program")
    with pytest.raises(heddle.Error, match=message):
        heddle.Program.load(tmp_path / "program")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        heddle.Program.load(tmp_path / "none")
