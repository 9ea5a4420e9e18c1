#!/usr/bin/env python3
"""Predictions against measured steps: writes docs/accuracy.md.

    bench/accuracy.py [build/heddle] [--write] [--fit] [--check]

Runs `heddle sim` for every row of accuracy_rows.py. `--fit` prints the constants of FITTED that
minimize the squared errors; the cluster files contain them. For the leave-one-out error of a row,
the constants are fitted to all other rows. Steps are linear in the constants near the fit, so one
run per constant and row is enough. `--check` fails if an error exceeds the row's goal.
"""
import argparse
import concurrent.futures
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
from accuracy_rows import rows  # noqa: E402

DATA = os.path.join(ROOT, "heddle", "price", "cost", "data")
PAGE = os.path.join(ROOT, "docs", "accuracy.md")
FLASH = tuple(f"device/kernels/aten._scaled_dot_product_flash_attention{suffix}/efficiency" for suffix in ("", "_backward"))
# Constants that are fitted to the rows: a cluster, and the paths in its file that change by the same
# factor.
FITTED = [("h100-500w-8x", ("device/sustained",)), ("h100-8x", ("device/sustained",)), ("a100-8x", ("device/sustained",)),
          ("h100-8x", FLASH), ("a100-8x", FLASH)]
# The logarithm of the factor that shows how steps depend on a constant.
STEP = -0.03
GIB = 2.0**30


def place(cluster, path):
    *folders, name = path.split("/")
    for folder in folders:
        cluster = cluster[folder]
    return cluster, name


class Clusters:
    """Cluster files with some constants changed, in a folder of their own."""

    def __init__(self, folder, changes=()):
        self.files = {}
        for name, different in {(row.cluster, row.changes) for row in rows()}:
            with open(os.path.join(DATA, name + ".json")) as file:
                cluster = json.load(file)
            for path, value in different:
                at, key = place(cluster, path)
                at[key] = value
            for (changed, paths), change in changes:
                for path in paths if name == changed else ():
                    at, key = place(cluster, path)
                    at[key] *= math.exp(change)
            self.files[name, different] = os.path.join(folder, f"{name}-{len(self.files)}.json")
            with open(self.files[name, different], "w") as file:
                json.dump(cluster, file)


def simulate(heddle, row, clusters, *flags):
    done = subprocess.run([heddle, "sim", *row.arguments, *flags, "--against=fsdp", f"--cluster={clusters.files[row.cluster, row.changes]}",
                           f"--runtime.execution={row.execution}", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{row.name}: {done.stderr}")
    step = json.loads(done.stdout)
    if row.batches == 1 or flags:
        return step
    # The other micro-batches leave the optimizer out.
    other = simulate(heddle, row, clusters, "--without-optimizer")
    whole = step["step_ms"] + other["step_ms"] * (row.batches - 1)
    step["tokens_per_second"] *= step["step_ms"] * row.batches / whole
    step["step_ms"] = whole
    return step


def predict(heddle, chosen, clusters):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda row: simulate(heddle, row, clusters), chosen))


def milliseconds(row, result):
    """The measured and the predicted time of a step."""
    predicted = result["step_ms"]
    if row.ms:
        return row.ms, predicted
    return predicted * result["tokens_per_second"] / result["ranks"] / row.tokens, predicted


def solve(matrix, right):
    """Gaussian elimination of a small system; unknowns without any equation stay 0."""
    size = len(right)
    rows_ = [line[:] + [value] for line, value in zip(matrix, right)]
    out = [0.0] * size
    order = []
    for column in range(size):
        best = max((i for i in range(size) if i not in order), key=lambda i: abs(rows_[i][column]))
        if abs(rows_[best][column]) < 1e-12:
            order.append(best)
            continue
        order.append(best)
        for i in range(size):
            if i != best:
                times = rows_[i][column] / rows_[best][column]
                rows_[i] = [a - times * b for a, b in zip(rows_[i], rows_[best])]
    for column, line in enumerate(order):
        if abs(rows_[line][column]) >= 1e-12:
            out[column] = rows_[line][size] / rows_[line][column]
    return out


def fit(errors, slopes, used):
    """Changes of the constants that minimize the squared errors, which are logarithms."""
    size = len(FITTED)
    matrix = [[sum(slopes[r][a] * slopes[r][b] for r in used) for b in range(size)] for a in range(size)]
    right = [-sum(slopes[r][a] * errors[r] for r in used) for a in range(size)]
    return solve(matrix, right)


def percent(ratio):
    return f"{(ratio - 1) * 100:+.1f} %"


