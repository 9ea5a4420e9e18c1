#!/usr/bin/env python3
"""Replays the output of `heddle overlap --schedule` with the file of costs, without any code of
Heddle.

usage: replay_schedule.py COSTS.json[.gz] SCHEDULE.json [--figures=FILE]

COSTS is a study of PyTorch's overlap scheduler (docs/overlap.md). Prints makespan, exposed time
and, if the file has allocations of nodes, the peak. With --figures, the output of `heddle
overlap --json`, fails if `after` differs."""
import gzip
import json
import sys

LAUNCH_MS = 0.001


def load(path):
    data = open(path, "rb").read()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def table_ms(row, given):
    """Returns the time of a size. Whole MiB in the table have their time; between them, and
    beyond the last two, the time is linear."""
    columns = sorted((int(mib), ms) for mib, ms in row)
    times = dict(columns)
    mib = given / 2**20
    if mib < columns[0][0]:
        return columns[0][1]
    if int(mib) in times:
        return times[int(mib)]
    above = next((i for i, (size, _) in enumerate(columns) if size > mib), len(columns) - 1)
    (x0, y0), (x1, y1) = columns[above - 1], columns[above]
    return y0 + (y1 - y0) * (mib - x0) / (x1 - x0)


def formula_ms(kind, given, ranks, ampere):
    """PyTorch's ring model, on nodes of eight."""
    message = given + (given * ranks if kind == "all_gather" else given // ranks)
    nodes = -(-ranks // 8)
    near_rate, far_rate, small_rate, middle_rate = (240, 25, 87.7, 160) if ampere else (370, 50, 141, 587.2)
    rate = near_rate
    if nodes > 1:
        rate = far_rate * (0.77 + 0.23 * min(1, (nodes - 1) / 7))
    if nodes > 2:
        rate *= (max(message, 5e7) / 5e7) ** 0.17
    ways = [(6.6, max(0.6, nodes > 1), 2.7, min({1: small_rate, 2: 39.0}.get(nodes, 20.4), rate / 2)),
            (8.4, 3.4, 14.0, rate)]
    if nodes == 1:
        ways.append((14.0, 1.9, 4.0, min(rate * 120 / 128, middle_rate)))
    micros = min(base + (ranks - nodes) * near + (nodes - 1) * far + message * (ranks - 1) / (1000 * way * ranks)
                 for base, near, far, way in ways)
    return micros / 1000


class Replay:
    def __init__(self, data, schedule):
        self.data = data
        self.nodes = {n["name"]: n for n in data["nodes"]}
        self.by_source = {n["source_name"]: n["name"] for n in data["nodes"] if n.get("source_name")}
        self.rate = data.get("dram_gbps", 3352.0) * 1e6  # bytes in a millisecond
        self.buckets = {}
        left_out = set()
        wait_of = {n["args"][0]: n["name"] for n in data["nodes"] if n["kind"] == "wait"}
        for members in schedule["buckets"]:
            names = [self.by_source[m] for m in members]
            waits = [wait_of[n] for n in names]
            self.buckets[names[0]] = (names, waits)
            left_out.update(names[1:])
        listed = [self.by_source[name] for name in schedule["order"]]
        listed_set = set(listed)
        self.bucket_wait = {}
        for first, (names, waits) in self.buckets.items():
            shown = [w for w in waits if w in listed_set]
            if len(shown) != 1:
                raise SystemExit(f"bucket of {first}: {len(shown)} of its waits are listed, expected 1")
            self.bucket_wait[shown[0]] = first
            left_out.update(w for w in waits if w != shown[0])
        if len(listed_set) != len(listed):
            raise SystemExit("a node is listed twice")
        self.stand_for = {w: shown for shown, first in self.bucket_wait.items() for w in self.buckets[first][1]}
        self.order = self.complete(listed, left_out)

    def complete(self, listed, left_out):
        """Restores the whole order. Inputs come first. Nodes without a name come right before
        their first consumer, or after the node whose item they are."""
        order, done = [], set()
        unlisted = [n for n in self.nodes if n not in set(listed) and n not in left_out]
        lazy = set(unlisted)

        def emit(name):
            for arg in self.nodes[name]["args"]:
                arg = self.stand_for.get(arg, arg)
                if arg in done:
                    continue
                if arg not in lazy:
                    raise SystemExit(f"{name} stands before {arg}, which it reads")
                emit(arg)
            done.add(name)
            order.append(name)

        for name in unlisted:
            if self.nodes[name]["kind"] == "placeholder":
                emit(name)
        for name in listed:
            first = name
            for member in self.buckets.get(first, ([], []))[0][1:]:
                for arg in self.nodes[member]["args"]:
                    if arg not in done:
                        raise SystemExit(f"the bucket of {first} starts before {arg} is there")
            emit(name)
        for name in unlisted:
            if name not in done:
                emit(name)
        missing = set(self.nodes) - done - left_out
        if missing:
            raise SystemExit(f"{len(missing)} nodes are lost, the first is {sorted(missing)[0]}")
        return order

    def collective_ms(self, first):
        names = self.buckets[first][0]
        node = self.nodes[first]
        given = sum(self.nodes[n]["in_bytes"] for n in names)
        curve = next(c for c in self.data["curves"] if (c["collective"], c["group"]) == (node["collective"], node["group"]))
        if "table_mib_ms" in curve:
            return table_ms(curve["table_mib_ms"], given)
        return formula_ms(node["collective"], given, curve["group_size"],
                          self.data.get("torch_network_model", {}).get("gpu_type") == "AMPERE")

    def timeline(self):
        now, free, end = 0.0, {}, {}
        exposed = 0.0
        for name in self.order:
            node = self.nodes[name]
            ms = node["ms0"]
            if node["kind"] == "start":
                gather = node["collective"] == "all_gather"
                if name in self.buckets:
                    names = self.buckets[name][0]
                    given = sum(self.nodes[n]["in_bytes"] for n in names)
                    ms = self.collective_ms(name)
                    now += given * (5 if gather else 2) / self.rate + (len(names) + (4 if gather else 2)) * LAUNCH_MS
                begin = max(now, free.get(node["group"], 0.0))
                free[node["group"]] = end[name] = begin + ms + LAUNCH_MS
                now += LAUNCH_MS
                continue
            if node["kind"] == "wait" and node["args"][0] in self.nodes:
                start = self.bucket_wait.get(name, node["args"][0])
                if start in end:
                    exposed += max(0.0, end[start] - now)
                    now = max(now, end[start])
                if name in self.bucket_wait:
                    names = self.buckets[start][0]
                    gather = self.nodes[start]["collective"] == "all_gather"
                    given_back = sum(self.nodes[n]["out_bytes"] for n in names)
                    launches = 3 + 3 * len(names) if gather else 2 + 2 * len(names)
                    now += (given_back * 2 / self.rate if gather else 0) + launches * LAUNCH_MS
                    continue
            now += ms + LAUNCH_MS
        return max([now] + list(free.values())), exposed

    def peak(self):
        """Returns the peak. Storages are shared by `alias_arg`, so a wait allocates nothing.
        Inputs of the graph and of collectives are freed after their last consumers. A bucket has
        a packed copy of its inputs at its start. A gather also has the gathered buffer at its
        wait, from which the results are copied."""
        if not any("alloc" in n for n in self.nodes.values()):
            return None
        storages, size, owner, last = {}, {}, {}, {}
        extra = {}
        for position, name in enumerate(self.order):
            node = self.nodes[name]
            members = self.buckets[name][0] if name in self.buckets else [name]
            if name in self.bucket_wait:
                members = self.buckets[self.bucket_wait[name]][1]
            for member in members:
                record = self.nodes[member]
                if "alias_arg" in record:
                    shared = storages[record["args"][record["alias_arg"]]]
                    storages[member] = [shared[record["index"]]] if record["op"] == "getitem" else [shared[0]] * max(1, len(record["storages"]))
                else:
                    storages[member] = record["storages"]
                    for storage, count in record.get("alloc", []):
                        size[storage], owner[storage] = count, position
                for arg in record["args"]:
                    for storage in storages[arg]:
                        last[storage] = position
            if len(members) > 1 and node["kind"] == "start":
                extra[position] = sum(self.nodes[m]["in_bytes"] for m in members)
            elif len(members) > 1 and self.nodes[node["args"][0]]["collective"] == "all_gather":
                extra[position] = sum(self.nodes[m]["bytes"] for m in members)
        born, gone = [0] * len(self.order), [0] * len(self.order)
        for storage, position in owner.items():
            born[position] += size[storage]
        for storage, position in last.items():
            if storage in size and self.nodes[self.order[position]]["kind"] != "output":
                gone[position] += size[storage]
        inputs = [i for i, n in enumerate(self.order) if self.nodes[n]["kind"] == "placeholder"]
        live = top = sum(born[i] for i in inputs)
        for i, name in enumerate(self.order):
            if self.nodes[name]["kind"] in ("placeholder", "output"):
                continue
            live += born[i]
            top = max(top, live + extra.get(i, 0))
            live -= gone[i]
        return top


def main():
    paths = [a for a in sys.argv[1:] if not a.startswith("--")]
    figures = [a.split("=", 1)[1] for a in sys.argv[1:] if a.startswith("--figures=")]
    replay = Replay(load(paths[0]), load(paths[1]))
    makespan, exposed = replay.timeline()
    peak = replay.peak()
    print(f"makespan {makespan:.3f} ms, exposed {exposed:.3f} ms, peak {peak}")
    if not figures:
        return 0
    after = load(figures[0])["after"]
    off = abs(makespan - after["makespan_ms"])
    print(f"heddle: makespan {after['makespan_ms']:.3f} ms, peak {after['peak_bytes']}; {off * 1000:.1f} us apart")
    if off > 0.02 + 1e-4 * makespan or (peak is not None and peak > after["peak_bytes"]):
        print("the figures differ")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
