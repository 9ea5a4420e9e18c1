"""For tests of passes: graphs that must compute the same, and texts that must not change."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import _core
from ._core import Graph

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["assert_same_bits", "golden", "random_inputs", "repeatable", "run_ranks"]


@contextlib.contextmanager
def repeatable() -> Iterator[None]:
    """Ops of torch inside give the same bits in every run.

    >>> import torch
    >>> from heddle.testing import repeatable
    >>> with repeatable():
    ...     torch.get_num_threads()
    1
    """
    import torch

    threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    # Sums depend on the number of threads, and some kernels on luck.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic)
        torch.set_num_threads(threads)


def run_ranks(
    graph: Graph, inputs: list[list[Tensor]], *, reducer: str = "rank"
) -> list[list[Tensor]]:
    """Runs all ranks of a graph in this process, and gives the outputs of each: the same bits in
    every call.

    `reducer` is the order in which ranks are added: `rank`, `gloo`, `ring:CHANNELS` or `tree`.

    >>> import torch
    >>> from heddle.testing import run_ranks
    >>> graph = heddle.Graph.parse('''heddle 1 local
    ... mesh [dp=2]
    ... graph @g(%x: f32[2]) -> (%y) {
    ...   %a = comm.all_reduce(%x, over=[dp], why=grad)
    ...   %y = comm.wait(%a)
    ... }''')
    >>> run_ranks(graph, [[torch.ones(2)], [torch.ones(2)]])[0][0].tolist()
    [2.0, 2.0]
    """
    try:
        from . import _torch
    except ImportError as error:
        from ._parts import fail

        raise fail(
            "extension",
            f"heddle._torch is missing or is for another torch: {error}",
            "`make python` builds it for the torch in .venv and installs it",
        ) from None
    # Updates are in place.
    copies = [[tensor.detach().clone() for tensor in rank] for rank in inputs]
    with repeatable():
        return _torch.World(str(graph), reducer).run(copies)


def random_inputs(graph: Graph, *, seed: int = 0) -> list[list[Tensor]]:
    """Inputs for each rank: parts of random whole tensors, so that replicas are equal.

    Whole numbers are 0 or 1: valid indices of all but the smallest tensors.

    >>> from heddle.testing import random_inputs
    >>> graph = heddle.Graph.parse('''heddle 1 local
    ... mesh [dp=2]
    ... graph @g(%x: f32[3{dp}] batch "x" of f32[3{dp}]) -> (metric %x of f32[3{dp}]) {
    ... }''')
    >>> [tuple(rank[0].shape) for rank in random_inputs(graph)]
    [(2,), (1,)]
    """
    import torch

    from ._parts import Layout, Place

    generator = torch.Generator().manual_seed(seed)
    wholes: list[tuple[Layout, Tensor]] = []
    for value in graph.inputs:
        layout = Layout.parse(value.whole or "")
        if layout.dtype.is_floating_point or layout.dtype.is_complex:
            wide = torch.complex128 if layout.dtype.is_complex else torch.float64
            whole = torch.randn(layout.sizes, dtype=wide, generator=generator).to(layout.dtype)
        else:
            whole = torch.randint(0, 2, layout.sizes, generator=generator).to(layout.dtype)
        wholes.append((layout, whole))
    places = [Place(graph.mesh, at) for at in Place.all(graph.mesh)]
    return [[layout.part(whole, place).clone() for layout, whole in wholes] for place in places]


def assert_same_bits(
    before: Graph, after: Graph, *, ranks: int | None = None, seed: int = 0, reducer: str = "rank"
) -> None:
    """Runs both graphs on the same random inputs, and compares the bits of all outputs.

    `ranks`: the number of ranks that the graphs must have. A graph without a mesh has one; with
    `ranks` it runs as one rank, too.

    >>> from heddle.testing import assert_same_bits
    >>> graph = heddle.Graph.parse('''heddle 1 local
    ... graph @g(%x: f32[4,6]) -> (%b) {
    ...   %a = aten.t(%x)
    ...   %b = aten.t(%a)
    ... }''')
    >>> assert_same_bits(graph, heddle.run_pipeline(graph, "canonicalize, dce"))
    """
    from ._parts import same_bits

    for graph in (before, after):
        count = _ranks(graph)
        if ranks is not None and count not in (1, ranks):
            raise AssertionError(f"@{graph.name} has {count} ranks, expected {ranks}")
    if len(before.inputs) != len(after.inputs) or before.mesh != after.mesh:
        raise AssertionError("the graphs have different inputs or meshes")
    inputs = random_inputs(before, seed=seed)
    olds = _run_seeded(before, inputs, seed, reducer)
    news = _run_seeded(after, inputs, seed, reducer)
    for rank, (old, new) in enumerate(zip(olds, news, strict=True)):
        if len(old) != len(new):
            raise AssertionError(f"{len(old)} outputs before, {len(new)} after")
        for output, a, b in zip(after.outputs, old, new, strict=True):
            if not same_bits(a, b):
                raise AssertionError(_difference(rank, output, a, b))


def _run_seeded(
    graph: Graph, inputs: list[list[Tensor]], seed: int, reducer: str
) -> list[list[Tensor]]:
    """Random ops draw the same numbers in every run."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return run_ranks(graph, inputs, reducer=reducer)


def _ranks(graph: Graph) -> int:
    count = 1
    for size in graph.mesh.values():
        count *= size
    return count


def _difference(rank: int, output: Any, a: Tensor, b: Tensor) -> str:
    producer = output.value.producer
    scope = f" in {producer.scope}" if producer is not None and producer.scope else ""
    place = f"rank {rank}: output %{output.value.name}{scope}"
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{place} was {a.dtype}{list(a.shape)}, is {b.dtype}{list(b.shape)}"
    at = int((a != b).flatten().nonzero().flatten()[:1].sum()) if a.numel() else 0
    was, now = a.flatten()[at].item(), b.flatten()[at].item()
    return f"{place} differs, first in element {at}: was {was!r}, is {now!r}"


def golden(text: str, run: Callable[[Graph], Graph] | str) -> None:
    """Checks the result of a pass. `text` has the graph, a line `--- out`, and the result.

    `run` is a pass, another function of a graph, or the text of a pipeline.

    >>> from heddle.testing import golden
    >>> golden('''heddle 1 local
    ... graph @g(%x: f32[4]) -> (%x) {
    ...   %a = aten.relu(%x)
    ... }
    ... --- out
    ... heddle 1 local
    ... graph @g(%x: f32[4]) -> (%x) {
    ... }
    ... ''', "dce")
    """
    given, separator, expected = text.partition("\n--- out\n")
    if not separator:
        raise AssertionError("the text has no line `--- out`")
    graph = Graph.parse(given + "\n")
    after = _core.run_pipeline(graph, run) if isinstance(run, str) else run(graph)
    want = str(Graph.parse(expected))
    if str(after) != want:
        lines = difflib.unified_diff(
            want.splitlines(), str(after).splitlines(), "expected", "got", lineterm=""
        )
        raise AssertionError("\n".join(lines))
