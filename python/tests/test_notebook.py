"""The notebook of the examples runs, cell by cell, and its values show themselves."""

from __future__ import annotations

import ast
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import heddle
from heddle import _rich

NOTEBOOK = Path(__file__).parents[2] / "examples" / "python" / "notebook.ipynb"


def execute(path: Path) -> list[str]:
    """Runs the cells of a notebook as a kernel does, and gives the HTML of each last expression."""
    shown = []
    names: dict[str, Any] = {"__name__": "__main__"}
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    for number, cell in enumerate(notebook["cells"]):
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None
        if cell["cell_type"] != "code":
            continue
        file = f"{path.name}[{number}]"
        tree = ast.parse("".join(cell["source"]), file)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, file, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), file, "eval"), names)
            shown.append(value._repr_html_())
    return shown


@pytest.mark.torch
def test_the_notebook_runs() -> None:
    pytest.importorskip("torch")
    step, plan, program, simulation, collectives, best, comparison = execute(NOTEBOOK)
    assert "0 opaque ops" in step and "<td>8.down.weight</td>" in step
    assert "<b>Plan</b> [dp=64]" in plan and "<td>param</td>" in plan
    assert "<td>bucket-by-unit</td>" in program and "comm.all_gather" in program
    assert simulation.startswith("<iframe srcdoc=") and "<td>all_gather</td>" in collectives
    assert "<th>step_time</th>" in best and comparison.startswith("<iframe srcdoc=")


def test_names_are_escaped(plan: heddle.Plan) -> None:
    graph = heddle.Graph.parse(
        'heddle 1 local\ngraph @g(%x: f32[4] batch "<b>") -> (%y) {\n  %y = aten.relu(%x)\n}'
    )
    assert "<b>&quot;" not in graph._repr_html_() and "&lt;b&gt;" in graph._repr_html_()
    assert plan._repr_html_().count("<tr>") == 3


class Kernel:
    """What a notebook offers: one output that is shown and then replaced."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.kernel = True

    def display(self, html: str, display_id: bool) -> Kernel:
        self.shown.append(html)
        return self

    def update(self, html: str) -> None:
        self.shown.append(html)


def test_progress_in_a_notebook(monkeypatch: pytest.MonkeyPatch, step: heddle.Graph) -> None:
    kernel = Kernel()
    display = types.SimpleNamespace(display=kernel.display, HTML=str)
    ipython = types.SimpleNamespace(get_ipython=lambda: kernel, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)  # type: ignore[arg-type]
    heddle.search(step, devices=4)
    assert kernel.shown == [], "a short search shows nothing"
    monkeypatch.setattr(_rich, "_SILENT", 0.0)
    monkeypatch.setattr(_rich, "_EVERY", 0.0)
    heddle.search(step, devices=4)
    assert len(kernel.shown) > 2 and kernel.shown[-1] == ""
    assert kernel.shown[0].startswith("<progress value=") and "search: " in kernel.shown[0]
    assert any(shown.startswith('<progress value="0.5') for shown in kernel.shown)


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    terminal = types.SimpleNamespace(isatty=lambda: True, write=written.append, flush=lambda: None)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(_rich, "_SILENT", 0.0)
    with _rich.Progress("search") as progress:
        progress(1, 2, "presets")
    assert written[0].startswith(
        "\r\x1b[K[###############...............] search: 1 of 2, presets, "
    )
    assert written[-1] == "\r\x1b[K"


def test_an_interrupt_of_progress_stops_the_search(
    monkeypatch: pytest.MonkeyPatch, step: heddle.Graph
) -> None:
    def stop(self: Any, done: int, every: int, doing: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_rich.Progress, "__call__", stop)
    with pytest.raises(KeyboardInterrupt):
        heddle.search(step, devices=4)
