// The metrics of a training run, or of two, over steps or time: a chart for each metric, with one
// horizontal axis.

const report = JSON.parse(byId("data").textContent);
const HEIGHT = 190;
const TOP = 8;
const BOTTOM = 22;
// The metrics of each chart. Further metrics of a chart are dashed.
const CHARTS = [["loss", "validation_loss"], ["validation_perplexity"], ["tps"], ["mfu"], ["tflops"], ["grad_norm"], ["lr"], ["memory_bytes"],
  ["seconds", "data_seconds"], ["expert_imbalance"]];
const RUN_COLORS = ["accent", "grad"];
// Curves with fewer points have dots.
const FEW_POINTS = 60;

const runs = report.runs;
const present = (key) => runs.some((run) => run.curves[key]);
const charts = CHARTS.map((keys) => keys.filter(present)).filter((keys) => keys.length > 0).map((keys) => ({keys}));
let axis = "step";
const view = {begin: 0, end: 1};

// --- Numbers

const digits = (value) => Number(value.toPrecision(5)).toLocaleString("en-US", {maximumSignificantDigits: 5});
const FORMATS = {
  number: (value) => Math.abs(value) < 1e-3 && value !== 0 ? value.toExponential(3).replace(/\.?0+e/, "e") : digits(value),
  count: formatCount,
  share: (value) => `${(100 * value).toFixed(2)} %`,
  bytes: formatBytes,
  seconds: (value) => formatTime(value * 1e9),
};
const formatOf = (key) => FORMATS[report.columns[key].unit];
function formatDuration(seconds) {
  const whole = Math.round(seconds);
  if (whole < 120) return formatTime(seconds * 1e9);
  return whole < 7200 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${Math.floor(whole / 3600)} h ${Math.floor(whole / 60) % 60} min`;
}
const formatAxis = (at) => axis === "step" ? formatCount(at) : formatDuration(at);

// Round values from `least` to `most`, about `count` of them (the sum with 0 turns -0 into 0). Units of bytes are powers of 1024.
function valueTicks(least, most, count, unit) {
  const rough = (most - least) / count;
  const base = unit === "bytes" ? 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(most, 1)) / 10)) : 1;
  const power = base * 10 ** Math.floor(Math.log10(rough / base));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough * (1 - 1e-9)) ?? 10 * power;
  const out = [];
  for (let i = Math.ceil(least / step - 1e-9); i * step <= most * (1 + 1e-12) + step * 1e-9; ++i) out.push(i * step + 0);
  return out;
}

// --- Curves

// The points of a curve that have a value, and are visible or next to a visible one.
function pointsOf(run, key) {
  const curve = run.curves[key];
  if (!curve) return [];
  const at = run[axis];
  const all = curve.mean.map((_, i) => i).filter((i) => curve.mean[i] !== null);
  const first = all.findIndex((i) => at[i] >= view.begin);
  if (first < 0) return all.slice(-1);
  let last = all.length - 1;
  while (last > first && at[all[last]] > view.end) --last;
  return all.slice(Math.max(0, first - 1), last + 2);
}

// The range of the visible values. Memory, rates and times begin at zero, so that heights compare.
function rangeOf(keys) {
  let least = Infinity;
  let most = -Infinity;
  for (const run of runs) {
    for (const key of keys) {
      const curve = run.curves[key];
      for (const i of pointsOf(run, key)) {
        least = Math.min(least, curve.least ? curve.least[i] : curve.mean[i]);
        most = Math.max(most, curve.most ? curve.most[i] : curve.mean[i]);
      }
    }
  }
  if (least > most) return {least: 0, most: 1};
  if (report.columns[keys[0]].unit !== "number" || keys[0] === "lr") least = Math.min(least, 0);
  const room = (most - least) * 0.06 || Math.abs(most) * 0.1 || 1;
  return {least: least === 0 ? 0 : least - room, most: most + room};
}

function drawCurve(context, chart, run, key, y, color, dashed) {
  const curve = run.curves[key];
  const points = pointsOf(run, key);
  if (points.length === 0) return;
  const x = (i) => chart.x(run[axis][i], view);
  context.strokeStyle = context.fillStyle = color;
  if (curve.least) {
    context.globalAlpha = 0.2;
    context.beginPath();
    points.forEach((i) => context.lineTo(x(i), y(curve.most[i])));
    points.slice().reverse().forEach((i) => context.lineTo(x(i), y(curve.least[i])));
    context.fill();
    context.globalAlpha = 1;
  }
  context.setLineDash(dashed ? [5, 4] : []);
  context.lineWidth = 1.5;
  context.beginPath();
  points.forEach((i, n) => {
    // Values that are not finite interrupt the curve of a metric that most steps have.
    if (n > 0 && curve.dense && points[n - 1] !== i - 1) context.moveTo(x(i), y(curve.mean[i]));
    else context.lineTo(x(i), y(curve.mean[i]));
  });
  context.stroke();
  context.setLineDash([]);
  if (points.length >= FEW_POINTS) return;
  for (const i of points) {
    context.beginPath();
    context.arc(x(i), y(curve.mean[i]), 2.2, 0, 2 * Math.PI);
    context.fill();
  }
}

function drawGrid(context, chart, range, unit, format, y) {
  const bottom = HEIGHT - BOTTOM;
  context.strokeStyle = colors.line;
  context.fillStyle = colors.muted;
  context.lineWidth = 1;
  context.textAlign = "right";
  for (const value of valueTicks(range.least, range.most, 5, unit)) {
    const at = Math.round(y(value)) + 0.5;
    context.beginPath();
    context.moveTo(GUTTER, at);
    context.lineTo(chart.width - PAD_RIGHT, at);
    context.stroke();
    context.fillText(format(value), GUTTER - 8, at);
  }
  context.textAlign = "center";
  const least = axis === "step" ? 1 : 0;
  for (const at of valueTicks(view.begin, view.end, Math.max(2, chart.plotWidth / 110), "number")) {
    if (at < view.begin || (least === 1 && !Number.isInteger(at))) continue;
    const x = Math.round(chart.x(at, view)) + 0.5;
    context.beginPath();
    context.moveTo(x, bottom);
    context.lineTo(x, bottom + 4);
    context.stroke();
    context.fillText(formatAxis(at), Math.min(x, chart.width - PAD_RIGHT - 14), bottom + 13);
  }
  context.textAlign = "left";
}

function drawChart({keys, chart}) {
  chart.resize();
  const context = chart.context(chart.base);
  const range = rangeOf(keys);
  const y = (value) => TOP + (range.most - value) / (range.most - range.least) * (HEIGHT - TOP - BOTTOM);
  drawGrid(context, chart, range, report.columns[keys[0]].unit, formatOf(keys[0]), y);
  chart.clip(context);
  runs.forEach((run, r) => keys.forEach((key, k) => drawCurve(context, chart, run, key, y, colors[RUN_COLORS[r]], k > 0)));
  context.restore();
  drawPointer({chart}, null);
}
const draw = () => charts.forEach(drawChart);

// A line at the position under the pointer.
function drawPointer({chart}, at) {
  const context = chart.context(chart.over);
  if (at === null) return;
  const x = Math.round(chart.x(at, view)) + 0.5;
  if (x < GUTTER || x > chart.width - PAD_RIGHT) return;
  context.strokeStyle = colors.muted;
  context.beginPath();
  context.moveTo(x, TOP);
  context.lineTo(x, HEIGHT - BOTTOM);
  context.stroke();
}

// --- Pointer and keys

const whole = () => ({begin: axis === "step" ? Math.min(...runs.map((run) => run.first[0])) : 0, end: Math.max(...runs.map((run) => run[axis].at(-1)))});
function show(begin, end) {
  const all = whole();
  const length = all.end - all.begin || 1;
  const width = Math.min(Math.max(end - begin, length * 1e-5), length);
  view.begin = Math.min(Math.max(begin, all.begin), all.begin + length - width);
  view.end = view.begin + width;
  draw();
}
const showAll = () => { const all = whole(); show(all.begin, all.end); };
const pan = (by) => show(view.begin + by * (view.end - view.begin), view.end + by * (view.end - view.begin));
function zoom(factor, at = (view.begin + view.end) / 2) {
  show(at - (at - view.begin) * factor, at + (view.end - at) * factor);
}
function setAxis(name) {
  axis = name;
  for (const one of ["step", "time"]) byId(`by-${one}`).setAttribute("aria-pressed", String(one === name));
  showAll();
}

// The position of the point of a run that is nearest to `at`.
function nearest(run, at) {
  const positions = run[axis];
  let low = 0;
  let high = positions.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (positions[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low > 0 && at - positions[low - 1] < positions[low] - at ? low - 1 : low;
}

function tipOf(at) {
  const parts = [];
  runs.forEach((run) => {
    const i = nearest(run, at);
    const steps = run.first[i] === run.step[i] ? `step ${formatCount(run.step[i])}` : `mean of steps ${formatCount(run.first[i])} to ${formatCount(run.step[i])}`;
    parts.push(element("strong", "", runs.length > 1 ? `${run.file}: ${steps}` : steps));
    const list = element("dl", "", element("dt", "", "time"), element("dd", "", formatDuration(run.time[i])));
    for (const key of charts.flatMap((chart) => chart.keys)) {
      const value = run.curves[key]?.mean[i];
      if (value !== null && value !== undefined) list.append(element("dt", "", report.columns[key].title), element("dd", "", formatOf(key)(value)));
    }
    parts.push(list);
  });
  return parts;
}

let drag = null;
function hide() {
  byId("tip").hidden = true;
  charts.forEach((chart) => drawPointer(chart, null));
}
function onMove(event) {
  const under = charts.find(({chart}) => chart.box.contains(event.target)) ?? (drag && drag.under);
  if (!under) { hide(); return; }
  const box = under.chart.box.getBoundingClientRect();
  if (drag) {
    const by = (event.clientX - drag.x) / under.chart.plotWidth * (drag.end - drag.begin);
    show(drag.begin - by, drag.end - by);
    return;
  }
  if (event.clientX - box.left < GUTTER) { hide(); return; }
  const at = under.chart.time(event.clientX - box.left, view);
  const near = runs[0][axis][nearest(runs[0], at)];
  charts.forEach((chart) => drawPointer(chart, runs.length > 1 ? at : near));
  const tip = byId("tip");
  tip.hidden = false;
  tip.replaceChildren(...tipOf(at));
  const place = tip.getBoundingClientRect();
  const left = event.clientX + 18 + place.width > window.innerWidth ? event.clientX - place.width - 18 : event.clientX + 18;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, Math.min(event.clientY + 18, window.innerHeight - place.height - 8))}px`;
}
function onWheel(event) {
  const under = charts.find(({chart}) => chart.box.contains(event.target));
  if (!under) return;
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    zoom(1.0015 ** event.deltaY, under.chart.time(Math.max(event.clientX - under.chart.box.getBoundingClientRect().left, GUTTER), view));
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    pan((event.deltaX || event.deltaY) / under.chart.plotWidth);
  }
}
const KEYS = {w: () => zoom(0.7), s: () => zoom(1 / 0.7), a: () => pan(-0.2), d: () => pan(0.2), 0: showAll, t: () => byId("theme").click()};

