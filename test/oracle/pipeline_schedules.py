#!/usr/bin/env python3
"""Compares pipeline schedules with PyTorch: pipeline_schedules.py HEDDLE

For many shapes, `HEDDLE schedule NAME --csv` must have the order of actions of
torch.distributed.pipelining, and refuse the shapes that PyTorch refuses. PyTorch must be able to
add communication to Heddle's CSV, and Heddle must read PyTorch's CSV, with and without
communication."""
import csv
import io
import subprocess
import sys
import tempfile

from torch.distributed.pipelining import schedules
from torch.distributed.pipelining._utils import generate_stage_to_rank_mapping

# The name in Heddle, the class in PyTorch, stages per rank, and the mapping of stages to ranks.
FAMILIES = [
    ("LoopedBFS", schedules.ScheduleLoopedBFS, (1, 2, 3), "loop"),
    ("Interleaved1F1B", schedules.ScheduleInterleaved1F1B, (1, 2, 3, 4), "loop"),
    ("InterleavedZeroBubble", schedules.ScheduleInterleavedZeroBubble, (1, 2, 3, 4), "loop"),
    ("ZB-H1", schedules.ScheduleInterleavedZeroBubble, (1,), "loop"),
    ("zbv", schedules.ScheduleZBVZeroBubble, (2,), "v"),
    ("DualPipeV", schedules.ScheduleDualPipeV, (2,), "v"),
]
RANKS = (1, 2, 3, 4, 6, 8)
MICRO_BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 16, 17, 24)


class Stage:
    """What the constructors of schedules read of a stage."""
    has_backward = True
    is_first = is_last = False
    submod = None

    def __init__(self, index, ranks, count):
        self.stage_index, self.num_stages, self.group_size = index, count, ranks
        self.group_rank = 0
        self.stage_index_to_group_rank = {}


def pytorch(cls, ranks, chunks, micro_batches, style):
    """The order of all ranks; None: refused."""
    count = ranks * chunks
    stages = [Stage(i * ranks, ranks, count) for i in range(chunks)]
    mapping = generate_stage_to_rank_mapping(ranks, count, style=style)
    for stage in stages:
        stage.stage_index_to_group_rank = mapping
    try:
        made = cls(stages, micro_batches, loss_fn=lambda output, target: output)
    except ValueError:
        return None
    return {rank: [a for a in made._calculate_single_rank_operations(rank) if a is not None] for rank in range(ranks)}


def text_of(order):
    out = io.StringIO()
    csv.writer(out).writerows(order[rank] for rank in sorted(order))
    return out.getvalue()


def heddle(program, *args):
    done = subprocess.run([program, "schedule", *args], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def check_communication(program, text, ranks, chunks, style):
    """PyTorch adds communication to Heddle's text, and Heddle reads the result."""
    order = {rank: [schedules._Action.from_str(cell) for cell in line.split(",")]
             for rank, line in enumerate(text.splitlines())}
    order = schedules._add_unshard_reshard_all(order) if hasattr(schedules, "_add_unshard_reshard_all") else {
        rank: schedules._add_unshard_reshard(actions) for rank, actions in order.items()}
    mapping = generate_stage_to_rank_mapping(ranks, ranks * chunks, style=style)
    lowered = schedules._add_send_recv(order, stage_to_rank=lambda stage: mapping[stage], num_stages=ranks * chunks)
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(text_of(lowered))
        file.flush()
        return heddle(program, file.name, "--csv") == text


def main():
    program = sys.argv[1]
    compared = refused = 0
    failures = []
    for name, cls, chunk_counts, style in FAMILIES:
        for ranks in RANKS:
            for chunks in chunk_counts:
                for micro_batches in MICRO_BATCHES:
                    shape = (name, f"--ranks={ranks}", f"--stages={ranks * chunks}",
                             f"--micro-batches={micro_batches}")
                    theirs = pytorch(cls, ranks, chunks, micro_batches, style)
                    ours = heddle(program, *shape, "--csv")
                    if theirs is None or ours is None:
                        refused += 1
                        if (theirs is None) != (ours is None):
                            failures.append(f"{shape}: PyTorch {'refuses' if theirs is None else 'accepts'} it")
                        continue
                    compared += 1
                    if ours.splitlines() != text_of(theirs).splitlines():
                        failures.append(f"{shape}:\n{ours}\n{text_of(theirs)}")
                    elif not check_communication(program, ours, ranks, chunks, style):
                        failures.append(f"{shape}: not read back with communication")
    print("\n".join(failures[:5]))
    print(f"{compared} schedules compared, {refused} shapes refused, {len(failures)} failures")
    sys.exit(bool(failures) or compared < 300)


main()
