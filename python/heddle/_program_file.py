"""Programs in files: a zip archive of texts, which another process reads without capture."""

from __future__ import annotations

import io
import json
import os
import zipfile
from typing import Any

from ._core import Graph, Plan
from .errors import Diagnostic, RunError
from .program import Program

__all__ = ["read", "write"]

_VERSION = 1
_FACTS = {"version": int, "cluster": str, "pipeline": str, "hyper": dict}


def write(program: Program, path: str | os.PathLike[str]) -> None:
    """Writes a program; the same program gives the same bytes."""
    facts = {
        "version": _VERSION,
        "cluster": program.cluster,
        "pipeline": program.pipeline,
        "hyper": dict(program.hyper),
    }
    parts = {"program.json": json.dumps(facts, indent=1).encode()}
    parts["graph.hd"] = str(program.graph).encode()
    if program.plan is not None:
        parts["plan"] = str(program.plan).encode()
    if program.constants:
        import torch

        data = io.BytesIO()
        torch.save(dict(program.constants), data)
        parts["constants.pt"] = data.getvalue()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            # Without a time.
            file.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def read(path: str | os.PathLike[str]) -> Program:
    """Reads a program."""
    name = os.fspath(path)
    try:
        with zipfile.ZipFile(path) as file:
            parts = {part: file.read(part) for part in file.namelist()}
            facts = _facts(parts["program.json"])
            graph = Graph.parse(parts["graph.hd"].decode(), f"{name}/graph.hd")
            plan = Plan(parts["plan"].decode(), f"{name}/plan") if "plan" in parts else None
            constants = _constants(parts["constants.pt"]) if "constants.pt" in parts else None
    except KeyError as error:
        raise _mistake(f"{name} has no part {error}", "write it with Program.save") from None
    except (zipfile.BadZipFile, UnicodeDecodeError, ValueError, OSError) as error:
        if isinstance(error, (RunError, FileNotFoundError)) or hasattr(error, "diagnostics"):
            raise
        raise _mistake(f"{name} is not a program: {error}", "write it with Program.save") from None
    if facts["version"] != _VERSION:
        message = f"{name} has version {facts['version']}, expected {_VERSION}"
        raise _mistake(message, "save the program again with this version of Heddle")
    if graph.view != "local":
        raise _mistake(f"{name} has a {graph.view} graph, expected a local one")
    program = Program(graph, cluster=facts["cluster"], constants=constants, hyper=facts["hyper"])
    program._loaded = (plan, facts["pipeline"])
    return program


def _facts(data: bytes) -> dict[str, Any]:
    facts = json.loads(data)
    for key, kind in _FACTS.items():
        if not isinstance(facts, dict) or not isinstance(facts.get(key), kind):
            raise ValueError(f"program.json has no {kind.__name__} `{key}`")
    return dict(facts)


def _constants(data: bytes) -> dict[str, Any]:
    import pickle

    import torch

    try:
        found = torch.load(io.BytesIO(data), weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(f"constants.pt: {str(error).splitlines()[0]}") from None
    if not isinstance(found, dict):
        raise ValueError("constants.pt has no tensors by name")
    return found


def _mistake(message: str, hint: str = "") -> RunError:
    return RunError("", [Diagnostic("program-file", message, hint=hint)])
