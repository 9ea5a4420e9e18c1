// Formatting of numbers, elements, the theme and the terms, shared by all pages.

function scaled(value, units) {
  const size = Math.abs(value);
  let unit = units[0];
  for (const candidate of units) if (size >= candidate[0]) unit = candidate;
  const number = value / unit[0];
  const digits = Number.isInteger(number) && unit === units[0] ? 0 : Math.abs(number) >= 100 ? 1 : 2;
  return `${number.toFixed(digits)} ${unit[1]}`;
}
const formatTime = (ns) => scaled(ns, [[1, "ns"], [1e3, "us"], [1e6, "ms"], [1e9, "s"]]);
const formatBytes = (bytes) => scaled(bytes, [[1, "B"], [2 ** 10, "KiB"], [2 ** 20, "MiB"], [2 ** 30, "GiB"], [2 ** 40, "TiB"]]);
const formatCount = (count) => Math.round(count).toLocaleString("en-US");
const formatShare = (part, whole) => whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : "";

// An element with a class and children. Strings stay text.
function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
const byId = (id) => document.getElementById(id);

// Switches between light and dark. Until then the page follows the system's setting.
function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

// --- Terms

const TERMS = {
  "step": "Simulated time of one training step, from the first kernel to the end of the last kernel or collective.",
  "compute": "Time in which the compute stream runs kernels.",
  "exposed": "Communication that costs step time: compute waits for a collective, or collectives run after the last kernel.",
  "hidden": "Communication that runs at the same time as compute and costs no step time.",
  "at least": "Lower bound: no order of the same kernels and collectives takes less time.",
  "critical path": "The chain of kernels and collectives that determines the step time.",
  "peak memory": "Most memory that one device uses at any time of the step, compared with the memory limit.",
  "MFU": "Model FLOP/s utilization: FLOPs of the model's matrix products (backward counts twice forward, recomputation does not count), divided by the FLOPs that the devices could do at peak in the same time.",
  "tokens/s": "Tokens of one step on all devices, divided by the step time.",
  "unit": "Parameters that are gathered together and whose gradients are reduced together.",
  "unshard": "All-gather of sharded weights before they are used.",
  "grad": "Reduction of gradients over data-parallel ranks.",
  "tensor": "Collective of tensor parallelism between activations.",
  "expert": "Exchange of tokens between ranks that hold different experts.",
  "context": "Exchange of keys, values or heads between ranks with different positions of a sequence.",
  "loss": "Sum of the loss over ranks.",
  "norm": "Sum of the gradients' squares over ranks, for clipping by global norm.",
  "queued": "Time that a collective waits for earlier ones of its communicator.",
  "budget": "Memory that a plan may use on one device.",
  "dp, dp_replicate, cp, tp, ep": "Ranks of a mesh axis: sharded data parallelism, replicas, context parallelism, tensor parallelism, expert parallelism.",
  "micro-batches": "Parts of a batch that run one after the other; gradients are added up, and the optimizer runs once.",
  "min-cut, selective, full": "What backward recomputes instead of keeping: inexpensive ops, TorchTitan's list, or whole layers.",
  "reshard never": "Gathered weights stay in memory until backward instead of being gathered again.",
  "scheduled by overlap": "The order of collectives was searched by simulation instead of prefetching one unit ahead.",
};

// An element whose tooltip explains a term, if there is an explanation.
function term(tag, className, name) {
  const made = element(tag, className, name);
  if (TERMS[name]) {
    made.title = TERMS[name];
    made.classList.add("term");
  }
  return made;
}

function showTerms(names) {
  const list = element("dl", "terms");
  for (const name of names) list.append(element("dt", "", name), element("dd", "", TERMS[name]));
  byId("terms").append(list);
}
