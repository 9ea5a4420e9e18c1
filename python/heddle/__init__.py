"""Heddle: capture, plan, compile and simulate distributed training steps.

>>> import heddle
>>> heddle.__version__.count(".")
2
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._core import Graph, Node, Output, Plan, Value, run_pipeline
from ._core import version as _version
from .errors import (
    CaptureError,
    Diagnostic,
    Error,
    InternalError,
    PassError,
    PlanError,
    RunError,
)
from .passes import Edit, graph_pass
from .program import Comparison, Program, Simulation
from .reading import from_fx, read
from .searching import SearchResult, search
from .step import Step

if TYPE_CHECKING:
    from . import backend as backend
    from . import data as data
    from . import fx as fx
    from . import hf as hf
    from . import testing as testing
    from .capturing import Parameter, Spec, capture
    from .optim import AdamW
    from .rules import Rules
    from .running import Run
    from .verifying import Verification, verify

__all__ = [
    "AdamW",
    "CaptureError",
    "Comparison",
    "Diagnostic",
    "Edit",
    "Error",
    "Graph",
    "InternalError",
    "Node",
    "Output",
    "Parameter",
    "PassError",
    "Plan",
    "PlanError",
    "Program",
    "Rules",
    "Run",
    "RunError",
    "SearchResult",
    "Simulation",
    "Spec",
    "Step",
    "Value",
    "Verification",
    "capture",
    "from_fx",
    "graph_pass",
    "read",
    "run_pipeline",
    "search",
    "verify",
]

__version__ = _version

# Names whose modules import torch.
_NEED_TORCH = {
    "AdamW": "optim",
    "Parameter": "capturing",
    "Rules": "rules",
    "Run": "running",
    "Spec": "capturing",
    "Verification": "verifying",
    "capture": "capturing",
    "verify": "verifying",
}
# Modules of the package that `import heddle` does not import.
_MODULES = ("backend", "data", "fx", "hf", "testing")


def __getattr__(name: str) -> Any:
    """Imports torch at the first use of a name that needs it."""
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _NEED_TORCH:
        raise AttributeError(f"module 'heddle' has no attribute '{name}'")
    value = getattr(importlib.import_module(f".{_NEED_TORCH[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