class Comparison:
    def __init__(self, heddle):
        self.rows = rows()
        with tempfile.TemporaryDirectory() as folder:
            self.results = predict(heddle, self.rows, Clusters(folder))
            self.pairs = [milliseconds(row, result) for row, result in zip(self.rows, self.results)]
            self.errors = [math.log(predicted / measured) for measured, predicted in self.pairs]
            self.slopes = [[0.0] * len(FITTED) for _ in self.rows]
            for k, (cluster, _) in enumerate(FITTED):
                touched = [i for i, row in enumerate(self.rows) if row.cluster == cluster]
                changed = predict(heddle, [self.rows[i] for i in touched], Clusters(folder, [(FITTED[k], STEP)]))
                for i, result in zip(touched, changed):
                    measured, predicted = milliseconds(self.rows[i], result)
                    self.slopes[i][k] = (math.log(predicted / measured) - self.errors[i]) / STEP

    def left_out(self, i):
        """The ratio of prediction and measurement with constants fitted to all other rows."""
        if not any(self.slopes[i]):
            return None
        changes = fit(self.errors, self.slopes, [r for r in range(len(self.rows)) if r != i])
        return math.exp(self.errors[i] + sum(slope * change for slope, change in zip(self.slopes[i], changes)))

    def fitted(self):
        changes = fit(self.errors, self.slopes, range(len(self.rows)))
        for (cluster, paths), change in zip(FITTED, changes):
            for path in paths:
                with open(os.path.join(DATA, cluster + ".json")) as file:
                    at, key = place(json.load(file), path)
                yield cluster, path, at[key], at[key] * math.exp(change)

    def straggler(self):
        """How much `straggler` is too small, from rows that differ in the number of nodes alone."""
        series = {}
        for row, result, error in zip(self.rows, self.results, self.errors):
            name = re.sub(r"\d+ (H100|A100)", r"\1", row.name)
            series.setdefault((name, row.group, row.batches), []).append((math.log2(result["cluster_nodes"]), -error))
        above = below = 0.0
        for points in series.values():
            x, y = (statistics.mean(values) for values in zip(*points))
            above += sum((a - x) * (b - y) for a, b in points)
            below += sum((a - x) ** 2 for a, b in points)
        return above / below

    def ranges(self):
        """By cluster and execution: the largest residuals, at least 3 % to each side."""
        out = {}
        for row, error, i in zip(self.rows, self.errors, range(len(self.rows))):
            ratio = self.left_out(i) or math.exp(error)
            below, above = out.get((row.cluster, row.execution), (0.03, 0.03))
            out[row.cluster, row.execution] = max(below, 1 - 1 / ratio), max(above, 1 / ratio - 1)
        return out

    def table(self):
        order = sorted(range(len(self.rows)), key=lambda i: abs(self.errors[i]))
        lines = ["| row | cluster | execution | measured | predicted | error | left out | peak GiB, measured / predicted |",
                 "|---|---|---|--:|--:|--:|--:|--:|"]
        for i in order:
            row, result, (measured, predicted) = self.rows[i], self.results[i], self.pairs[i]
            left = self.left_out(i)
            peak = ""
            if row.peak:
                # On one device, only the memory of tensors was measured.
                bytes_ = result["value_peak_bytes" if row.ms and row.execution != "heddle" else "peak_bytes"] / GIB
                peak = f"{row.peak} / {bytes_:.1f} ({percent(bytes_ / row.peak)})"
            rate = lambda time: f"{row.tokens * measured / time:,.0f}/s" if row.tokens else f"{time:.1f} ms"
            lines.append(f"| {row.name} | {row.cluster} | {row.execution} | {rate(measured)} | {rate(predicted)} | "
                         f"{percent(predicted / measured)} | {percent(left) if left else ''} | {peak} |")
        return "\n".join(lines)

    def groups(self):
        lines = ["| rows | number | median error | largest | median, left out | source |", "|---|--:|--:|--:|--:|---|"]
        names = list(dict.fromkeys(row.group for row in self.rows))
        for name in names:
            chosen = [i for i, row in enumerate(self.rows) if row.group == name]
            errors = [abs(math.exp(self.errors[i]) - 1) * 100 for i in chosen]
            left = [abs(ratio - 1) * 100 for ratio in map(self.left_out, chosen) if ratio]
            sources = "; ".join(dict.fromkeys(self.rows[i].source for i in chosen))
            lines.append(f"| {name} | {len(chosen)} | {statistics.median(errors):.1f} % | {max(errors):.1f} % | "
                         f"{f'{statistics.median(left):.1f} %' if left else ''} | {sources} |")
        return "\n".join(lines)

    def broken(self):
        for row, error in zip(self.rows, self.errors):
            if abs(math.exp(error) - 1) * 100 > row.goal:
                yield f"{row.name}: {percent(math.exp(error))}, the goal is {row.goal} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("heddle", nargs="?", default=os.path.join(ROOT, "build", "heddle"))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    compared = Comparison(os.path.abspath(arguments.heddle))
    text = f"## By source\n\n{compared.groups()}\n\n## All rows\n\n{compared.table()}\n"
    if arguments.write:
        with open(PAGE) as file:
            page = file.read()
        with open(PAGE, "w") as file:
            file.write(page[:page.index("## By source")] + text)
    else:
        print(text)
    if arguments.fit:
        for clusters, path, before, after in compared.fitted():
            print(f"{clusters}: {path} {before:.4f} -> {after:.4f}")
        print(f"straggler {compared.straggler():+.4f}")
        for (cluster, execution), (below, above) in sorted(compared.ranges().items()):
            print(f"{cluster} {execution}: range below {below:.3f}, above {above:.3f}")
    broken = list(compared.broken())
    for line in broken:
        print(line)
    return 1 if arguments.check and broken else 0


if __name__ == "__main__":
    sys.exit(main())
