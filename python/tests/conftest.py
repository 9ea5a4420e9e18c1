"""What tests share: small graphs, a plan, and the program `heddle` if it was built."""

from __future__ import annotations

import os

# Without this, the bits of MKL depend on the alignment of operands on some processors.
os.environ.setdefault("MKL_CBWR", "COMPATIBLE")

from pathlib import Path

import pytest

import heddle

# Without the package, the folder heddle/ of the checkout is an empty package of that name.
if heddle.__file__ is None:
    pytest.exit("the package heddle is not installed: run `make python`", returncode=4)

STEP = """heddle 1 global
graph @step(%x: f32[8,16] batch "x", %w: f32[16,32] param 0 "up.weight" unit "up",
            %v: f32[32,16] param 1 "down.weight" unit "down") -> (loss %l, grad 0 %gw, grad 1 %gv) {
  %h = aten.mm(%x, %w) @up
  %y = aten.mm(%h, %v) @down
  %l = aten.sum(%y)
 bwd:
  %one = aten.ones_like(%y) @down
  %ht = aten.t(%h) @down
  %gv = aten.mm(%ht, %one) @down
  %vt = aten.t(%v) @down
  %gh = aten.mm(%one, %vt) @down
  %xt = aten.t(%x) @up
  %gw = aten.mm(%xt, %gh) @up
}
"""
PLAN = """heddle plan 1
mesh [dp=4]
input "*" [dp]
param "**" store [dp] compute [-]
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--heddle", default="", help="the program `heddle`, to compare outputs with")


@pytest.fixture
def program_file(request: pytest.FixtureRequest) -> Path:
    given = request.config.getoption("--heddle")
    if not given or not Path(given).exists():
        pytest.skip("no program `heddle`: --heddle names none")
    return Path(given)


@pytest.fixture
def step() -> heddle.Graph:
    return heddle.Graph.parse(STEP)


@pytest.fixture
def plan() -> heddle.Plan:
    return heddle.Plan(PLAN)
