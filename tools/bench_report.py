#!/usr/bin/env python3
"""Prints build/bench.json as a table: milliseconds, multiples of the reference in the same run,
and goals.

Goals are for one core of a current server in a release build. They are shown, not enforced,
because times depend on the machine."""
import json
import sys

# Goals in milliseconds for 36,000 nodes. Ten times the nodes may take twelve times as long.
GOALS = {"parse": 60, "print": 30, "verify": 15, "hash": 5, "uses": 1, "dce_cse_canonicalize": 40, "liveness_memory": 20,
         "replay": 10.8, "pipeline_fsdp": 300}
# Goals in milliseconds for a proven answer.
SOLVE_GOALS = {"solve/32_layers_32x8": 50, "solve/16_layers_2x4x8": 200, "solve/32_layers_32x8_budget": 2000,
               "solve/cut_of_ops": 100}
# Goals: milliseconds for a printed graph of 10,000 statements, and megabytes per second for any
# file.
IMPORT_GOALS = {"import_repro/10000": 80}
IMPORT_RATE_GOAL = 200


def main():
    data = json.load(open(sys.argv[1]))["benchmarks"]
    times = {b["name"]: b["cpu_time"] for b in data if b.get("run_type", "iteration") == "iteration"}
    shape = next(b for b in data if b["name"] == "copy_text/36000")
    print(f"{shape['nodes']:.0f} nodes, {shape['collectives']:.0f} collectives, {shape['text_mb']:.1f} MB of text")
    print(f"{'':24}{'36,000 nodes':>16}{'goal':>9}{'x copy':>9}{'360,000 nodes':>17}{'ratio':>8}{'goal':>9}")
    missed = 0
    for name in dict.fromkeys(n.split("/")[0] for n in times):
        small, large = times.get(f"{name}/36000"), times.get(f"{name}/360000")
        if small is None or large is None:
            continue
        goal = GOALS.get(name)
        reference = small / times["copy_text/36000"]
        mark = ""
        if goal and (small > goal or large > 12 * goal):
            mark, missed = "  over the goal", missed + 1
        goals = (f"{goal} ms", f"{12 * goal} ms") if goal else ("", "")
        print(f"{name:24}{small:13.2f} ms{goals[0]:>9}{reference:9.1f}{large:14.2f} ms{large / small:8.1f}{goals[1]:>9}{mark}")
    print(f"\n{'solver':32}{'time':>11}{'goal':>11}{'variables':>11}{'choices':>9}{'entries':>10}")
    for b in data:
        if not b["name"].startswith("solve/"):
            continue
        goal = SOLVE_GOALS["/".join(b["name"].split("/")[:2])]
        mark = ""
        if b["cpu_time"] > goal:
            mark, missed = "  over the goal", missed + 1
        sizes = "".join(f"{b[k]:{w}.0f}" if k in b else " " * w for k, w in (("variables", 11), ("choices", 9), ("entries", 10)))
        print(f"{b['name']:32}{b['cpu_time']:8.2f} ms{goal:8} ms{sizes}{mark}")
    print(f"\n{'import':32}{'time':>11}{'goal':>11}{'MB/s':>11}{'goal':>9}")
    for b in data:
        if not b["name"].startswith(("import_", "read_own_text")):
            continue
        goal, rate = IMPORT_GOALS.get(b["name"]), b["bytes_per_second"] / 1e6
        rate_goal = IMPORT_RATE_GOAL if b["name"].startswith("import_") else None
        mark = ""
        if (goal and b["cpu_time"] > goal) or (rate_goal and rate < rate_goal):
            mark, missed = "  misses the goal", missed + 1
        print(f"{b['name']:32}{b['cpu_time']:8.2f} ms{f'{goal} ms' if goal else '':>11}{rate:11.0f}{rate_goal or '':>9}{mark}")
    print(f"{missed} miss their goals")


if __name__ == "__main__":
    main()
