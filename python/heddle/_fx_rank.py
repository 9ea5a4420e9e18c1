"""One rank of `heddle.verify(..., processes=True)`: python -m heddle._fx_rank FOLDER RANK."""

from __future__ import annotations

import sys
from pathlib import Path


def main(folder: str, rank: int) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    import heddle

    job = torch.load(Path(folder, "job"))
    ranks = len(job["inputs"])
    torch.set_num_threads(job["threads"])
    torch.use_deterministic_algorithms(job["deterministic"], warn_only=True)
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


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
