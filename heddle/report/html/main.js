// The page: header, tabs, pointer, keys.

const TABS = [
  {name: "Comparison", show: () => compareTab(), when: () => graph.comparison},
  {name: "Collectives", show: collectivesTab, each: true},
  {name: "Modules", show: modulesTab, each: true},
  {name: "Passes", show: passesTab, each: true},
];
let tab = null;
let tabStep = 0;

function showTabs() {
  const usable = TABS.filter((t) => !t.when || t.when());
  if (!usable.includes(tab)) tab = usable[0];
  byId("tabs").replaceChildren(...usable.map((t, i) => {
    const button = element("button", "", t.name);
    button.type = "button";
    button.title = `${t.name} (${i + 1})`;
    button.setAttribute("role", "tab");
    button.setAttribute("aria-selected", String(t === tab));
    button.onclick = () => { tab = t; showTabs(); };
    return button;
  }));
  if (tab.each && graph.steps.length > 1) {
    const choice = element("span", "group", ...graph.steps.map((step, i) => {
      const button = element("button", "", step.name);
      button.type = "button";
      button.setAttribute("aria-pressed", String(i === tabStep));
      button.onclick = () => { tabStep = i; showTabs(); };
      return button;
    }));
    byId("tabs").append(element("span", "grow"), choice);
  }
  showTab();
}
function showTab() {
  byId("tab-body").replaceChildren(...tab.show(tabStep));
}

function showLegend() {
  const entries = [["fwd", "forward"], ["bwd", "backward"], ["opt", "optimizer"], ["launch", "launch, unpack"], ["exposed", "exposed"]];
  const phases = new Set(graph.steps.flatMap((step) => [...new Set(step.nodes.phase)].map((p) => PHASES[p])));
  const whys = new Set(graph.steps.flatMap((step) => step.collectives.why.map((why) => text(step, why))));
  const shown = entries.filter(([color]) => !PHASES.includes(color) || phases.has(color));
  for (const why of ["unshard", "grad", "tensor", "expert", "context", "loss", "norm"]) if (whys.has(why)) shown.push([why, why]);
  byId("legend").replaceChildren(...shown.map(([color, name]) => {
    const dot = element("i");
    if (color === "exposed") dot.className = "hatch"; else dot.style.background = `var(--${color})`;
    return element("span", "", dot, term("span", "", name));
  }));
}

// `2 x 8,192 tokens a step`, or without the shape if the graph does not state it.
function workOf(step) {
  if (step.tokens === null) return "";
  const shape = step.batch.length === 2 ? `${formatCount(step.batch[0])} sequences of ${formatCount(step.batch[1])} tokens` : "";
  return shape || `${formatCount(step.tokens)} tokens a step`;
}

function showGraph(index) {
  graph = graphs[index];
  tabStep = graph.steps.length - 1;
  const step = graph.steps[tabStep];
  const names = graph.steps.length > 1 ? `${graph.steps[0].name} and ${step.name}` : step.name;
  const work = workOf(step);
  byId("title").textContent = `${step.trained || "@" + step.graph}${work ? ", " + work : ""} on ${formatCount(step.ranks)} ${step.cluster} ${step.ranks === 1 ? "device" : "devices"}`;
  document.title = `${names} on ${step.cluster}: Heddle report`;
  byId("subtitle").textContent = `${step.trained ? "@" + step.graph + " · " : ""}${names} · mesh ${step.mesh} · ${formatCount(step.ranks)} ${step.ranks === 1 ? "rank" : "ranks"} on ${formatCount(step.machines)} ${step.machines === 1 ? "node" : "nodes"} · ${{heddle: "", eager: "eager PyTorch · ", compiled: "torch.compile · "}[step.execution]}collectives by the model ${step.model} · ${formatCount(step.count)} nodes in the graph`;
  byId("headline").hidden = !graph.comparison;
  byId("headline").textContent = graph.comparison ? graph.comparison.headline + "." : "";
  inspected = "";
  showFigures();
  showLegend();
  buildCharts();
  showTabs();
  redraw();
}

// --- Finding

function find(words) {
  const needle = words.trim().toLowerCase();
  view.matches = null;
  let count = 0;
  if (needle) {
    view.matches = new Map(graph.steps.map((step) => {
      const fits = step.strings.map((s) => s.toLowerCase().includes(needle));
      const {name, op, scope} = step.nodes;
      const hits = new Set();
      for (let i = 0; i < step.count; ++i) if (fits[name[i]] || fits[op[i]] || fits[scope[i]]) hits.add(i);
      count += hits.size;
      return [step, hits];
    }));
  }
  byId("found").textContent = needle ? `${formatCount(count)} found` : "";
  redraw();
}

