"""Heddle: plan, compile and simulate distributed training steps.

>>> import heddle
>>> heddle.__version__.count(".")
2
"""

from __future__ import annotations

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
from .program import Comparison, Program, Simulation
from .reading import from_fx, read
from .searching import SearchResult, search
from .step import Step

__all__ = [
    "CaptureError",
    "Comparison",
    "Diagnostic",
    "Error",
    "Graph",
    "InternalError",
    "Node",
    "Output",
    "PassError",
    "Plan",
    "PlanError",
    "Program",
    "RunError",
    "SearchResult",
    "Simulation",
    "Step",
    "Value",
    "from_fx",
    "read",
    "run_pipeline",
    "search",
]

__version__ = _version
