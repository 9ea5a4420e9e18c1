#!/usr/bin/env python3
"""Training with the pipeline `overlap` has the bits of eager training; in chunks, those of
`fsdp`: bits.py HEDDLE"""
import subprocess
import sys

MODEL = ["--model=llama3", "--flavor=debugmodel", "--model.n_layers=2", "--precision=f32", "--training.seq_len=32",
         "--training.local_batch_size=2", "--training.steps=2"]
MESHES = [["--parallelism.data_parallel_shard_degree=4"],
          ["--parallelism.data_parallel_shard_degree=2", "--parallelism.tensor_parallel_degree=2"]]
CHUNKS = ("clean, reshard-after-forward, dce, bucket-by-unit, separate-communicators, prefetch, "
          "async-tensor-parallel{chunks=2}, overlap{cap=none,reorder_compute=true}")


def verify(heddle, *flags):
    run = subprocess.run([heddle, "verify", *MODEL, *flags], capture_output=True, text=True)
    print(run.stdout)
    assert run.returncode == 0, (flags, run.stdout, run.stderr)


def main(heddle):
    for mesh in MESHES:
        verify(heddle, *mesh, "--compile.pipeline=overlap")
    verify(heddle, *MESHES[1], f"--compile.passes={CHUNKS}", "--against=fsdp")


if __name__ == "__main__":
    main(sys.argv[1])
