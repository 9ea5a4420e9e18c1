// The state of the view: a time range shared by all steps, the selected block, and the block under
// the pointer.

const MEMORY_GAP = 10;

const view = {
  begin: 0,
  end: 1,
  // {step, lane, i}, or null.
  hover: null,
  selected: null,
  // The pointer's time and step.
  cursor: null,
  critical: false,
  matches: null,
};
let graph = graphs[0];
let charts = [];
let overview = null;
let longest = 1;

const laneOf = (block) => graph.steps[block.step].lanes[block.lane];
const nodeOf = (block) => laneOf(block).node[block.i];

function buildCharts() {
  const parent = byId("charts");
  parent.textContent = "";
  longest = Math.max(1, ...graph.steps.map((step) => step.makespan));
  overview = new Chart(parent, 30);
  overview.box.classList.add("overview");
  charts = graph.steps.map((step, index) => {
    if (graph.steps.length > 1) parent.append(element("h2", "", step.name));
    const chart = new Chart(parent, lanesHeight(step) + MEMORY_GAP + memoryHeight() + 6);
    chart.step = step;
    chart.index = index;
    return chart;
  });
  Object.assign(view, {begin: 0, end: longest, hover: null, selected: null, cursor: null});
}

// --- Drawing, at most once per frame

let dirty = {base: false, over: false, asked: false};
function redraw(base = true) {
  dirty.base ||= base;
  dirty.over = true;
  if (dirty.asked) return;
  dirty.asked = true;
  requestAnimationFrame(() => {
    const whole = dirty.base;
    dirty = {base: false, over: false, asked: false};
    if (whole) drawBase();
    drawOver();
  });
}

function markOf(step) {
  if (view.matches) return (lane, i) => view.matches.get(step)?.has(lane.node[i]);
  if (view.critical) return (lane, i) => step.critical.has(lane.node[i]) && lane.block[i] !== BLOCK.launch;
  return null;
}

function drawBase() {
  overview.resize();
  const context = overview.context(overview.base);
  const whole = {begin: 0, end: longest};
  graph.steps.forEach((step, index) => {
    const height = 24 / graph.steps.length;
    for (let i = 0; i < step.lanes[0].length; ++i) {
      const lane = step.lanes[0];
      const x = overview.x(lane.begin[i], whole);
      context.fillStyle = lane.block[i] === BLOCK.waiting ? colors.exposed : colorOf(step, lane, i);
      context.fillRect(x, 3 + index * height, overview.x(lane.end[i], whole) - x, height - 2);
    }
  });
  if (pipeline) drawPipeline();
  const scale = Math.max(...graph.steps.map(memoryScale));
  for (const chart of charts) {
    chart.resize();
    const draw = chart.context(chart.base);
    drawLanes(chart, draw, view, chart.step, markOf(chart.step));
    drawMemory(chart, draw, view, chart.step, lanesHeight(chart.step) + MEMORY_GAP, scale);
    chart.clip(draw);
    drawPeak(chart, draw, view, chart.step, lanesHeight(chart.step) + MEMORY_GAP, scale);
    draw.restore();
  }
}

function drawOver() {
  const whole = {begin: 0, end: longest};
  const shade = overview.context(overview.over);
  const from = overview.x(view.begin, whole);
  const to = overview.x(view.end, whole);
  shade.globalAlpha = 0.72;
  shade.fillStyle = colors.panel;
  shade.fillRect(GUTTER, 0, from - GUTTER, 30);
  shade.fillRect(to, 0, overview.width - to, 30);
  shade.globalAlpha = 1;
  shade.strokeStyle = colors.accent;
  shade.lineWidth = 1.5;
  shade.strokeRect(from + 0.5, 1, Math.max(to - from - 1, 3), 28);
  for (const chart of charts) {
    const context = chart.context(chart.over);
    chart.clip(context);
    for (const [block, color] of [[view.selected, colors.accent], [view.hover, colors.ink]]) {
      if (!block || block.step !== chart.index) continue;
      drawThread(chart, context, view, chart.step, block);
      outline(chart, context, view, chart.step, block, color);
    }
    if (view.cursor) {
      const x = Math.round(chart.x(view.cursor.time, view)) + 0.5;
      context.strokeStyle = colors.muted;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x, RULER);
      context.lineTo(x, chart.height);
      context.stroke();
    }
    context.restore();
  }
  showInspector();
}

