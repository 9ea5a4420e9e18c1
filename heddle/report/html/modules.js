// The costs of a model's modules, as a tree of scopes, and of its ops.

let layersTogether = true;
const openModules = new Set([""]);

const emptyCosts = () => ({time: [0, 0, 0], kernels: 0, collective: 0, exposed: 0});

// Adds the costs of each node to its scope and that scope's ancestors.
function moduleTree(step) {
  const root = {name: "", path: "", parts: new Map(), ...emptyCosts()};
  const add = (scope, apply) => {
    apply(root);
    let at = root;
    for (const part of scope === "" ? ["(no scope)"] : scope.split(".")) {
      const name = layersTogether && /^\d+$/.test(part) ? "*" : part;
      if (!at.parts.has(name)) at.parts.set(name, {name, path: at.path + "." + name, parts: new Map(), ...emptyCosts()});
      at = at.parts.get(name);
      apply(at);
    }
  };
  const {nodes, collectives} = step;
  for (let i = 0; i < step.count; ++i) {
    if (nodes.kind[i] === KIND.start) continue;
    const time = nodes.end[i] - nodes.begin[i];
    if (time > 0) add(text(step, nodes.scope[i]), (at) => { at.time[nodes.phase[i]] += time; ++at.kernels; });
  }
  collectives.node.forEach((node, i) => {
    const scope = text(step, nodes.scope[node]) || text(step, collectives.unit[i]);
    add(scope, (at) => { at.collective += timeOf(step, i); at.exposed += collectives.exposed[i]; });
  });
  return root;
}

const total = (costs) => costs.time[0] + costs.time[1] + costs.time[2];

function modulesTab(stepIndex) {
  const step = graph.steps[stepIndex];
  const tree = moduleTree(step);
  const box = element("div");
  const toggle = element("input");
  toggle.type = "checkbox";
  toggle.checked = layersTogether;
  toggle.onchange = () => { layersTogether = toggle.checked; openModules.clear(); openModules.add(""); showTab(); };
  const body = element("tbody");
  const head = element("tr", "", ...["module", "compute", "of all", "forward", "backward", "optimizer", "kernels", "collectives", "exposed"]
    .map((name, i) => element("th", i > 0 ? "number" : "", name)));
  const addRows = (parent, depth) => {
    const parts = [...parent.parts.values()].sort((a, b) => total(b) + b.exposed - total(a) - a.exposed);
    for (const part of parts) {
      body.append(moduleRow(part, depth, total(tree)));
      if (openModules.has(part.path)) addRows(part, depth + 1);
    }
  };
  addRows(tree, 0);
  box.append(element("label", "", toggle, " equal layers together"),
    element("div", "scroll", element("table", "data", element("thead", "", head), body)));
  return [box, element("h3", "", "by op"), opTable(step)];
}

function moduleRow(part, depth, whole) {
  const name = element(part.parts.size ? "button" : "span", "module", part.name);
  name.style.marginLeft = `${depth * 18}px`;
  if (part.parts.size) {
    name.type = "button";
    name.setAttribute("aria-expanded", String(openModules.has(part.path)));
    name.onclick = () => {
      if (!openModules.delete(part.path)) openModules.add(part.path);
      showTab();
    };
  }
  const cell = (content) => element("td", "number", content);
  const time = (ns) => cell(ns > 0 ? formatTime(ns) : "");
  return element("tr", "", element("td", "", name), cell(bar(total(part), whole, "fwd", formatTime(total(part)))), cell(formatShare(total(part), whole)),
    time(part.time[0]), time(part.time[1]), time(part.time[2]), cell(formatCount(part.kernels)), time(part.collective),
    cell(part.exposed > 0 ? element("span", "bad", formatTime(part.exposed)) : ""));
}

function opTable(step) {
  const ops = new Map();
  const {nodes} = step;
  for (let i = 0; i < step.count; ++i) {
    const time = nodes.end[i] - nodes.begin[i];
    if (nodes.kind[i] !== KIND.compute || time <= 0) continue;
    const name = text(step, nodes.op[i]);
    if (!ops.has(name)) ops.set(name, {name, time: 0, count: 0});
    const op = ops.get(name);
    op.time += time;
    ++op.count;
  }
  const rows = [...ops.values()].sort((a, b) => b.time - a.time);
  return makeTable([
    column("op", (r) => r.name),
    {name: "compute", value: (r) => r.time, number: true, show: (r) => bar(r.time, step.compute, "fwd", formatTime(r.time))},
    {name: "of all", value: (r) => r.time, number: true, show: (r) => formatShare(r.time, step.compute)},
    numeric("kernels", (r) => r.count),
    numeric("each", (r) => r.time / r.count, formatTime),
  ], rows);
}
