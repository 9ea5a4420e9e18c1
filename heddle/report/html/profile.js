// Measured steps above the simulated one: timelines with one axis, and the time of each class of
// kernels.

const profile = JSON.parse(byId("data").textContent);
const NANOS = 1e6;
const RULER = 22;
const TITLE = 20;
const LANE = 24;
const LANE_GAP = 4;
const MEMORY = 40;
// Names of colors of the style, by class.
const CLASS_COLORS = {
  matmul: "fwd", attention: "bwd", pointwise: "held3", norm: "tensor", optimizer: "opt", loss: "loss",
  collective: "unshard", wait: "exposed", move: "copy", reduce: "norm", embedding: "expert",
};
const colorOf = (kind) => colors[CLASS_COLORS[kind] || "muted"];

const longest = Math.max(1, ...profile.traces.flatMap((trace) => trace.end));
const view = {begin: 0, end: longest};
let chart = null;

const mostBytes = profile.traces.reduce((most, trace) => trace.memory.bytes.reduce((a, b) => Math.max(a, b), most), 1);

// The lanes of all traces, from top to bottom.
const rows = [];
{
  let top = RULER;
  for (const trace of profile.traces) {
    const shown = trace.lanes.map((name, lane) => ({name, lane, spans: []}));
    trace.lane.forEach((lane, i) => shown[lane].spans.push(i));
    rows.push({title: trace.title, top});
    top += TITLE;
    for (const row of shown) {
      if (row.spans.length === 0) continue;
      rows.push({...row, trace, top});
      top += LANE + LANE_GAP;
    }
    if (trace.memory.bytes.length > 0) {
      rows.push({memory: trace.memory, until: Math.max(...trace.end), top});
      top += MEMORY + LANE_GAP;
    }
  }
  rows.height = top + 4;
}

function drawRow(context, row) {
  const {trace} = row;
  const scale = chart.plotWidth / (view.end - view.begin);
  context.fillStyle = colors.muted;
  context.fillText(fitText(context, row.name, GUTTER - 14), 8, row.top + LANE / 2);
  chart.clip(context);
  context.fillStyle = colors.faint;
  context.fillRect(GUTTER, row.top, chart.plotWidth, LANE);
  for (const i of row.spans) {
    if (trace.end[i] < view.begin || trace.begin[i] > view.end) continue;
    const x = chart.x(trace.begin[i], view);
    const width = (trace.end[i] - trace.begin[i]) * scale;
    context.fillStyle = colorOf(trace.strings[trace.kind[i]]);
    context.fillRect(x, row.top, Math.max(width - (width > 5 ? 1 : 0), 0.3), LANE);
    if (width > 30) {
      context.fillStyle = colors.panel;
      context.fillText(fitText(context, trace.strings[trace.name[i]], width - 8), x + 4, row.top + LANE / 2 + 0.5);
    }
  }
  context.restore();
}

// Allocated bytes, which stay the same until the next change.
function drawMemory(context, row) {
  const {time, bytes} = row.memory;
  const bottom = row.top + MEMORY;
  const y = (b) => bottom - b / mostBytes * (MEMORY - 2);
  context.fillStyle = colors.muted;
  context.fillText(fitText(context, "memory", GUTTER - 14), 8, row.top + MEMORY / 2 - 7);
  context.fillText(fitText(context, formatBytes(Math.max(...bytes)), GUTTER - 14), 8, row.top + MEMORY / 2 + 7);
  chart.clip(context);
  context.fillStyle = colors.held2;
  context.beginPath();
  context.moveTo(chart.x(time[0], view), bottom);
  time.forEach((t, i) => {
    if (i > 0) context.lineTo(chart.x(t, view), y(bytes[i - 1]));
    context.lineTo(chart.x(t, view), y(bytes[i]));
  });
  const end = chart.x(Math.max(row.until, time[time.length - 1]), view);
  context.lineTo(end, y(bytes[bytes.length - 1]));
  context.lineTo(end, bottom);
  context.fill();
  context.restore();
}

function draw() {
  chart.resize();
  const context = chart.context(chart.base);
  context.strokeStyle = colors.line;
  context.fillStyle = colors.muted;
  context.textAlign = "center";
  for (const time of ticks(view, chart.plotWidth, 90)) {
    const x = Math.round(chart.x(time, view)) + 0.5;
    context.beginPath();
    context.moveTo(x, RULER - 5);
    context.lineTo(x, rows.height);
    context.stroke();
    if (x > GUTTER + 20 && x < chart.width - 20) context.fillText(time === 0 ? "0" : formatTime(time), x, 9);
  }
  context.textAlign = "left";
  for (const row of rows) {
    if (row.trace) { drawRow(context, row); continue; }
    if (row.memory) { drawMemory(context, row); continue; }
    context.fillStyle = colors.ink;
    context.font = "600 11px system-ui, sans-serif";
    context.fillText(row.title, 8, row.top + TITLE / 2);
    context.font = "11px system-ui, sans-serif";
  }
}

// --- Pointer and keys

function show(begin, end) {
  const width = Math.min(Math.max(end - begin, 1000), longest);
  view.begin = Math.min(Math.max(begin, 0), longest - width);
  view.end = view.begin + width;
  draw();
}
const pan = (by) => show(view.begin + by * (view.end - view.begin), view.end + by * (view.end - view.begin));
function zoom(factor, at = (view.begin + view.end) / 2) {
  show(at - (at - view.begin) * factor, at + (view.end - at) * factor);
}