// --- Figures, legend and samples

function figure(name, key, part, note) {
  if (!present(key)) return null;
  const made = element("div", "figure", key === "mfu" ? term("h2", "", name) : element("h2", "", name));
  for (const run of runs) {
    const summary = run.summary.metrics[key];
    made.append(element("p", "value", runs.length > 1 ? element("span", "who", run.file) : null, element("b", "", summary ? formatOf(key)(summary[part]) : "")));
  }
  if (note) made.append(element("p", "note", note));
  return made;
}

function showFigures() {
  byId("figures").replaceChildren(...[
    figure("loss", "loss", "last", "of the last step"), figure("validation loss", "validation_loss", "least", "the least"),
    figure("validation perplexity", "validation_perplexity", "least", "the least"), figure("MFU", "mfu", "mean", "mean of all steps"),
    figure("tokens/s per rank", "tps", "mean", "mean of all steps"), figure("step time", "seconds", "mean", "mean of all steps"),
    figure("memory", "memory_bytes", "most", "the peak of a rank"),
  ].filter(Boolean));
}

function showLegend() {
  const entry = (run, r) => {
    const dot = element("i");
    dot.style.background = `var(--${RUN_COLORS[r]})`;
    return element("span", "", dot, element("span", "", run.file));
  };
  const merged = Math.max(...runs.map((run) => run.merged));
  byId("legend").replaceChildren(...runs.map(entry),
    ...(merged > 1 ? [element("span", "", `a point is the mean of ${formatCount(merged)} steps; the band is their range`)] : []));
}

