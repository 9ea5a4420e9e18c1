"""Runs the Python blocks of README and docs.

The blocks of a page share their names, in order. Each section begins with the names of `names`,
which stand for what the reader has: a model, a batch, a mesh. A comment before a block,
`<!-- ranks 4 -->`, runs it in four processes over Gloo; `<!-- not run: REASON -->` leaves it out.
"""

# ruff: noqa: E402

from __future__ import annotations

import importlib.util
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import heddle

torch = pytest.importorskip("torch")

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from docs_model import Model, loss_of
from modules import Mixtures, square
from process_group import process_group as process_group
from ranks import run_ranks

pytestmark = [pytest.mark.torch, pytest.mark.processes]

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)$")
RANKS = re.compile(r"^<!-- ranks (\d+) -->$")
TRANSPOSES = """heddle 1 local
graph @g(%x: f32[4,6]) -> (%c) {
  %a = aten.t(%x)
  %b = aten.t(%a)
  %c = aten.relu(%b)
}
"""


@dataclass
class Block:
    """A block of Python with the first line of its text."""

    section: str
    line: int
    ranks: int
    text: str


def blocks_of(page: Path) -> list[Block]:
    found: list[Block] = []
    section, language, ranks, before, runs = "", None, 0, "", True
    begin, text = 0, ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if language is not None:
            if line == "```":
                if language == "python" and runs:
                    found.append(Block(section, begin, ranks, text))
                language = None
            else:
                text += line + "\n"
        elif fence:
            marked = RANKS.match(before)
            language, ranks = fence[1], int(marked[1]) if marked else 0
            runs = not before.startswith("<!-- not run: ")
            begin, text = number + 1, ""
        elif line.startswith("## "):
            section = line
        before = line
    return found


PAGES = [page for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))) if blocks_of(page)]


def whole_batch() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    return {key: torch.randint(0, 16, (4, 6), generator=generator) for key in ("x", "y")}


def names_of(page: str) -> dict[str, Any]:
    """What a reader of the page has before a section."""
    torch.manual_seed(0)
    model, batch = Model(), whole_batch()
    step = heddle.capture(model, batch, loss=loss_of)
    plan = step.plan("dp=4")
    found = dict(model=model, batch=batch, step=step, plan=plan, program=step.compile(plan))
    found |= dict(loss=loss_of, heddle=heddle, torch=torch, init_device_mesh=init_device_mesh)
    if page == "python-api.md":
        found["step"] = heddle.Step(heddle.Graph.load("step.hd"))
    if page == "capture.md":
        x = {"x": torch.randn(8, 6, 16)}
        found["mixture"] = heddle.capture(Mixtures(8), x, loss=lambda m, b: square(m, b["x"]))
    if page == "python-passes.md":
        found["graph"] = heddle.Graph.parse(TRANSPOSES)
    return found


def run(block: Block, page: str, names: dict[str, Any]) -> None:
    # Tracebacks have the line of the page.
    exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), names)


def names_of_rank(page: str, rank: int) -> dict[str, Any]:
    names = names_of(page)
    sizes = {"dp": 4} if page == "python-fx.md" else {"dp": 2, "tp": 2}
    plan = names["step"].plan(sizes, rules=heddle.Rules(columns=["**.up"], rows=["**.down"]))
    names["program"] = names["step"].compile(plan)
    names["mesh"] = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    names["run"] = names["program"].start(names["mesh"], weights=names["model"])
    at = rank * sizes["dp"] // 4
    names["batch"] = {k: v.chunk(sizes["dp"])[at].contiguous() for k, v in names["batch"].items()}
    names["loader"] = [names["batch"]] * 2
    return names


def run_rank(rank: int, page: str) -> None:
    names: dict[str, Any] = {}
    section = None
    for block in blocks_of(ROOT / "docs" / page):
        if block.ranks:
            if block.section != section:
                section = block.section
                names.update(names_of_rank(page, rank))
            run(block, page, names)


class TitanRegistry(types.ModuleType):
    """The names that GraphTrainer gives to passes: torchtitan needs a nightly build and GPUs."""

    def __init__(self) -> None:
        super().__init__("torchtitan.experiments.graph_trainer.registry")
        self.pipelines: dict[str, Any] = {}

    def register_pass_pipeline(self, name: str) -> Any:
        return lambda function: self.pipelines.setdefault(name, function)


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[TitanRegistry]:
    """A folder, a browser, the network's configuration of a model, torchtitan, the entry point."""
    monkeypatch.chdir(tmp_path)
    example = importlib.util.spec_from_file_location(
        "plan_step", ROOT / "examples" / "python" / "plan_step.py"
    )
    assert example is not None and example.loader is not None
    plan_step = importlib.util.module_from_spec(example)
    example.loader.exec_module(plan_step)
    Path("step.hd").write_text(plan_step.small_step())
    monkeypatch.setattr("webbrowser.open", lambda *_: True)
    registry = TitanRegistry()
    for end in (1, 2, 3, 4):
        name = ".".join(registry.__name__.split(".")[:end])
        module = registry if end == 4 else types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
    installed = tmp_path / "heddle_compiler-0.dist-info"
    installed.mkdir()
    project = (ROOT / "pyproject.toml").read_text()
    stated = re.search(r'torch_dynamo_backends\]\n(heddle = )"([\w.]+:\w+)"', project)
    assert stated is not None
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: heddle-compiler\nVersion: 0\n"
    )
    (installed / "entry_points.txt").write_text(
        f"[torch_dynamo_backends]\n{stated[1]}{stated[2]}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from torch._dynamo.backends import registry as backends

    # Another test may have looked for entry points before this one was there.
    backends._lazy_import.cache_clear()
    backends._discover_entrypoint_backends.cache_clear()
    yield registry


def small_llama(*_: Any) -> Any:
    import transformers

    return transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=8192,
    )


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_blocks(page: Path, surroundings: TitanRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    section = None
    for block in blocks_of(page):
        if block.ranks:
            continue
        if "verify(" in block.text or "assert_same_bits" in block.text:
            pytest.importorskip("heddle._torch", exc_type=ImportError)
        if "transformers" in block.text:
            transformers = pytest.importorskip("transformers")
            monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", small_llama)
        if block.section != section:
            section = block.section
            names.update(names_of(page.name))
            names["fully_shard"] = fully_shard
            names["world_mesh"] = init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
        run(block, page.name, names)
        for name, value in list(names.items()):
            if name.startswith("test_"):
                value()
        if block.text.startswith("model = torch.compile"):
            loss_of(names["model"], whole_batch()).backward()
            assert [one.name for one in heddle.backend.compiled()[-2:]] == ["forward", "backward"]
    for pipeline in surroundings.pipelines.values():
        (graph_pass,) = pipeline(None, None, types.SimpleNamespace(world_mesh=names["world_mesh"]))
        assert callable(graph_pass)


ON_RANKS = [page for page in PAGES if any(block.ranks for block in blocks_of(page))]


@pytest.mark.parametrize("page", ON_RANKS, ids=[page.name for page in ON_RANKS])
def test_blocks_on_ranks(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (ranks,) = {block.ranks for block in blocks_of(page) if block.ranks}
    run_ranks(ranks, tmp_path / "ranks", run_rank, page.name)


def test_the_pages_of_the_package_have_blocks() -> None:
    assert {"python.md", "capture.md", "python-fx.md"} <= {page.name for page in PAGES}
    assert dist.is_available()
