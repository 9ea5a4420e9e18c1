#!/usr/bin/env python3
"""An error about a job that does not fit contains correct advice: memory_advice.py HEDDLE

If the advice names flags, the job with these flags needs less memory."""
import re
import subprocess
import sys

# Parameters and moments need more memory than any test machine has.
LARGE = ["--model=llama3", "--flavor=405B", "--model.n_layers=40", "--training.seq_len=128"]
# Activations need too much memory.
LONG = ["--model=llama3", "--flavor=debugmodel", "--parallelism.data_parallel_shard_degree=4"]
MANY, ONE = (["--training.seq_len=1048576", f"--training.local_batch_size={count}"] for count in (64, 1))
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}


def refused(heddle, *flags):
    """Returns the minimum bytes that the job needs, and the advice."""
    run = subprocess.run([heddle, "train", *flags, "--training.steps=1"], capture_output=True, text=True)
    assert run.returncode == 3, (flags, run.returncode, run.stderr)
    found = re.search(r"needs at least ([0-9.]+) (\w+) here.* available; (.*) \[infeasible\]", run.stderr)
    assert found, run.stderr
    print(*flags, "\n ", found[3])
    return float(found[1]) * UNITS[found[2]], found[3]


def main(heddle):
    shard, replicate = (f"--parallelism.data_parallel_{kind}_degree" for kind in ("shard", "replicate"))
    # All ranks share this machine's memory, so more shards do not help.
    need, advice = refused(heddle, *LARGE, f"{shard}=8")
    assert "shard_degree" not in advice and "smaller model" in advice, advice
    more, _ = refused(heddle, *LARGE, f"{shard}=16")
    assert more > need * 0.95, (more, need)
    _, advice = refused(heddle, *LARGE)
    assert "shard_degree" not in advice, advice
    # Each replica has a copy; sharding over the same ranks needs less.
    copies, advice = refused(heddle, *LARGE, f"{shard}=4", f"{replicate}=2")
    flags = re.findall(r"--parallelism\.\w+=\d+", advice)
    assert flags == [f"{replicate}=1", f"{shard}=8"], advice
    need, _ = refused(heddle, *LARGE, *flags)
    assert need < copies * 0.6, (need, copies)
    # Activations: each suggestion reduces them, and none is in use already.
    need, advice = refused(heddle, *LONG, *MANY)
    assert "local_batch_size" in advice and "seq_len" in advice, advice
    for flag in re.findall(r"--[\w.]+=\w+", advice):
        less, then = refused(heddle, *LONG, *MANY, flag)
        assert less < need and flag not in then, (flag, less, need, then)
    _, advice = refused(heddle, *LONG, *ONE)
    assert "local_batch_size" not in advice, advice


if __name__ == "__main__":
    main(sys.argv[1])
