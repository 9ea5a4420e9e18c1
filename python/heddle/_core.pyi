"""The compiler of Heddle. Everything here is for the package `heddle`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import os
from typing import Any


version: str = '0.2.0'

def fail_check(message: str) -> None:
    """Fails an internal check, so that tests see what happens then."""

class Node:
    """
    A call of an op in a graph, at a position of its schedule.

    >>> graph = heddle.Graph.parse('''heddle 1 local
    ... graph @g(%x: f32[4,6]) -> (%b) {
    ...   %a = aten.transpose.int(%x, dim0=0, dim1=1) @layers.0
    ...   %b = aten.relu(%a)
    ... }''')
    >>> node = graph.nodes[0]
    >>> node.op, node.scope, node.phase, node.attrs
    ('aten.transpose.int', 'layers.0', 'fwd', {'dim0': 0, 'dim1': 1})
    >>> node.result.shape, node.operand(0).name
    ((6, 4), 'x')
    >>> node.result.users[0].op
    'aten.relu'
    """

    @property
    def op(self) -> str:
        """The name of the op, as in the text: `aten.mm`."""

    @property
    def index(self) -> int:
        """The position in the schedule, from 0."""

    @property
    def operands(self) -> list[Value | None]:
        """The tensors that the node reads; None for an absent optional one."""

    def operand(self, index: int) -> Value | None:
        """The operand with this number."""

    @property
    def results(self) -> list[Value]:
        """The values that the node defines."""

    @property
    def result(self) -> Value:
        """The only result."""

    @property
    def attrs(self) -> dict[str, Any]:
        """
        The arguments that are no tensors. Arguments with their default values are left out.
        """

    @property
    def tensors(self) -> dict[str | int, Value | list[Value | None] | None]:
        """
        The operands by the names of the schema; those of an opaque op by name or position.
        """

    @property
    def opaque(self) -> bool:
        """Whether the op is not in the table of ops."""

    @property
    def scope(self) -> str:
        """The module that the node belongs to; empty for the root."""

    @property
    def phase(self) -> str:
        """`fwd`, `bwd` or `opt`."""

    @property
    def stream(self) -> int:
        """For a collective or copy, its stream."""

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

class Value:
    """
    A tensor of a graph: an input, or the result of a node.

    >>> graph = heddle.Graph.parse('''heddle 1 local
    ... graph @g(%w: f32[4] param 0 "up.weight" unit "up") -> (loss %y) {
    ...   %y = aten.sum(%w)
    ... }''')
    >>> w = graph.inputs[0]
    >>> w.name, w.dtype, w.shape, w.role, w.index, w.label, w.unit
    ('w', 'f32', (4,), 'param', 0, 'up.weight', 'up')
    >>> graph.value('y').producer.op
    'aten.sum'
    """

    @property
    def name(self) -> str:
        """The name, without `%`."""

    @property
    def dtype(self) -> str:
        """The element type, as in the text: `bf16`."""

    @property
    def shape(self) -> tuple[int | str, ...]:
        """The sizes. A size that depends on data or on the rank is its text."""

    @property
    def type(self) -> str:
        """The type with its placement, as in the text: `bf16[32{dp},1024]`."""

    @property
    def nbytes(self) -> int:
        """The size in bytes, at most."""

    @property
    def producer(self) -> Node | None:
        """The node that defines it; None for an input."""

    @property
    def users(self) -> list[Node]:
        """The nodes that read it, in the order of the schedule."""

    @property
    def keep(self) -> str | None:
        """
        The decision to keep it for backward or not, as `must_save`; None without a decision.
        """

    @property
    def role(self) -> str | None:
        """The role of an input: `param`, `buffer`, `batch`, ..."""

    @property
    def index(self) -> int | None:
        """The number of a parameter; for optimizer state, its parameter's."""

    @property
    def label(self) -> str:
        """The full name of a parameter or buffer; the label of another input."""

    @property
    def unit(self) -> str:
        """The FSDP unit of a parameter."""

    @property
    def whole(self) -> str | None:
        """
        The type of an input on the whole mesh, as in the text: `f32[1024{dp},64]`.
        """

    def __str__(self) -> str: ...

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