function spanAt(x, y) {
  const row = rows.find((r) => r.trace && y >= r.top && y < r.top + LANE);
  if (!row || x < GUTTER) return null;
  const time = chart.time(x, view);
  const i = row.spans.find((s) => row.trace.begin[s] <= time && time < row.trace.end[s]);
  return i === undefined ? null : {trace: row.trace, i};
}

let drag = null;
function onMove(event) {
  const box = chart.box.getBoundingClientRect();
  if (drag) {
    const by = (event.clientX - drag.x) / chart.plotWidth * (drag.end - drag.begin);
    show(drag.begin - by, drag.end - by);
    return;
  }
  const hit = spanAt(event.clientX - box.left, event.clientY - box.top);
  const tip = byId("tip");
  tip.hidden = !hit;
  if (!hit) return;
  const {trace, i} = hit;
  tip.replaceChildren(element("strong", "", trace.strings[trace.name[i]]),
    element("p", "", `${trace.strings[trace.kind[i]]}, ${formatTime(trace.end[i] - trace.begin[i])} from ${formatTime(trace.begin[i])} on`));
  tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 12)}px`;
  tip.style.top = `${event.clientY + 18}px`;
}
function onWheel(event) {
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    zoom(1.0015 ** event.deltaY, chart.time(Math.max(event.clientX - chart.box.getBoundingClientRect().left, GUTTER), view));
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    pan((event.deltaX || event.deltaY) / chart.plotWidth);
  }
}
const KEYS = {w: () => zoom(0.7), s: () => zoom(1 / 0.7), a: () => pan(-0.2), d: () => pan(0.2), 0: () => show(0, longest)};

// --- Figures and classes

const error = (measured, simulated) => {
  if (simulated === null || measured === 0) return "";
  const change = 100 * (simulated - measured) / measured;
  return `${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(1)} %`;
};

function card(name, value, note) {
  return element("div", "figure", element("h2", "", name), element("p", "value", element("b", "", value)), note ? element("p", "note", note) : null);
}

function showFigures() {
  const busy = profile.classes.reduce((sum, c) => sum + c.measured_ms, 0);
  const simulated = profile.simulated_step_ms;
  byId("figures").replaceChildren(...[
    card("measured step", formatTime(profile.step_ms * NANOS), profile.ranks.length > 1 ? "the slowest rank" : `mean of ${profile.ranks[0].steps}`),
    simulated === null ? null : card("simulated step", formatTime(simulated * NANOS), `${error(profile.step_ms, simulated)} of the measured step`),
    profile.peak_bytes === null ? null : card("peak memory", formatBytes(profile.peak_bytes),
      profile.simulated_peak_bytes === null ? "" : `simulated ${formatBytes(profile.simulated_peak_bytes)}`),
    card("kernels", formatTime(busy * NANOS), "the sum of all, per step and rank"),
  ].filter(Boolean));
}

function showClasses() {
  const most = Math.max(...profile.classes.map((c) => Math.max(c.measured_ms, c.simulated_ms ?? 0)), 1e-9);
  const ms = (value) => value === null ? "" : formatTime(value * NANOS);
  const columns = [
    column("class", (c) => c.class),
    numeric("launches", (c) => c.launches),
    {name: "measured", value: (c) => c.measured_ms, number: true, show: (c) => bar(c.measured_ms, most, CLASS_COLORS[c.class] || "muted", ms(c.measured_ms))},
  ];
  if (profile.simulated_step_ms !== null) {
    columns.push({name: "simulated", value: (c) => c.simulated_ms ?? 0, number: true, show: (c) => bar(c.simulated_ms ?? 0, most, CLASS_COLORS[c.class] || "muted", ms(c.simulated_ms))});
    columns.push({name: "error", value: (c) => (c.simulated_ms ?? 0) - c.measured_ms, number: true, show: (c) => error(c.measured_ms, c.simulated_ms)});
  }
  byId("classes").replaceChildren(makeTable(columns, profile.classes));
}

function start() {
  readColors();
  byId("title").textContent = profile.simulated_step_ms === null ? "Measured steps" : "Measured and simulated steps";
  byId("subtitle").textContent = profile.ranks.map((rank) => `${rank.file}: ${rank.steps} ${rank.steps === 1 ? "step" : "steps"}`).join(" · ");
  byId("legend").replaceChildren(...profile.classes.map((c) => {
    const dot = element("i");
    dot.style.background = `var(--${CLASS_COLORS[c.class] || "muted"})`;
    return element("span", "", dot, element("span", "", c.class));
  }));
  showFigures();
  showClasses();
  const area = byId("charts");
  chart = new Chart(area, rows.height);
  byId("theme").onclick = () => { toggleTheme(); readColors(); draw(); };
  byId("zoom-in").onclick = () => zoom(0.6);
  byId("zoom-out").onclick = () => zoom(1 / 0.6);
  byId("zoom-all").onclick = () => show(0, longest);
  area.addEventListener("mousedown", (event) => { drag = {x: event.clientX, begin: view.begin, end: view.end}; });
  area.addEventListener("mouseleave", () => { byId("tip").hidden = true; });
  area.addEventListener("wheel", onWheel, {passive: false});
  window.addEventListener("mousemove", (event) => { if (drag || area.contains(event.target)) onMove(event); });
  window.addEventListener("mouseup", () => { drag = null; });
  window.addEventListener("keydown", (event) => { if (!event.ctrlKey && !event.metaKey && !event.altKey && KEYS[event.key]) KEYS[event.key](); });
  window.addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); draw(); });
  draw();
  // For the console: the data and the state of the page.
  window.report = {profile, view};
}
start();