function showSamples() {
  const samples = runs.flatMap((run) => run.samples.map((sample) => ({...sample, file: run.file})));
  if (samples.length === 0) return;
  byId("samples").hidden = false;
  const columns = [numeric("step", (sample) => sample.step), {...column("prompt", (sample) => sample.prompt), className: "wide"},
    {...column("text", (sample) => sample.text), className: "wide"}];
  if (runs.length > 1) columns.unshift(column("run", (sample) => sample.file));
  byId("samples").replaceChildren(makeTable(columns, samples));
}

function start() {
  readColors();
  for (const run of runs) {
    for (const curve of Object.values(run.curves)) curve.dense = curve.mean.filter((value) => value !== null).length > curve.mean.length / 2;
  }
  byId("title").textContent = runs.map((run) => run.file).join(" against ");
  document.title = `${byId("title").textContent}: Heddle`;
  byId("subtitle").textContent = runs.map(({summary}) =>
    `${formatCount(summary.steps)} ${summary.steps === 1 ? "step" : "steps"}, ${formatCount(summary.first_step)} to ${formatCount(summary.last_step)}, in ${formatDuration(summary.seconds)}`).join(" · ");
  byId("headline").hidden = !report.headline;
  byId("headline").textContent = report.headline;
  showFigures();
  showLegend();
  showSamples();
  const area = byId("charts");
  for (const one of charts) {
    const rest = one.keys.slice(1).map((key) => element("span", "muted", `dashed: ${report.columns[key].title}`));
    const box = element("div", "", element("h2", "", element("span", "", report.columns[one.keys[0]].title), ...rest));
    area.append(box);
    one.chart = new Chart(box, HEIGHT);
  }
  byId("theme").onclick = () => { toggleTheme(); readColors(); draw(); };
  byId("by-step").onclick = () => setAxis("step");
  byId("by-time").onclick = () => setAxis("time");
  byId("zoom-in").onclick = () => zoom(0.6);
  byId("zoom-out").onclick = () => zoom(1 / 0.6);
  byId("zoom-all").onclick = showAll;
  area.addEventListener("mousedown", (event) => {
    const under = charts.find(({chart}) => chart.box.contains(event.target));
    if (under) drag = {x: event.clientX, begin: view.begin, end: view.end, under};
  });
  area.addEventListener("mouseleave", () => { if (!drag) hide(); });
  area.addEventListener("wheel", onWheel, {passive: false});
  window.addEventListener("mousemove", (event) => { if (drag || area.contains(event.target)) onMove(event); });
  window.addEventListener("mouseup", () => { drag = null; });
  window.addEventListener("keydown", (event) => { if (!event.ctrlKey && !event.metaKey && !event.altKey && KEYS[event.key]) KEYS[event.key](); });
  window.addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); draw(); });
  showAll();
  // For the console: the data and the state of the page.
  window.report = {...report, view, charts: charts.map(({keys}) => keys)};
}
start();
