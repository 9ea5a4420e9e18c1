"""The ranks of `heddle.verify(..., processes=True)`: python -m heddle._fx_rank FOLDER.

This process imports what all ranks need, and forks into them.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any


def _rank(folder: str, rank: int, job: Any) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    import heddle

    ranks = len(job["inputs"])
    torch.set_num_threads(job["threads"])
    torch.use_deterministic_algorithms(job["deterministic"], warn_only=True)
    torch.backends.mkldnn.set_flags(job["one_dnn"])
    store = dist.FileStore(str(Path(folder, "store")), ranks)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    program = heddle.Program(heddle.Graph.parse(job["graph"]), cluster=job["cluster"])
    sizes = program.graph.mesh
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    with torch.no_grad():
        outputs = program.to_fx(mesh)(*job["inputs"][rank])
    torch.save([value.clone() for value in outputs], Path(folder, f"rank-{rank}"))
    dist.barrier()
    dist.destroy_process_group()


def _fork(folder: str, rank: int, job: Any) -> int:
    """The process of a rank, whose messages go to a file."""
    process = os.fork()
    if process != 0:
        return process
    code = 1
    try:
        with Path(folder, f"error-{rank}").open("w") as file:
            os.dup2(file.fileno(), sys.stderr.fileno())
        _rank(folder, rank, job)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main(folder: str) -> None:
    import torch

    import heddle._groups
    import heddle._to_fx

    from ._torch_names import FakeTensorMode

    # The first op of a fake tensor imports most of torch, here for all ranks.
    with FakeTensorMode():
        torch.ones(1) + 1
    job = torch.load(Path(folder, "job"))
    processes = [_fork(folder, rank, job) for rank in range(len(job["inputs"]))]
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    Path(folder, "codes").write_text(json.dumps(codes))


if __name__ == "__main__":
    main(sys.argv[1])
