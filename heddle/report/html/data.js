// Prepares the data of the page: columns of differences become columns of values, and nodes become
// blocks of lanes.

const PHASES = ["fwd", "bwd", "opt"];
const KIND = {compute: 0, start: 1, wait: 2};
// The kinds of blocks in a lane.
const BLOCK = {compute: 0, launch: 1, waiting: 2, unpack: 3, collective: 4};

function running(column) {
  const out = new Float64Array(column.length);
  let sum = 0;
  for (let i = 0; i < column.length; ++i) out[i] = sum += column[i];
  return out;
}

function plus(a, b) {
  const out = new Float64Array(a.length);
  for (let i = 0; i < a.length; ++i) out[i] = a[i] + b[i];
  return out;
}

class Lane {
  constructor(name) {
    this.name = name;
    this.begin = [];
    this.end = [];
    this.node = [];
    this.block = [];
  }
  add(begin, end, node, block) {
    if (end <= begin) return;
    this.begin.push(begin);
    this.end.push(end);
    this.node.push(node);
    this.block.push(block);
  }
  get length() { return this.begin.length; }
  // The first block that ends after `time`.
  from(time) { return upper(this.end, time); }
}

// The first index whose value exceeds `value`. The column never decreases.
function upper(column, value) {
  let low = 0;
  let high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] > value) high = middle; else low = middle + 1;
  }
  return low;
}

function makeLanes(step) {
  const lanes = step.streams.map((name) => new Lane(name));
  const {kind, reached, begin, end, left} = step.nodes;
  for (let i = 0; i < step.count; ++i) {
    if (kind[i] === KIND.start) {
      lanes[0].add(reached[i], left[i], i, BLOCK.launch);
      lanes[step.collectives.stream[step.collectiveOf[i]]].add(begin[i], end[i], i, BLOCK.collective);
    } else if (kind[i] === KIND.wait) {
      lanes[0].add(reached[i], begin[i], i, BLOCK.waiting);
      lanes[0].add(begin[i], end[i], i, BLOCK.unpack);
    } else {
      lanes[0].add(begin[i], end[i], i, BLOCK.compute);
    }
  }
  // Compute has finished, but an operation without a wait has not.
  const over = step.count ? left[step.count - 1] : 0;
  let last = -1;
  step.collectives.node.forEach((node) => { if (last < 0 || end[node] > end[last]) last = node; });
  if (last >= 0 && end[last] > over) lanes[0].add(over, step.makespan, last, BLOCK.waiting);
  return lanes;
}

// Bytes of each group of storages while each node runs.
function stackMemory(step) {
  const {bytes, birth, death, held} = step.storages;
  const stacks = step.held_names.map(() => new Float64Array(step.count + 1));
  for (let i = 0; i < bytes.length; ++i) {
    stacks[held[i]][Math.max(birth[i], 0)] += bytes[i];
    if (death[i] >= 0) stacks[held[i]][death[i] + 1] -= bytes[i];
  }
  return stacks.map((changes) => running(changes));
}

function prepare(step) {
  const nodes = step.nodes;
  step.count = nodes.name.length;
  nodes.reached = running(nodes.reached);
  nodes.begin = plus(nodes.reached, nodes.begin);
  nodes.end = plus(nodes.begin, nodes.end);
  nodes.left = plus(nodes.reached, nodes.left);
  nodes.live = running(nodes.live);
  step.critical = new Set(running(step.critical));
  step.collectiveOf = new Int32Array(step.count).fill(-1);
  step.collectives.node.forEach((node, i) => {
    step.collectiveOf[node] = i;
    const wait = step.collectives.wait[i];
    if (wait >= 0) step.collectiveOf[wait] = i;
  });
  step.lanes = makeLanes(step);
  step.stacks = stackMemory(step);
  return step;
}

const {graphs, pipeline} = JSON.parse(document.getElementById("data").textContent);
for (const graph of graphs) graph.steps.forEach(prepare);

// --- Facts of one step

const text = (step, number) => step.strings[number];
const reasonsOf = (step, i) => step.reason_names
  .map((name, r) => ({name, time: step.collectives["reason" + r][i]}))
  .filter((reason) => reason.time > 0)
  .sort((a, b) => b.time - a.time);
const timeOf = (step, i) => {
  const node = step.collectives.node[i];
  return step.nodes.end[node] - step.nodes.begin[node];
};
// The node that runs on the compute stream at `time`.
const nodeAt = (step, time) => Math.min(Math.max(upper(step.nodes.reached, time) - 1, 0), step.count - 1);
const formatReasons = (step, i) => reasonsOf(step, i).map((r) => `${r.name} ${formatTime(r.time)}`).join(", ");
