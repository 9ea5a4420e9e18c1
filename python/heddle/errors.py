"""The exceptions of Heddle. Each has `diagnostics`, a list of `Diagnostic`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "CaptureError",
    "Diagnostic",
    "Error",
    "InternalError",
    "PassError",
    "PlanError",
    "RunError",
]


@dataclass(frozen=True)
class Diagnostic:
    """One mistake: what is wrong, where, and what to do about it.

    >>> from heddle.errors import Diagnostic
    >>> print(Diagnostic("capture-loss", "the loss has 8 elements", "train.py", 12, 0,
    ...                  "return loss", "reduce it to one number"))
    the loss has 8 elements [capture-loss]
      train.py:12  return loss
      reduce it to one number
    """

    kind: str
    message: str
    file: str | None = None
    line: int = 0
    column: int = 0
    source: str = ""
    hint: str = ""

    def __str__(self) -> str:
        lines = [f"{self.message} [{self.kind}]"]
        if self.file is not None:
            place = f"{self.file}:{self.line}" if self.line else self.file
            lines.append(f"  {place}  {self.source}".rstrip())
        if self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines)


class Error(ValueError):
    """A mistake in what Heddle was given.

    >>> from heddle.errors import Diagnostic, Error
    >>> error = Error("", [Diagnostic("mesh", "the mesh has 8 ranks, the cluster 4")])
    >>> print(error)
    the mesh has 8 ranks, the cluster 4 [mesh]
    >>> error.diagnostics[0].kind
    'mesh'
    """

    diagnostics: list[Diagnostic]

    def __init__(self, message: str, diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__(message or "\n".join(map(str, diagnostics)))
        self.diagnostics = list(diagnostics)


class CaptureError(Error):
    """A model that cannot be captured, or an FX graph that cannot be read.

    >>> from heddle.errors import CaptureError, Error
    >>> issubclass(CaptureError, Error)
    True
    """


class PlanError(Error):
    """A plan with mistakes, or one that does not fit its graph.

    >>> from heddle.errors import Error, PlanError
    >>> issubclass(PlanError, Error)
    True
    """


class PassError(Error):
    """A pipeline that cannot be run, or a pass that fails.

    >>> from heddle.errors import Error, PassError
    >>> issubclass(PassError, Error)
    True
    """


class RunError(Error):
    """A step that cannot be run or simulated.

    >>> from heddle.errors import Error, RunError
    >>> issubclass(RunError, Error)
    True
    """


class InternalError(RuntimeError):
    """A mistake of Heddle itself. Please report it with the message.

    >>> from heddle.errors import InternalError
    >>> InternalError("the schedule lost a node").diagnostics
    []
    """

    diagnostics: list[Diagnostic]

    def __init__(self, message: str, diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__(message or "\n".join(map(str, diagnostics)))
        self.diagnostics = list(diagnostics)
