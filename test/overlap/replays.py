#!/usr/bin/env python3
"""Replays schedules of `heddle overlap` for a small graph with code that is not Heddle's:
replays.py HEDDLE

The graph is a chain of products with gathered weights and reduced gradients. The script writes
the graph and its file of costs."""
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
LAYERS = 6
ROWS, DIM, RANKS = 4096, 1024, 8
PIECE = DIM * DIM // RANKS * 2
WHOLE = DIM * DIM * 2
TABLE = {"all_gather": [[1, 0.24], [2, 0.41], [4, 0.72], [8, 1.33]],
         "reduce_scatter": [[1, 0.09], [2, 0.12], [4, 0.16], [8, 0.24]]}


class Step:
    def __init__(self):
        self.text, self.nodes = [], []

    def add(self, name, op, args, rest, kind, ms=0.0, **more):
        operands = ", ".join(f"%{a}" for a in args)
        self.text.append(f"  %{name} = {op}({operands}{rest[0]}) : {rest[1]}")
        self.nodes.append({"name": name, "source_name": name, "op": op, "args": args, "kind": kind, "ms0": ms, **more})

    def collective(self, kind, name, arg, result, why):
        given, gives = (PIECE, WHOLE) if kind == "all_gather" else (WHOLE, PIECE)
        self.add(f"{name}_start", f"comm.{kind}", [arg], (f", over=[g0], why={why}", f"async {result}"), "start",
                 next(ms for mib, ms in TABLE[kind] if mib * 2**20 >= given),
                 collective=kind, group="0", group_size=RANKS, in_bytes=given, out_bytes=gives)
        self.add(name, "comm.wait", [f"{name}_start"], ("", result), "wait")


def make(folder):
    step = Step()
    whole, rows, piece = (f"bf16[{a},{b}]" for a, b in ((DIM, DIM), (ROWS, DIM), (DIM // RANKS, DIM)))
    inputs = ["x"] + [f"w{i}" for i in range(LAYERS)]
    for name in inputs:
        step.nodes.append({"name": name, "source_name": name, "op": "placeholder", "args": [], "kind": "placeholder", "ms0": 0.0})
    step.text.append(" fwd:")
    for i in range(LAYERS):
        step.collective("all_gather", f"full{i}", f"w{i}", whole, "unshard")
        step.add(f"y{i}", "aten.mm", [f"y{i - 1}" if i else "x", f"full{i}"], ("", rows), "compute", 0.08 + 0.01 * i)
    step.text.append(" bwd:")
    for i in reversed(range(LAYERS)):
        step.add(f"t{i}", "aten.t", [f"y{i - 1}" if i else "x"], ("", f"bf16[{DIM},{ROWS}]"), "view")
        step.add(f"d{i}", "aten.mm", [f"t{i}", f"y{i}"], ("", whole), "compute", 0.07)
        step.collective("reduce_scatter", f"grad{i}", f"d{i}", piece, "grad")
    outputs = [f"grad {i} %grad{i}" for i in range(LAYERS)]
    step.nodes.append({"name": "output", "op": "output", "args": [f"grad{i}" for i in range(LAYERS)], "kind": "output", "ms0": 0.0})
    params = [f'%w{i}: {piece} param {i} "w{i}" of bf16[{DIM}{{g0}},{DIM}]' for i in range(LAYERS)]
    graph = f"heddle 1 local\nmesh [g0={RANKS}]\ngraph @step(%x: {rows} batch \"x\", {', '.join(params)}) -> (metric %y{LAYERS - 1}, {', '.join(outputs)}) {{\n"
    (folder / "step.hd").write_text(graph + "\n".join(step.text) + "\n}\n")
    curves = [{"collective": kind, "group": "0", "group_size": RANKS, "table_mib_ms": rows} for kind, rows in TABLE.items()]
    costs = {"variant": "small", "launch_us": 1.0, "dram_gbps": 3352.0, "nodes": step.nodes, "curves": curves}
    (folder / "costs.json").write_text(json.dumps(costs))


def replay(folder, *more):
    return subprocess.run([sys.executable, HERE / "replay_schedule.py", folder / "costs.json", folder / "schedule.json", *more],
                          capture_output=True, text=True)


def main(heddle):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make(folder)
        for flags in (["--buckets=none"], ["--buckets=auto"], ["--buckets=8MiB"], ["--reorder-compute"], ["--strict"],
                      ["--memory=+32MiB", "--effort=best"]):
            run = subprocess.run([heddle, "overlap", folder / "step.hd", f"--costs={folder / 'costs.json'}", "--json",
                                  f"--schedule={folder / 'schedule.json'}", *flags], capture_output=True, text=True)
            assert run.returncode == 0, (flags, run.stderr)
            figures = json.loads(run.stdout)
            assert figures["after"]["makespan_ms"] <= figures["before"]["makespan_ms"], flags
            (folder / "figures.json").write_text(run.stdout)
            answer = replay(folder, f"--figures={folder / 'figures.json'}")
            assert answer.returncode == 0, (flags, answer.stdout, answer.stderr)
            print(*flags, answer.stdout.strip())
        # A missing curve is an error, unless no collectives are merged.
        costs = json.loads((folder / "costs.json").read_text())
        costs["curves"].pop()
        (folder / "fewer.json").write_text(json.dumps(costs))
        for flags, code in (([], 1), (["--buckets=none"], 0), (["--strict"], 0)):
            run = subprocess.run([heddle, "overlap", folder / "step.hd", f"--costs={folder / 'fewer.json'}", *flags], capture_output=True, text=True)
            assert run.returncode == code, (flags, run.stderr)
            assert code == 0 or "`curves` has no curve for reduce_scatter over g0" in run.stderr, run.stderr
        # The replay rejects invalid schedules.
        schedule = json.loads((folder / "schedule.json").read_text())
        order = schedule["order"]
        for broken in (list(reversed(order)), order[:-1], order + order[-1:]):
            (folder / "schedule.json").write_text(json.dumps({**schedule, "order": broken}))
            assert replay(folder, f"--figures={folder / 'figures.json'}").returncode != 0, "a broken order was replayed"


if __name__ == "__main__":
    main(sys.argv[1])