class Output:
    """
    An output of a graph: a value and its role.

    >>> graph = heddle.Graph.parse('''heddle 1 local
    ... graph @g(%x: f32[4] batch) -> (loss %y) {
    ...   %y = aten.sum(%x)
    ... }''')
    >>> output = graph.outputs[0]
    >>> output.role, output.value.name
    ('loss', 'y')
    """

    @property
    def value(self) -> Value:
        """The value."""

    @property
    def role(self) -> str | None:
        """`loss`, `grad`, `update`, `metric` or `saved`."""

    @property
    def index(self) -> int | None:
        """For a gradient, the number of its parameter."""

    @property
    def target(self) -> Value | None:
        """For an update, the input that it replaces."""

    @property
    def label(self) -> str:
        """Its name, if any."""

    @property
    def whole(self) -> str:
        """The type on the whole mesh, as in the text: `f32[1024{dp},64]`."""

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

class Nodes:
    """A read-only sequence of views of one graph."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Node: ...

    def __iter__(self) -> Iterator[Node]: ...

    def __repr__(self) -> str: ...

class Values:
    """A read-only sequence of views of one graph."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Value: ...

    def __iter__(self) -> Iterator[Value]: ...

    def __repr__(self) -> str: ...

class Outputs:
    """A read-only sequence of views of one graph."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Output: ...

    def __iter__(self) -> Iterator[Output]: ...

    def __repr__(self) -> str: ...

class Graph:
    """
    A training step as a flat graph: a list of nodes in execution order.

    Its text (docs/ir.md) is `str(graph)`; `Graph.parse` reads it back.
    Graphs never change: passes return new ones.

    >>> graph = heddle.Graph.parse('''heddle 1 local
    ... graph @g(%x: f32[4,6]) -> (%b) {
    ...   %a = aten.t(%x)
    ...   %b = aten.t(%a)
    ... }''')
    >>> graph
    <heddle.Graph @g: local, 2 nodes, 1 input, 1 output>
    >>> [node.op for node in graph.nodes]
    ['aten.t', 'aten.t']
    >>> heddle.Graph.parse(str(graph)) == graph
    True
    """

    @staticmethod
    def parse(text: str, file: str = 'text') -> Graph:
        """Reads Heddle's text and verifies it. `file` is the name in messages."""

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Graph:
        """Reads a file with Heddle's text."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the text to a file."""

    @property
    def name(self) -> str:
        """The name, without `@`."""

    @property
    def view(self) -> str:
        """
        `global`: the whole step, with whole tensors. `local`: what one rank runs.
        """

    @property
    def mesh(self) -> dict[str, int]:
        """Axes and their sizes, the slowest first."""

    @property
    def nodes(self) -> Nodes:
        """The nodes, in the order of execution."""

    @property
    def inputs(self) -> Values:
        """The inputs."""

    @property
    def outputs(self) -> Outputs:
        """The outputs."""

    def value(self, name: str) -> Value:
        """The value with this name."""

    @property
    def remarks(self) -> list[str]:
        """What the reader of a foreign graph assumed or lost, one sentence each."""

    def stats(self) -> dict[str, Any]:
        """
        Counts of nodes, parameters and collectives, and bytes: what `heddle stats --json` prints.

        >>> graph = heddle.Graph.parse('heddle 1 local\\ngraph @g(%x: f32[8]) -> (%x) {\\n}')
        >>> graph.stats()['input_bytes']
        32
        """

    @property
    def hash(self) -> str:
        """A hash of everything but the names of values."""

    def diff(self, other: Graph) -> str:
        """
        What was added (+), removed (-), changed (< >) or moved (^) from this graph to `other`; empty for equal graphs.
        """

    def __len__(self) -> int: ...

    def __bool__(self) -> bool: ...

    def __eq__(self, other: object, /) -> bool:
        """Whether the texts are equal."""

    def __hash__(self) -> int: ...

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

    def __getstate__(self) -> str: ...

    def __setstate__(self, arg: str, /) -> None: ...