// --- Moving

function show(begin, end) {
  // Down to about a nanosecond per ten pixels, and never beyond the step.
  const length = Math.min(Math.max(end - begin, 100), longest);
  view.begin = Math.min(Math.max(begin, 0), longest - length);
  view.end = view.begin + length;
  redraw();
}
function zoom(factor, around = (view.begin + view.end) / 2) {
  show(around - (around - view.begin) * factor, around + (view.end - around) * factor);
}
function pan(share) {
  const by = (view.end - view.begin) * share;
  show(view.begin + by, view.end + by);
}
function zoomTo(block) {
  const lane = laneOf(block);
  const {reached, begin} = graph.steps[block.step].nodes;
  const i = graph.steps[block.step].collectiveOf[nodeOf(block)];
  let from = lane.begin[block.i];
  let to = lane.end[block.i];
  if (i >= 0) {
    const {node, wait} = graph.steps[block.step].collectives;
    from = Math.min(from, reached[node[i]]);
    if (wait[i] >= 0) to = Math.max(to, begin[wait[i]]);
  }
  show(from - (to - from) * 1.2, to + (to - from) * 1.2);
}
function select(block, bringIntoView = true) {
  view.selected = block;
  if (block && bringIntoView) {
    const lane = laneOf(block);
    const length = view.end - view.begin;
    if (lane.end[block.i] < view.begin || lane.begin[block.i] > view.end) {
      const middle = (lane.begin[block.i] + lane.end[block.i]) / 2;
      show(middle - length / 2, middle + length / 2);
    }
  }
  redraw(false);
}

// The block of a node; for a collective, on its own stream.
function blockOfNode(stepIndex, node) {
  const step = graph.steps[stepIndex];
  const i = step.collectiveOf[node];
  const laneIndex = step.nodes.kind[node] === KIND.start ? step.collectives.stream[i] : 0;
  const lane = step.lanes[laneIndex];
  const at = lane.node.indexOf(node);
  return at < 0 ? null : {step: stepIndex, lane: laneIndex, i: at};
}

// --- Facts about a block

function factsOf(block) {
  const step = graph.steps[block.step];
  const lane = laneOf(block);
  const node = nodeOf(block);
  const {nodes, collectives} = step;
  const facts = [];
  const add = (name, value, className) => { if (value) facts.push([name, value, className]); };
  add("op", text(step, nodes.op[node]));
  add("scope", text(step, nodes.scope[node]));
  add("phase", PHASES[nodes.phase[node]]);
  add(lane.block[block.i] === BLOCK.waiting ? "waits for" : "takes", formatTime(lane.end[block.i] - lane.begin[block.i]));
  add("from", `${formatTime(lane.begin[block.i])} to ${formatTime(lane.end[block.i])}`);
  const i = step.collectiveOf[node];
  if (i < 0) {
    add("bytes", formatBytes(nodes.bytes[node]));
    add("result", text(step, nodes.type[node]));
    return facts;
  }
  const why = text(step, collectives.why[i]);
  add("collective", `${text(step, collectives.kind[i])} over ${text(step, collectives.over[i])}${why ? ", " + why : ""}`);
  add("unit", text(step, collectives.unit[i]));
  add("bytes", `${formatBytes(collectives.bytes[i])} in ${formatCount(collectives.tensors[i])} ${collectives.tensors[i] === 1 ? "tensor" : "tensors"}`);
  if (collectives.queued[i] > 0) add("queued", formatTime(collectives.queued[i]));
  if (collectives.shared[i] > 0) add("slower by", `${formatTime(collectives.shared[i])}, links shared`);
  if (collectives.exposed[i] > 0) {
    add("exposed", `${formatTime(collectives.exposed[i])} of ${formatTime(timeOf(step, i))}`, "bad");
    add("because", formatReasons(step, i));
  } else {
    add("hidden", "by compute", "good");
  }
  return facts;
}