// The next block for which `wanted` holds after the selected one, through all steps in order.
function nextBlock(wanted, direction = 1) {
  const all = [];
  graph.steps.forEach((step, s) => step.lanes.forEach((lane, l) => {
    for (let i = 0; i < lane.length; ++i) if (wanted(step, lane, i)) all.push({step: s, lane: l, i, time: lane.begin[i]});
  }));
  if (all.length === 0) return;
  all.sort((a, b) => a.step - b.step || a.time - b.time || a.lane - b.lane);
  const rank = (block) => [block.step, laneOf(block).begin[block.i], block.lane];
  const isAfter = (block) => {
    const [a, b] = [rank(block), rank(view.selected)];
    const at = a.findIndex((value, k) => value !== b[k]);
    return at >= 0 && (a[at] > b[at]) === (direction > 0);
  };
  const ahead = view.selected ? all.filter(isAfter) : all;
  const found = direction > 0 ? ahead[0] ?? all[0] : ahead.at(-1) ?? all.at(-1);
  const block = {step: found.step, lane: found.lane, i: found.i};
  select(block);
  zoomTo(block);
}
const nextExposed = (direction) => nextBlock((step, lane, i) => lane.block[i] === BLOCK.collective && step.collectives.exposed[step.collectiveOf[lane.node[i]]] > 0, direction);
const nextMatch = (direction) => view.matches && nextBlock((step, lane, i) => view.matches.get(step).has(lane.node[i]) && lane.block[i] !== BLOCK.launch, direction);

// --- Pointer

let drag = null;
function chartAt(event) {
  const chart = [overview, ...charts].find((c) => c.box.contains(event.target));
  if (!chart) return null;
  const box = chart.box.getBoundingClientRect();
  return {chart, x: event.clientX - box.left, y: event.clientY - box.top};
}

function onMove(event) {
  if (drag) return onDrag(event);
  const at = chartAt(event);
  if (!at || at.chart === overview || at.x < GUTTER) return onLeave();
  const step = at.chart.step;
  const time = Math.min(Math.max(at.chart.time(at.x, view), 0), longest);
  view.cursor = {step: at.chart.index, time};
  const hit = blockAt(at.chart, view, step, at.x, at.y);
  view.hover = hit && {step: at.chart.index, ...hit};
  byId("charts").style.cursor = hit ? "pointer" : "crosshair";
  showTip(event.clientX, event.clientY);
  redraw(false);
}
function onLeave() {
  view.cursor = view.hover = null;
  byId("tip").hidden = true;
  redraw(false);
}
function onDrag(event) {
  const moved = event.clientX - drag.x;
  if (Math.abs(moved) > 3) drag.moved = true;
  if (!drag.moved) return;
  byId("tip").hidden = true;
  view.hover = null;
  if (drag.overview) {
    const by = moved / overview.plotWidth * longest;
    show(drag.begin + by, drag.end + by);
  } else {
    const by = moved / charts[0].plotWidth * (drag.end - drag.begin);
    show(drag.begin - by, drag.end - by);
  }
}
function onDown(event) {
  const at = chartAt(event);
  if (!at || event.button !== 0) return;
  byId("charts").focus({preventScroll: true});
  if (at.chart === overview) {
    const middle = overview.time(at.x, {begin: 0, end: longest});
    const half = (view.end - view.begin) / 2;
    if (middle < view.begin || middle > view.end) show(middle - half, middle + half);
  }
  drag = {x: event.clientX, begin: view.begin, end: view.end, overview: at.chart === overview, moved: false};
}
function onUp(event) {
  const was = drag;
  drag = null;
  if (!was || was.moved || was.overview) return;
  onMove(event);
  select(view.hover, false);
}
function onWheel(event) {
  const at = chartAt(event);
  if (!at) return;
  if (event.ctrlKey || event.metaKey || event.altKey) {
    event.preventDefault();
    const range = at.chart === overview ? {begin: 0, end: longest} : view;
    zoom(1.0015 ** event.deltaY, at.chart.time(Math.max(at.x, GUTTER), range));
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    pan((event.deltaX || event.deltaY) / at.chart.plotWidth);
  }
  onMove(event);
}

// --- Keys

function walk(by) {
  if (!view.selected) return select(firstBlock());
  const i = view.selected.i + by;
  if (i >= 0 && i < laneOf(view.selected).length) select({...view.selected, i});
}
// To the stream above or below, at the same time.
function climb(by) {
  if (!view.selected) return select(firstBlock());
  const time = laneOf(view.selected).begin[view.selected.i];
  let {step, lane} = view.selected;
  for (;;) {
    lane += by;
    if (lane < 0 && step > 0) lane = graph.steps[--step].lanes.length - 1;
    if (lane >= graph.steps[step].lanes.length && step + 1 < graph.steps.length) { ++step; lane = 0; }
    const there = graph.steps[step].lanes[lane];
    if (!there) return;
    if (there.length > 0) return select({step, lane, i: Math.min(there.from(time), there.length - 1)});
  }
}
function firstBlock() {
  const lane = graph.steps[0].lanes[0];
  return lane.length ? {step: 0, lane: 0, i: Math.min(lane.from(view.begin), lane.length - 1)} : null;
}