class Plan:
    """
    How a step is spread over a mesh: a text (docs/plans.md).

    >>> plan = heddle.Plan('''heddle plan 1
    ... mesh [dp=4]
    ... input "*" [dp]
    ... param "**" store [dp] compute [-]
    ... ''')
    >>> plan.mesh
    {'dp': 4}
    >>> print(str(plan).splitlines()[1])
    mesh [dp=4]
    """

    def __init__(self, text: str, file: str = 'plan') -> None: ...

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Plan:
        """Reads a plan from a file."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the text to a file."""

    @property
    def mesh(self) -> dict[str, int]:
        """Axes and their sizes, the slowest first."""

    @property
    def automatic(self) -> bool:
        """
        Whether the plan says `auto`: what it leaves open is found when it is used.
        """

    def diff(self, other: Plan) -> str:
        """
        The statements that differ, `-` here and `+` in `other`; empty for none.
        """

    def explain(self, name: str) -> str:
        """
        Why `auto` placed a parameter where it is, and what every other placement would cost.
        """

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

    def __eq__(self, other: object, /) -> bool:
        """Whether both have the same statements."""

    def __hash__(self) -> int: ...

    def __getstate__(self) -> str: ...

    def __setstate__(self, arg: str, /) -> None: ...

class RuleLists:
    """
    What users tell presets: weights as (pattern, dimension), patterns of stacks of experts,
    modules as (pattern, flow in, flow out), patterns of modules in which each rank has its own tokens,
    FSDP units by parameter. A flow is `residual`, `whole`, `logits` or empty.
    """

    def __init__(self, weights: Sequence[tuple[str, int]] = [], experts: Sequence[str] = [], layers: Sequence[tuple[str, str, str]] = [], own_tokens: Sequence[str] = [], units: Mapping[str, str] = {}) -> None: ...

def make_plan(graph: Graph, mesh: str, *, auto: bool, rules: RuleLists, memory: str, cluster: str) -> Plan:
    """
    A plan for a global graph: FSDP over the axes that split the batch and tensor parallelism by the
    rules, or with `auto` the fastest placements on the cluster.
    """

class Simulated:
    def report(self) -> dict[str, Any]: ...

    def memory(self) -> dict[str, Any]: ...

    def text(self, color: bool = False) -> str: ...

    def timeline(self) -> str: ...

    def trace(self) -> str: ...

    def page(self, before: Simulated | None = None) -> str: ...

    def comparison(self, before: Simulated) -> tuple[str, dict[str, Any]]: ...

    @property
    def name(self) -> str: ...

class Compiled:
    @property
    def graph(self) -> Graph: ...

    @property
    def plan(self) -> Plan | None: ...

    @property
    def name(self) -> str: ...

    @property
    def cluster(self) -> str: ...

    @property
    def notes(self) -> list[str]: ...

    def passes(self) -> list[dict[str, Any]]: ...

    def simulate(self, slowdown: float | None = None, tokens: int | None = None) -> Simulated: ...

def run_python_pass(graph: Graph, name: str, numerics: str, function: Callable[[Graph], Graph], cluster: str) -> Graph: ...

def then_python_pass(program: Compiled, name: str, numerics: str, function: Callable[[Graph], Graph]) -> Compiled: ...

def then_passes(program: Compiled, pipeline: str) -> Compiled: ...

def compile_graph(graph: Graph, plan: Plan | None, *, pipeline: str | None = None, cluster: str | None = None, costs: str = '', memory: str = '', checkpoint: str = '') -> Compiled: ...