function factList(block) {
  const step = graph.steps[block.step];
  const waiting = laneOf(block).block[block.i] === BLOCK.waiting;
  const list = element("dl");
  for (const [name, value, className] of factsOf(block)) list.append(element("dt", "", name), element("dd", className || "", value));
  const name = text(step, step.nodes.name[nodeOf(block)]);
  return [element("strong", "", waiting ? `exposed: ${name}` : name), list];
}

function showTip(x, y) {
  const tip = byId("tip");
  tip.hidden = !view.hover;
  if (!view.hover) return;
  tip.replaceChildren(...factList(view.hover));
  placeTip(tip, x, y);
}

function placeTip(tip, x, y) {
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(x + 16, window.innerWidth - box.width - 12))}px`;
  tip.style.top = `${y + 20 + box.height > window.innerHeight ? Math.max(8, y - box.height - 12) : y + 20}px`;
}

let inspected = "";
// The selected block, and the storages alive at the pointer, or else at the peak.
function showInspector() {
  const at = view.cursor || (view.selected && {step: view.selected.step, time: laneOf(view.selected).begin[view.selected.i]});
  const step = graph.steps[at ? at.step : graph.steps.length - 1];
  const position = at ? nodeAt(step, at.time) : step.peak_position;
  const key = JSON.stringify([graphs.indexOf(graph), step.name, position, view.selected, Boolean(at)]);
  if (key === inspected) return;
  inspected = key;
  const parts = [];
  if (view.selected) parts.push(element("h3", "", "selected"), ...factList(view.selected));
  if (step.count > 0) {
    const {reached, live} = step.nodes;
    parts.push(element("h3", "", `${at ? "alive" : "alive at the peak"}${graph.steps.length > 1 ? ` in ${step.name}` : ""}`));
    parts.push(element("strong", "", formatBytes(live[position])), element("span", "muted", ` of values at ${formatTime(reached[position])}`));
    // Kernels may keep fewer values, and allocators and libraries need more than values.
    parts.push(element("p", "muted", `a device uses ${formatBytes(step.peak)} at most, ${formatShare(step.peak, step.cap)} of the limit`));
    parts.push(heldBar(step, position), heldList(step, position), aliveTable(step, position));
  }
  byId("inspector").replaceChildren(...parts);
}

function heldBar(step, position) {
  const bar = element("div", "heldbar");
  step.stacks.forEach((stack, held) => {
    if (stack[position] <= 0) return;
    const part = element("i");
    part.style.flexGrow = String(stack[position] / Math.max(step.nodes.live[position], 1));
    part.style.background = `var(--held${held})`;
    bar.append(part);
  });
  return bar;
}

function heldList(step, position) {
  const list = element("ul", "held");
  step.stacks.forEach((stack, held) => {
    if (stack[position] <= 0) return;
    const dot = element("i");
    dot.style.background = `var(--held${held})`;
    list.append(element("li", "", dot, step.held_names[held], element("b", "", formatBytes(stack[position]))));
  });
  return list;
}

function aliveTable(step, position) {
  const {count, largest} = aliveAt(step, position, 12);
  const body = element("tbody");
  for (const i of largest) {
    const {name, type, bytes} = step.storages;
    const cell = element("td", "", text(step, name[i]), element("small", "", text(step, type[i])));
    cell.title = text(step, name[i]);
    body.append(element("tr", "", cell, element("td", "number", formatBytes(bytes[i]))));
  }
  const table = element("table", "alive", body);
  return element("div", "", table, count > largest.length ? element("p", "muted", `and ${formatCount(count - largest.length)} smaller`) : null);
}
