"""Runs a function on ranks that are processes, over Gloo."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any


def _rank(rank: int, world: int, folder: str, function: Callable[..., Any], args: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder, "store")), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    try:
        result = (True, function(rank, *args))
    except Exception:
        result = (False, traceback.format_exc())
    Path(folder, f"rank-{rank}").write_bytes(pickle.dumps(result))
    if not result[0]:
        raise SystemExit(1)
    dist.barrier()
    dist.destroy_process_group()


@cache
def server() -> Any:
    """Starts processes that are forked from one that has imported torch."""
    import multiprocessing
    from multiprocessing.forkserver import ensure_running

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rank_imports"])
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), before])
    try:
        ensure_running()
    finally:
        os.environ["PYTHONPATH"] = before
    return context


def run_ranks(world: int, folder: Path, function: Callable[..., Any], *args: Any) -> list[Any]:
    """What `function(rank, *args)` returns on each rank. It must be importable."""
    import torch.multiprocessing as mp

    server()
    folder.mkdir(parents=True, exist_ok=True)
    arguments = (world, str(folder), function, args)
    try:
        mp.start_processes(_rank, arguments, nprocs=world, start_method="forkserver")
    except Exception as error:
        reports = [path.read_bytes() for path in sorted(folder.glob("rank-*"))]
        failed = [text for ok, text in map(pickle.loads, reports) if not ok]
        raise AssertionError("\n".join(failed) or str(error)) from None
    return [pickle.loads(Path(folder, f"rank-{rank}").read_bytes())[1] for rank in range(world)]
