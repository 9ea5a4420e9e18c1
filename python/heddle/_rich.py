"""What notebooks show: HTML of plans, graphs, steps and programs, and progress of long calls."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from .table import Table, format_seconds

if TYPE_CHECKING:
    from ._core import Graph, Plan
    from .program import Program
    from .step import Step

__all__ = ["Progress", "graph_html", "plan_html", "program_html", "step_html"]

# Lines of a text that a notebook shows; the rest is in `str`.
_MOST_LINES = 500
_WIDTH = 30
# Seconds of silence before progress appears, and between its updates.
_SILENT = 1.0
_EVERY = 0.2


def _details(summary: str, text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"... {len(lines) - _MOST_LINES:,} more lines"]
    body = escape("\n".join(lines))
    return f"<details><summary>{escape(summary)}</summary><pre>{body}</pre></details>"


def _mesh(mesh: dict[str, int]) -> str:
    return ", ".join(f"{axis}={size}" for axis, size in mesh.items()) or "one rank"


def _paragraphs(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<details><summary>{len(lines)} {escape(title)}</summary><ul>{items}</ul></details>"


def plan_html(plan: Plan) -> str:
    """A plan as a table of its statements.

    >>> from heddle._rich import plan_html
    >>> html = plan_html(heddle.Plan('''heddle plan 1
    ... mesh [dp=4]
    ... param "**" store [dp] compute [-]
    ... '''))
    >>> "<td>param</td><td>&quot;**&quot;</td><td>store [dp] compute [-]</td>" in html
    True
    """
    rows = []
    for line in str(plan).splitlines()[1:]:
        word, _, rest = line.partition(" ")
        if word == "mesh" or not line:
            continue
        of, placed = "", rest
        if rest.startswith('"'):
            of, _, placed = rest[1:].partition('"')
            of = f'"{of}"'
        rows.append({"statement": word, "of": of, "is": placed.strip()})
    shown = dict.fromkeys(("statement", "of", "is"), "")
    return f"<p><b>Plan</b> [{escape(_mesh(plan.mesh))}]</p>{Table(rows, shown)._repr_html_()}"


def graph_html(graph: Graph) -> str:
    """The size of a graph, and its text.

    >>> from heddle._rich import graph_html
    >>> html = graph_html(heddle.Graph.parse('''heddle 1 local
    ... graph @g(%x: f32[4,6]) -> (%a) {
    ...   %a = aten.t(%x)
    ... }'''))
    >>> html.startswith("<p><b>@g</b>: local, [one rank], 1 nodes") and "aten.t(%x)" in html
    True
    """
    head = (
        f"{graph.view}, [{_mesh(graph.mesh)}], {len(graph):,} nodes, {len(graph.inputs):,} inputs"
    )
    text = _details("text", str(graph))
    return f"<p><b>@{escape(graph.name)}</b>: {escape(head)}</p>{text}"


def step_html(step: Step) -> str:
    """A step with its parameters and remarks.

    >>> from heddle._rich import step_html
    >>> graph = heddle.Graph.parse('''heddle 1 global
    ... graph @s(%x: f32[8] batch, %w: f32[8] param 0 "up.weight" unit "up") -> (loss %l) {
    ...   %y = aten.mul.Tensor(%x, %w)
    ...   %l = aten.sum(%y)
    ... }''')
    >>> "<td>up.weight</td>" in step_html(heddle.Step(graph))
    True
    """
    rows = [
        {
            "name": getattr(one, "name" if step._parameters is not None else "label"),
            "shape": tuple(one.shape),
            "dtype": str(one.dtype),
            "unit": getattr(one, "unit", "") or "",
        }
        for one in step.parameters
    ]
    table = Table(rows)._repr_html_()
    return (
        f"<p><b>{escape(repr(step)[1:-1])}</b></p>"
        f"<details><summary>{len(rows):,} parameters</summary>{table}</details>"
        f"{_paragraphs('remarks', step.remarks)}{_details('text', str(step.graph))}"
    )


def program_html(program: Program) -> str:
    """A program: its passes, its plan and its graph.

    >>> from heddle._rich import program_html
    >>> html = program_html(heddle.Program(heddle.Graph.parse('''heddle 1 local
    ... graph @g(%x: f32[4,6]) -> (%a) {
    ...   %a = aten.t(%x)
    ... }'''), pipeline="dce"))
    >>> "<td>dce</td>" in html
    True
    """
    plan = _details("plan", str(program.plan)) if program.plan is not None else ""
    return (
        f"<p><b>{escape(repr(program)[1:-1])}</b></p>{program.passes._repr_html_()}"
        f"{_paragraphs('notes', program.notes)}{plan}{_details('text', str(program.graph))}"
    )


class Progress:
    """Progress of a long call: a bar in a notebook, a line on a terminal, otherwise nothing.

    It appears after a second, and disappears at the end.

    >>> from heddle._rich import Progress
    >>> with Progress("search") as progress:
    ...     progress(1, 4, "presets")
    >>> progress.text(1, 4, "presets")
    'search: 1 of 4, presets'
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._show = _notebook_display() or _terminal_line()
        self._begun = time.monotonic()
        self._next = self._begun + _SILENT

    def text(self, done: int, every: int, doing: str = "") -> str:
        """The words next to the bar."""
        return f"{self._what}: {done:,} of {every:,}{', ' if doing else ''}{doing}"

    def __call__(self, done: int, every: int, doing: str = "") -> None:
        now = time.monotonic()
        if self._show is None or now < self._next:
            return
        self._next = now + _EVERY
        spent = format_seconds(now - self._begun)
        self._show(done / every if every else 0.0, f"{self.text(done, every, doing)}, {spent}")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._show is not None:
            self._show(None, "")


Show = Callable[["float | None", str], None]


def _notebook_display() -> Show | None:
    """Shows a bar in the output of the running cell; None outside of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    handle: Any = None

    def show(share: float | None, text: str) -> None:
        nonlocal handle
        display, html = ipython.display.display, ipython.display.HTML
        if share is None:
            if handle is not None:
                handle.update(html(""))
            return
        bar = html(f'<progress value="{share:.3f}"></progress> {escape(text)}')
        if handle is None:
            handle = display(bar, display_id=True)
        else:
            handle.update(bar)

    return show


def _terminal_line() -> Show | None:
    """Shows a line on standard error; None if that is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    shown = False

    def show(share: float | None, text: str) -> None:
        nonlocal shown
        if share is None:
            if shown:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
            return
        shown = True
        filled = round(share * _WIDTH)
        bar = "#" * filled + "." * (_WIDTH - filled)
        sys.stderr.write(f"\r\x1b[K[{bar}] {text}")
        sys.stderr.flush()

    return show