def run_pipeline(graph: Graph, pipeline: str, *, cluster: str = 'h100-8x') -> Graph:
    """
    Runs passes over a graph and returns the result: what `heddle opt` does.

    `pipeline` is a text as `clean, repeat{dce, cse}` (docs/passes.md). `cluster` prices nodes for
    passes that ask for it.

    >>> graph = heddle.Graph.parse('''heddle 1 local
    ... graph @g(%x: f32[4,6]) -> (%x) {
    ...   %a = aten.t(%x)
    ... }''')
    >>> len(heddle.run_pipeline(graph, 'dce'))
    0
    """

def read_file(path: str, mesh: str, groups: Sequence[tuple[str, str]], hint: int, global_: bool, params: Sequence[str]) -> Graph: ...

def read_fx(graph_module: Any, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]], scopes: dict[str, str] | None = None, mesh: str = '', groups: dict[str, str] = {}) -> Graph:
    """
    Reads a torch.fx.GraphModule of ATen calls, node by node.

    `inputs` has a dictionary for each placeholder, in their order:

    - `role`: `param`, `buffer`, `batch`, `opt` or `hyper`
    - `index`: the number of a parameter in registration order; for `opt`, the number of the
      parameter whose state it is; otherwise None
    - `label`: the full name of a parameter or buffer (`layers.0.up.weight`), the name of optimizer
      state (`exp_avg`), or what else the input is called
    - `unit`: the FSDP unit of a parameter (`layers.0`), or None
    - `tied`: other names of the same tensor; a graph has one name for each input

    `outputs` has a dictionary for each output, in their order:

    - `role`: `loss`, `grad`, `update`, `metric`, `buffer_update` or `result`
    - `index`: for `grad`, the number of the parameter; otherwise None
    - `input`: for `update` and `buffer_update`, the position of the input that gets this value
    - `label`: its name, or an empty string

    Facts of a node are in its `meta`: `heddle_phase` (`fwd`, `bwd` or `opt`), `heddle_scope` (the
    path of its module), and `val` (the fake tensor). `scopes` gives paths of modules by the names of
    nodes, for nodes without `heddle_scope`.

    `mesh` has axes and sizes, as `dp=4,tp=2`, and `groups` the axes of each process group by its name.
    Without them, each group has an axis of its own.

    A graph without collectives is global: the whole step, which a plan spreads over ranks. A mistake
    is a `CaptureError` that names the node, its module, and the line of the user's file if the node
    has a `stack_trace`.
    """

def search_plans(graph: Graph, devices: int, *, cluster: str, memory: str, rules: RuleLists, tensor_degrees: list[int], auto: bool, overlap: bool, progress: Callable[[int, int, str], None]) -> dict[str, Any]: ...

class CheckpointWriter:
    def __init__(self, folder: str, *, world: int, rank: int, keep: int, begin_step: int, run: str, timeout: int, texts: Sequence[tuple[str, str]]) -> None: ...

    def save(self, step: int, state: str, pieces: Sequence[tuple[str, str, Sequence[int], Sequence[int], Sequence[int], int, int]]) -> None: ...

    def finish(self) -> None: ...

class Checkpoint:
    def __init__(self, folder: str, step: int | None = None, newest: int | None = None) -> None: ...

    @property
    def step(self) -> int: ...

    @property
    def state(self) -> str: ...

    @property
    def notes(self) -> list[str]: ...

    @property
    def tensors(self) -> list[tuple[str, str, list[int]]]: ...

    def check(self, expected: Sequence[tuple[str, str, Sequence[int]]]) -> None: ...

    def read(self, name: str, offset: Sequence[int], shape: Sequence[int], to: int) -> None: ...

def run_command_line(args: Sequence[str]) -> int:
    """
    Runs `heddle ARGS...`, whose first argument names the program, and returns the exit code.
    """