function setCritical(on) {
  view.critical = on;
  byId("critical").setAttribute("aria-pressed", String(on));
  redraw();
}
function switchTheme() {
  toggleTheme();
  readColors();
  redraw();
}

const KEYS = [
  ["w  +", "zoom in", ["w", "+", "="], () => zoom(0.7)],
  ["s  −", "zoom out", ["s", "-"], () => zoom(1 / 0.7)],
  ["a  d", "pan", ["a"], () => pan(-0.2)],
  ["", "", ["d"], () => pan(0.2)],
  ["0", "the whole step", ["0", "Home"], () => show(0, longest)],
  ["← →", "walk from block to block", ["ArrowLeft"], () => walk(-1)],
  ["", "", ["ArrowRight"], () => walk(1)],
  ["↑ ↓", "to another stream", ["ArrowUp"], () => climb(-1)],
  ["", "", ["ArrowDown"], () => climb(1)],
  ["Enter", "zoom to the selected block", ["Enter"], () => view.selected && zoomTo(view.selected)],
  ["n  N", "next and previous exposed collective", ["n"], () => nextExposed(1)],
  ["", "", ["N"], () => nextExposed(-1)],
  ["c", "critical path", ["c"], () => setCritical(!view.critical)],
  ["/", "find; Enter goes to the next", ["/"], () => byId("search").focus()],
  ["1 … 4", "tables", ["1", "2", "3", "4"], (key) => byId("tabs").querySelectorAll("[role=tab]")[key - 1]?.click()],
  ["t", "light or dark", ["t"], switchTheme],
  ["Esc", "select nothing", ["Escape"], () => { view.selected = null; inspected = ""; redraw(); }],
  ["?", "these keys", ["?"], () => byId("help").showModal()],
];
function buildHelp() {
  const list = element("dl", "keys");
  for (const [keys, meaning] of KEYS) if (keys) list.append(element("dt", "", element("kbd", "", keys)), element("dd", "", meaning));
  list.append(element("dt", "", element("kbd", "", "Ctrl + wheel")), element("dd", "", "zoom at the pointer"),
    element("dt", "", element("kbd", "", "drag")), element("dd", "", "pan"));
  const close = element("button", "", "close");
  close.onclick = () => byId("help").close();
  byId("help").append(element("h2", "", "Keys"), list, close);
}
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  const target = event.target;
  if (target === byId("search")) {
    if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") { target.value = ""; find(""); byId("charts").focus(); }
    return;
  }
  // Arrows and Enter belong to the focused element; without one, to the timeline.
  const own = target === document.body || target === byId("charts");
  if (!own && (event.key.startsWith("Arrow") || event.key === "Enter" || event.key === "Home")) return;
  const entry = KEYS.find(([, , keys]) => keys.includes(event.key));
  if (!entry) return;
  event.preventDefault();
  entry[3](event.key);
}

function start() {
  readColors();
  buildHelp();
  showTerms(["step", "compute", "exposed", "hidden", "at least", "critical path", "peak memory", "MFU", "tokens/s", "queued", "unit",
    "unshard", "grad", "tensor", "expert", "context", "loss", "norm"]);
  const choice = byId("graphs");
  graphs.forEach((g, i) => {
    const option = element("option", "", "@" + g.steps[0].graph);
    option.value = String(i);
    choice.append(option);
  });
  choice.hidden = graphs.length < 2;
  choice.onchange = () => showGraph(Number(choice.value));
  byId("theme").onclick = switchTheme;
  byId("help-button").onclick = () => byId("help").showModal();
  byId("zoom-in").onclick = () => zoom(0.6);
  byId("zoom-out").onclick = () => zoom(1 / 0.6);
  byId("zoom-all").onclick = () => show(0, longest);
  byId("exposed-next").onclick = () => nextExposed(1);
  byId("critical").onclick = () => setCritical(!view.critical);
  byId("search").oninput = (event) => find(event.target.value);
  const area = byId("charts");
  area.addEventListener("mousedown", onDown);
  area.addEventListener("mouseleave", () => { if (!drag) onLeave(); });
  area.addEventListener("dblclick", () => view.hover && zoomTo(view.hover));
  area.addEventListener("wheel", onWheel, {passive: false});
  window.addEventListener("mousemove", (event) => { if (drag || area.contains(event.target)) onMove(event); });
  window.addEventListener("mouseup", onUp);
  window.addEventListener("keydown", onKey);
  window.addEventListener("resize", () => redraw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); redraw(); });
  startPipeline();
  const first = pipeline ? pipeline.slowest : 0;
  choice.value = String(first);
  showGraph(first);
  // For the console: the data and the state of the page.
  window.report = {graphs, view, pipeline};
}
start();
