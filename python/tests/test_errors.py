"""Mistakes, internal errors, signals and forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import heddle
from heddle import _core


def test_classes() -> None:
    for name in ("CaptureError", "PlanError", "PassError", "RunError"):
        assert issubclass(getattr(heddle, name), heddle.Error)
    assert issubclass(heddle.Error, ValueError) and issubclass(heddle.InternalError, RuntimeError)
    assert not issubclass(heddle.InternalError, heddle.Error)


def test_an_internal_error_is_an_exception_and_the_next_call_works(step: heddle.Graph) -> None:
    with pytest.raises(heddle.InternalError, match="internal check failed.*for a test"):
        _core.fail_check("for a test")
    assert len(heddle.run_pipeline(step, "clean")) > 0


def test_a_signal_stops_a_long_call() -> None:
    """A graph of many layers: the solver and the passes would take seconds."""
    lines = ["heddle 1 global"]
    layers = 400
    inputs = ['%x0: f32[64,64] batch "x"']
    inputs += [f'%w{i}: f32[64,64] param {i} "l.{i}.w"' for i in range(layers)]
    lines.append(f"graph @step({', '.join(inputs)}) -> (loss %l) {{")
    lines += [f"  %x{i + 1} = aten.mm(%x{i}, %w{i}) @l.{i}" for i in range(layers)]
    lines += [f"  %l = aten.sum(%x{layers})", "}"]
    graph = heddle.Graph.parse("\n".join(lines))

    # Processes that a shell starts in the background ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    begin = time.monotonic()
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            while time.monotonic() - begin < 60:
                heddle.search(graph, devices=64, overlap=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begin < 20
    assert len(heddle.run_pipeline(graph, "clean")) == layers + 1


def test_import_is_quick_and_loads_no_torch() -> None:
    code = (
        "import sys, time; begin = time.process_time(); import heddle; "
        "assert 'torch' not in sys.modules; print(time.process_time() - begin)"
    )
    seconds = min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(3)
    )
    assert seconds < 0.2


def test_fork_after_import_is_safe(step: heddle.Graph) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if str(heddle.run_pipeline(step, "clean")) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
