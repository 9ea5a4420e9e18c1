// The tables of collectives and passes.

// --- Collectives

function launchesOf(step) {
  const c = step.collectives;
  return c.node.map((node, i) => ({
    i, node,
    name: text(step, step.nodes.name[node]), phase: PHASES[step.nodes.phase[node]], kind: text(step, c.kind[i]), over: text(step, c.over[i]),
    why: text(step, c.why[i]), unit: text(step, c.unit[i]), count: 1, tensors: c.tensors[i], bytes: c.bytes[i],
    begin: step.nodes.begin[node], time: timeOf(step, i), queued: c.queued[i], shared: c.shared[i], exposed: c.exposed[i],
    reasons: step.reason_names.map((_, r) => c["reason" + r][i]),
  }));
}

function groupLaunches(launches) {
  const groups = new Map();
  for (const launch of launches) {
    const key = [launch.phase, launch.kind, launch.over, launch.why].join("\n");
    if (!groups.has(key)) groups.set(key, {...launch, reasons: launch.reasons.slice()});
    else {
      const group = groups.get(key);
      for (const field of ["count", "tensors", "bytes", "time", "queued", "shared", "exposed"]) group[field] += launch[field];
      launch.reasons.forEach((time, r) => { group.reasons[r] += time; });
    }
  }
  return [...groups.values()];
}

const becauseOf = (step) => (row) => step.reason_names
  .map((name, r) => [name, row.reasons[r]]).filter(([, time]) => time > 0).sort((a, b) => b[1] - a[1])
  .map(([name, time]) => `${name} ${formatTime(time)}`).join(", ");

function whyDot(row) {
  const dot = element("i", "dot");
  dot.style.background = `var(--${/^[a-z]+$/.test(row.why) ? row.why : "copy"})`;
  return element("span", "why", dot, row.why);
}

function collectivesTab(stepIndex) {
  const step = graph.steps[stepIndex];
  const launches = launchesOf(step);
  if (launches.length === 0) return [element("p", "muted", "This step launches no collectives.")];
  const purpose = [
    column("phase", (r) => r.phase), column("collective", (r) => r.kind), column("over", (r) => r.over),
    {name: "why", value: (r) => r.why, show: whyDot},
  ];
  const sums = [
    numeric("tensors", (r) => r.tensors), numeric("bytes", (r) => r.bytes, formatBytes), numeric("time", (r) => r.time, formatTime),
    {name: "exposed", value: (r) => r.exposed, number: true,
      show: (r) => r.exposed > 0 ? bar(r.exposed, r.time, "exposed", formatTime(r.exposed)) : element("span", "good", "hidden")},
    column("because", becauseOf(step)),
  ];
  const all = makeTable([...purpose, numeric("launches", (r) => r.count), ...sums], groupLaunches(launches));
  const each = makeTable([
    column("launch", (r) => r.name), ...purpose, column("unit", (r) => r.unit), numeric("begins", (r) => r.begin, formatTime),
    numeric("queued", (r) => r.queued, orEmpty(formatTime)), numeric("shared", (r) => r.shared, orEmpty(formatTime)), ...sums,
  ], launches, (row) => jumpTo(stepIndex, row.node));
  return [element("h3", "", "by purpose"), all, element("h3", "", "buckets: every launch"), each];
}

function jumpTo(stepIndex, node) {
  const block = blockOfNode(stepIndex, node);
  if (!block) return;
  select(block);
  zoomTo(block);
  byId("work").scrollIntoView({behavior: "smooth", block: "start"});
}

// --- Passes

function passesTab(stepIndex) {
  const step = graph.steps[stepIndex];
  if (step.passes.length === 0)
    return [element("p", "muted", "A graph from a file does not say which passes made it. Reports of heddle plan and of heddle sim with --model do.")];
  const change = (row, at, format) => row.before[at] === row.after[at]
    ? element("span", "muted", row.after[at] ? format(row.after[at]) : "")
    : element("span", row.after[at] < row.before[at] ? "good" : "bad", `${format(row.before[at])} → ${format(row.after[at])}`);
  const remarks = (row) => {
    if (row.remarks.length === 0) return "";
    const list = element("ul", "", ...row.remarks.slice(0, 200).map((remark) => element("li", "", remark)));
    if (row.remarks.length > 200) list.append(element("li", "muted", `and ${formatCount(row.remarks.length - 200)} more`));
    return element("details", "", element("summary", "", row.remarks.length === 1 ? "1 remark" : `${formatCount(row.remarks.length)} remarks`), list);
  };
  const numbered = step.passes.map((pass, i) => ({...pass, number: i + 1}));
  return [makeTable([
    numeric("", (r) => r.number),
    {name: "pass", value: (r) => r.name, show: (r) => element("code", r.changed ? "" : "muted", r.name)},
    column("changed", (r) => r.changed ? "yes" : ""),
    {name: "launches", value: (r) => r.after[0], number: true, show: (r) => change(r, 0, formatCount)},
    {name: "peak memory", value: (r) => r.after[1], number: true, show: (r) => change(r, 1, formatBytes)},
    column("counts", (r) => r.stats.map(([name, count]) => `${name} ${formatCount(count)}`).join(", ")),
    {name: "remarks", value: (r) => r.remarks.length, show: remarks},
  ], numbered)];
}
