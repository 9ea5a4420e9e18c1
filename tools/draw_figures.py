#!/usr/bin/env python3
"""Draws the figures of docs/figures that show simulated times: fsdp.svg, memory.svg, schedules.svg.

usage: draw_figures.py HEDDLE

Runs `heddle plan` and `heddle sim --timeline` for Llama 3 8B with sequences of 8192 tokens on
h100-8x. Takes about a minute. The other figures in that folder are drawn by hand.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

FIGURES = pathlib.Path(__file__).resolve().parent.parent / "docs/figures"
MODEL = ["--model=llama3", "--flavor=8B", "--training.seq_len=8192"]
DATA_PARALLEL = MODEL + ["--parallelism.data_parallel_shard_degree=64"]
TENSOR_PARALLEL = MODEL + ["--parallelism.data_parallel_shard_degree=8",
                           "--parallelism.tensor_parallel_degree=8"]
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1d2533; }
  .name { font-weight: 600; font-size: 14px; }
  .note { font-size: 12px; fill: #5b6b86; }
  .axis { stroke: #9aa5b8; fill: none; }
  .even { fill: #a9c4ee; } .odd { fill: #7fa6e0; }
  .gather { fill: #8fcf9f; } .reduce { fill: #f0b97a; } .unpack { fill: #5b6b86; }
  .idle { fill: #fff; stroke: #c8433a; stroke-dasharray: 3 2; }
  .line { fill: none; stroke-width: 1.6; }
  .none { stroke: #c8433a; } .selective { stroke: #2f6fc9; } .full { stroke: #2d8a46; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e3e8f2; }
    .note { fill: #9aa9c4; }
    .axis { stroke: #5b6b86; }
    .even { fill: #2f4f80; } .odd { fill: #3f68a8; }
    .gather { fill: #2f6d41; } .reduce { fill: #8a5a22; } .unpack { fill: #9aa5b8; }
    .idle { fill: #161b26; stroke: #e5736b; }
    .none { stroke: #e5736b; } .selective { stroke: #7fb0f5; } .full { stroke: #6cc585; }
  }
"""
ROW = re.compile(r"\s*([\d.]+)\s+([\d.]+)\s+(\S+)\s+%(\S+)\s*([\d,]+\d)?")
NODE = re.compile(r"^  (%\S+(?:, %\S+)*) = (.*)")
WIDTH, LEFT, RIGHT = 860, 92, 14


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Step:
    """A simulated step: rows of (begin ms, end ms, stream, node, bytes alive); a unit per node."""

    def __init__(self, heddle, flags, folder):
        graph = f"{folder}/local.hd"
        run(heddle, "plan", *flags, "-o", graph)
        self.rows = []
        self.exposed = set()
        for line in run(heddle, "sim", graph, "--timeline").splitlines():
            row = ROW.match(line)
            if row:
                begin, end, stream, node, alive = row.groups()
                alive = int(alive.replace(",", "")) if alive and stream == "compute" else None
                self.rows.append((float(begin) / 1e3, float(end) / 1e3, stream, node, alive))
                if " exposed: " in line:
                    self.exposed.add(node)
        self.units = {}
        self.waits = set()
        for line in pathlib.Path(graph).read_text().splitlines():
            node = NODE.match(line)
            if not node:
                continue
            names = [name.strip("%") for name in node[1].split(", ")]
            scope = re.search(r'unit="([\w.]+)"', line) or re.search(r"@(\S+)", node[2])
            unit = re.match(r"layers\.\d+|\w+", scope[1])[0] if scope else ""
            self.units.update((name, unit.replace("layers.", "layer ")) for name in names)
            if node[2].startswith("comm.wait"):
                self.waits.update(names)


def svg(height, label, parts):
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
                      f'role="img" aria-label="{label}">', f"<style>{STYLE}</style>", *parts,
                      "</svg>", ""])


def blocks(rows):
    """Joins adjacent rows with the same label; rows are (begin, end, label)."""
    joined = []
    for begin, end, label in rows:
        if joined and joined[-1][2] == label and begin - joined[-1][1] < 0.01:
            joined[-1] = (joined[-1][0], end, label)
        else:
            joined.append((begin, end, label))
    return joined


