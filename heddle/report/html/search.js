// The plans of a search: a chart of tokens per second over memory, a table, and the command of the
// chosen plan.

const search = JSON.parse(byId("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const PLOT = {height: 380, left: 92, right: 24, top: 18, bottom: 52};
let chosen = 0;

function svg(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

// From zero to at least `most`, in about `count` round steps of `unit`.
function roundTicks(most, count, unit = 1) {
  const rough = most / unit / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const values = [];
  for (let i = 0; values.length === 0 || values.at(-1) < most; ++i) values.push(i * step * unit);
  return values;
}

const facts = (plan) => [
  ["tokens/s", formatCount(plan.tokens_per_second)],
  ["on each device", `${formatCount(plan.tokens_per_second / search.devices)} tokens/s`],
  ["step", formatTime(plan.step)],
  ["exposed", `${formatTime(plan.exposed)}, ${formatShare(plan.exposed, plan.step)} of the step`],
  ["compute", formatTime(plan.step - plan.exposed)],
  ["peak memory", `${formatBytes(plan.peak)}, ${formatShare(plan.peak, search.budget)} of the budget`],
];

function factsOf(plan) {
  const list = element("dl");
  for (const [name, value] of facts(plan)) list.append(term("dt", "", name), element("dd", "", value));
  return list;
}

const titleOf = (plan) => /^[0-9]+$/.test(plan.name) ? `plan ${plan.name}: ${plan.plan}` : `${plan.name}: ${plan.plan}`;

function showTip(plan, x, y) {
  const tip = byId("tip");
  tip.hidden = false;
  tip.replaceChildren(element("strong", "", titleOf(plan)), factsOf(plan));
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(x + 14, window.innerWidth - box.width - 12))}px`;
  tip.style.top = `${y + 18 + box.height > window.innerHeight ? Math.max(8, y - box.height - 12) : y + 18}px`;
}
const hideTip = () => { byId("tip").hidden = true; };

// --- Chart

// Places labels next to their points so that no label covers another label or a point.
function placeLabels(points, bounds) {
  const taken = points.map(({x, y}) => ({left: x - 7, right: x + 7, top: y - 7, bottom: y + 7}));
  const free = (box) => box.left >= bounds.left && box.right <= bounds.right && box.top >= bounds.top && box.bottom <= bounds.bottom
    && taken.every((other) => box.right <= other.left || box.left >= other.right || box.bottom <= other.top || box.top >= other.bottom);
  return points.map(({x, y, label}) => {
    const width = label.length * 8 + 4;
    for (let far = 10; far < 120; far += 14) {
      for (const [dx, dy] of [[1, 0], [-1, 0], [0, -1], [0, 1], [1, -1], [-1, -1], [1, 1], [-1, 1]]) {
        const left = x + dx * far - (dx < 0 ? width : dx === 0 ? width / 2 : 0);
        const box = {left, right: left + width, top: y + dy * far - 10, bottom: y + dy * far + 10};
        if (!free(box)) continue;
        taken.push(box);
        return {x: left + 2, y: y + dy * far + 4, far};
      }
    }
    return null;
  });
}

function drawAxes(plot, x, y, width) {
  const {left, right, top, bottom, height} = PLOT;
  const most = Math.max(search.budget, ...search.plans.map((plan) => plan.peak));
  const ticksX = roundTicks(most, Math.max(2, Math.floor(width / 140)), 2 ** 30);
  const ticksY = roundTicks(Math.max(1, ...search.plans.map((plan) => plan.tokens_per_second)), 5);
  x.most = ticksX.at(-1);
  y.most = ticksY.at(-1);
  for (const tick of ticksX) {
    plot.append(svg("line", {x1: x(tick), x2: x(tick), y1: top, y2: height - bottom, class: "grid"}),
      svg("text", {x: x(tick), y: height - bottom + 18, "text-anchor": "middle", class: "tick"}, `${+(tick / 2 ** 30).toFixed(2)}`));
  }
  for (const tick of ticksY) {
    plot.append(svg("line", {x1: left, x2: width - right, y1: y(tick), y2: y(tick), class: "grid"}),
      svg("text", {x: left - 8, y: y(tick) + 4, "text-anchor": "end", class: "tick"}, tick.toLocaleString("en-US")));
  }
  plot.append(svg("text", {x: (left + width - right) / 2, y: height - 10, "text-anchor": "middle", class: "axis"}, "peak memory of a device in GiB"),
    svg("text", {x: 14, y: (top + height - bottom) / 2, "text-anchor": "middle", class: "axis", transform: `rotate(-90 14 ${(top + height - bottom) / 2})`}, "tokens/s"));
  plot.append(svg("line", {x1: x(search.budget), x2: x(search.budget), y1: top, y2: height - bottom, class: "budget"}));
}

function drawPlot() {
  const box = byId("plot");
  const width = Math.max(box.clientWidth, 300);
  const {left, right, top, bottom, height} = PLOT;
  const x = (bytes) => left + bytes / x.most * (width - left - right);
  const y = (tokens) => height - bottom - tokens / y.most * (height - top - bottom);
  const plot = svg("svg", {viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": "Tokens per second against peak memory"});
  drawAxes(plot, x, y, width);
  const points = search.plans.map((plan) => ({x: x(plan.peak), y: y(plan.tokens_per_second), label: plan.name}));
  const labels = placeLabels(points, {left, right: width, top: 0, bottom: height - bottom});
  // The chosen plan is drawn last, above its neighbours.
  const order = search.plans.map((_, i) => i).filter((i) => i !== chosen).concat(chosen);
  for (const i of order) {
    const plan = search.plans[i];
    const at = points[i];
    const dot = svg("circle", {cx: at.x, cy: at.y, r: i === chosen ? 7 : 5, tabindex: 0, role: "button", class: `${plan.published ? "published" : "found"}${i === chosen ? " chosen" : ""}`,
      "aria-label": `${titleOf(plan)}: ${facts(plan).map((fact) => fact.join(" ")).join(", ")}`});
    const show = () => { const place = dot.getBoundingClientRect(); showTip(plan, place.right, place.bottom); };
    dot.onmouseenter = dot.onfocus = show;
    dot.onmouseleave = dot.onblur = hideTip;
    dot.onclick = () => choose(i);
    dot.onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(i); } };
    if (labels[i]?.far > 10) plot.append(svg("line", {x1: at.x, y1: at.y, x2: labels[i].x + 4, y2: labels[i].y - 4, class: "leader"}));
    plot.append(dot);
    if (labels[i]) plot.append(svg("text", {x: labels[i].x, y: labels[i].y, class: "name"}, plan.name));
  }
  box.replaceChildren(plot);
}

function showLegend() {
  const entry = (className, name) => element("span", "", element("i", className), name);
  const entries = [entry("found", "found plan")];
  if (search.plans.some((plan) => plan.published)) entries.push(entry("published", "published configuration"));
  entries.push(element("span", "", element("i", "budget"), term("span", "", "budget"), ` ${formatBytes(search.budget)}`));
  byId("legend").replaceChildren(...entries);
}

// --- Table and the chosen plan

function showPlans() {
  const mostTokens = Math.max(...search.plans.map((plan) => plan.tokens_per_second));
  const columns = [
    {...column("", (plan) => plan.name), className: "why"}, {...column("plan", (plan) => plan.plan), className: "wide"},
    {name: "tokens/s", number: true, value: (plan) => plan.tokens_per_second,
      show: (plan) => bar(plan.tokens_per_second, mostTokens, "accent", formatCount(plan.tokens_per_second))},
    numeric("per device", (plan) => plan.tokens_per_second / search.devices), numeric("step", (plan) => plan.step, formatTime),
    {name: "exposed", number: true, value: (plan) => plan.exposed, show: (plan) => bar(plan.exposed, plan.step, "exposed", formatTime(plan.exposed))},
    {name: "peak memory", number: true, value: (plan) => plan.peak, show: (plan) => bar(plan.peak, search.budget, "held0", formatBytes(plan.peak))},
  ];
  byId("plans").replaceChildren(makeTable(columns, search.plans, (plan) => choose(search.plans.indexOf(plan))));
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Works in browsers that forbid clipboard access to local files.
    const area = element("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "copied";
  setTimeout(() => { button.textContent = "copy"; }, 1500);
}

function choose(i) {
  chosen = i;
  const plan = search.plans[i];
  const button = element("button", "", "copy");
  button.type = "button";
  button.id = "copy";
  button.onclick = () => copy(plan.command, button);
  const parts = [element("h2", "", titleOf(plan)), factsOf(plan)];
  if (plan.command) parts.push(element("h3", "", "Run it"), element("div", "command", element("pre", "", plan.command), button));
  parts.push(element("details", "", element("summary", "", "The plan as text"), element("pre", "", plan.text)));
  byId("chosen").replaceChildren(...parts);
  hideTip();
  drawPlot();
}

function figure(name, value, note) {
  return element("div", "figure", term("h2", "", name), element("p", "value", element("b", "", value)), element("p", "note", note));
}

function showSearch() {
  const best = search.plans[0];
  byId("title").textContent = `${search.model} on ${formatCount(search.devices)} ${search.cluster} ${search.devices === 1 ? "device" : "devices"}`;
  document.title = `${byId("title").textContent}: Heddle search`;
  byId("subtitle").textContent = [`${formatCount(search.sequences)} sequences of ${formatCount(search.seq_len)} tokens a step`, `${formatCount(search.points)} plans considered`,
    `${formatCount(search.tried)} simulated`, `${formatCount(search.pruned)} ruled out by bounds`].join(" · ");
  byId("headline").hidden = !search.why;
  byId("headline").textContent = search.why;
  byId("figures").replaceChildren(
    figure("tokens/s", formatCount(best.tokens_per_second), `${formatCount(best.tokens_per_second / search.devices)} on each device`),
    figure("step", formatTime(best.step), `${formatCount(search.sequences * search.seq_len)} tokens`),
    figure("exposed", formatTime(best.exposed), `${formatShare(best.exposed, best.step)} of the step`),
    figure("peak memory", formatBytes(best.peak), `${formatShare(best.peak, search.budget)} of ${formatBytes(search.budget)}`));
  showLegend();
  showPlans();
  showTerms(["tokens/s", "step", "exposed", "compute", "peak memory", "budget", "dp, dp_replicate, cp, tp, ep", "micro-batches", "min-cut, selective, full",
    "reshard never", "scheduled by overlap"]);
  choose(0);
  byId("theme").onclick = toggleTheme;
  window.addEventListener("resize", drawPlot);
  window.search = search;
}
showSearch();