def panel(step, title, begin, end, y, lanes):
    scale = (WIDTH - LEFT - RIGHT) / (end - begin)

    def bars(rows, y, kind):
        for first, last, label in rows:
            first, last = max(first, begin), min(last, end)
            if last <= first:
                continue
            x, width = LEFT + (first - begin) * scale, (last - first) * scale
            number = int(label.split()[1]) if label.startswith("layer ") else 0
            name = kind or ("odd" if number % 2 else "even")
            yield (f'<rect class="{name}" x="{x:.1f}" y="{y}" width="{max(width, 0.8):.1f}" '
                   'height="22" rx="2"/>')
            if 7 * len(label) > width - 4:
                label = label.split(" ")[-1]
            if label and 7 * len(label) < width - 4:
                yield f'<text x="{x + 4:.1f}" y="{y + 16}">{label}</text>'

    parts = [f'<text class="name" x="10" y="{y}">{title}</text>']
    compute = [(b, e, n) for b, e, stream, n, _ in step.rows if stream == "compute"]
    busy = [(b, e, step.units.get(n, "")) for b, e, n in compute if n not in step.waits]
    idle = [(b, e, "") for b, e, n in compute if n in step.exposed]
    unpack = [(b, e, "") for b, e, n in compute if n in step.waits - step.exposed]
    y += 10
    parts.append(f'<text class="note" x="10" y="{y + 16}">compute</text>')
    parts += [*bars(blocks(busy), y, None), *bars(idle, y, "idle"), *bars(unpack, y, "unpack")]
    for text, stream, kind in lanes:
        y += 27
        rows = [(b, e, step.units.get(n, "")) for b, e, s, n, _ in step.rows if s == stream]
        parts += [f'<text class="note" x="10" y="{y + 16}">{text}</text>', *bars(rows, y, kind)]
    y += 30
    parts.append(f'<path class="axis" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
    for ms in range(int(begin), int(end) + 1, 5):
        if begin <= ms <= end:
            x = LEFT + (ms - begin) * scale
            parts.append(f'<path class="axis" d="M{x:.1f} {y}v4"/><text class="note" x="{x:.1f}" '
                         f'y="{y + 17}" text-anchor="middle">{ms}{" ms" if ms == begin else ""}'
                         "</text>")
    return parts, y + 46


def fsdp_figure(heddle, folder):
    none = Step(heddle, DATA_PARALLEL + ["--compile.pipeline=none"], folder)
    fsdp = Step(heddle, DATA_PARALLEL + ["--compile.pipeline=fsdp"], folder)
    gathers = ("gathers", "dp:1", "gather")
    parts, y = panel(none, "none, forward: each weight is gathered where it is used", 0, 30, 20,
                     [("gathers", "dp", "gather")])
    more, y = panel(fsdp, "fsdp, forward: one launch per unit, one unit ahead", 0, 30, y, [gathers])
    parts += more
    more, y = panel(fsdp, "fsdp, backward: gathers and reductions overlap compute", 335, 365, y,
                    [gathers, ("reductions", "dp:2", "reduce")])
    parts += more
    x = LEFT
    for kind, text, width in (("odd", "compute of one layer", 160), ("gather", "all-gather", 105),
                              ("reduce", "reduce-scatter", 130), ("unpack", "unpacking", 105),
                              ("idle", "exposed: compute is idle", 170)):
        parts.append(f'<rect class="{kind}" x="{x}" y="{y - 14}" width="16" height="12"/>'
                     f'<text class="note" x="{x + 22}" y="{y - 4}">{text}</text>')
        x += width
    return svg(y + 8, "Timelines of a step without and with the pipeline fsdp", parts)


def memory_figure(heddle, folder):
    height, top, bottom, end, most = 330, 20, 286, 275, 12
    width = WIDTH - LEFT - RIGHT

    def x_of(ms):
        return LEFT - 40 + ms / end * (width + 40)

    def y_of(gib):
        return bottom - gib / most * (bottom - top)

    parts = []
    for gib in range(0, most + 1, 2):
        parts.append(f'<path class="axis" d="M{x_of(0):.0f} {y_of(gib):.1f}H{WIDTH - RIGHT}" '
                     f'opacity="{0.35 if gib else 1}"/><text class="note" x="{x_of(0) - 8:.0f}" '
                     f'y="{y_of(gib) + 4:.1f}" text-anchor="end">{gib}{" GiB" if not gib else ""}'
                     "</text>")
    for ms in range(0, end, 50):
        parts.append(f'<text class="note" x="{x_of(ms):.0f}" y="{bottom + 18}" '
                     f'text-anchor="middle">{ms}{" ms" if ms == 0 else ""}</text>')
    for n, mode in enumerate(("none", "selective", "full")):
        step = Step(heddle, TENSOR_PARALLEL + [f"--activation_checkpoint.mode={mode}"], folder)
        columns = {}
        for begin, _, _, _, alive in step.rows:
            if alive is not None:
                column = round(x_of(begin))
                columns[column] = max(columns.get(column, 0), alive / 2**30)
        points = " ".join(f"{x},{y_of(gib):.1f}" for x, gib in sorted(columns.items()))
        peak = max(alive for *_, alive in step.rows if alive) / 2**30
        parts.append(f'<polyline class="line {mode}" points="{points}"/>')
        y = top + 14 + 20 * n
        parts.append(f'<path class="line {mode}" d="M560 {y - 4}h26"/>'
                     f'<text x="594" y="{y}">{mode}: '
                     f"peak {peak:.2f} GiB, step {step.rows[-1][1]:.0f} ms</text>")
    return svg(height, "Memory of a rank over time, for three checkpointing modes", parts)


def main():
    with tempfile.TemporaryDirectory() as folder:
        (FIGURES / "fsdp.svg").write_text(fsdp_figure(sys.argv[1], folder))
        (FIGURES / "memory.svg").write_text(memory_figure(sys.argv[1], folder))
    run(sys.argv[1], "schedule", "--ranks=4", "--micro-batches=8", f"--svg={FIGURES}/schedules.svg")


if __name__ == "__main__":
    main()
