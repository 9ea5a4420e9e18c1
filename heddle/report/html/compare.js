// The figures of one step, or of two side by side, and their differences, collective by collective.

// For steps with different numbers of tokens, compares only tokens/s, MFU and memory.
const sameTokens = () => graph.steps.every((step) => step.tokens === graph.steps[0].tokens);

function figure(name, show, better, note) {
  const steps = graph.steps;
  const values = steps.map((step) => show(step));
  if (values.every((value) => value === null)) return null;
  const card = element("div", "figure", term("h2", "", name));
  values.forEach((value, i) => {
    const row = element("p", "value", element("b", "", value ?? "–"));
    if (steps.length > 1) row.prepend(element("span", "who", steps[i].name));
    card.append(row);
  });
  if (steps.length === 2 && better) {
    const [a, b] = steps.map(better);
    if (a !== null && b !== null && a !== 0) {
      const change = 100 * (b - a) / Math.abs(a);
      card.append(element("p", `change ${b === a ? "" : (b < a) === (better.down ?? true) ? "good" : "bad"}`, b === a ? "no change" : `${change > 0 ? "+" : "−"}${Math.abs(change).toFixed(1)} %`));
    }
  } else if (note) {
    card.append(element("p", "note", note(steps[0])));
  }
  return card;
}

const less = (get) => get;
const perStep = (get) => sameTokens() ? get : null;
const more = (get) => Object.assign((step) => get(step), {down: false});

function showFigures() {
  const section = byId("figures");
  const cards = [
    figure("step", (s) => formatTime(s.makespan), perStep((s) => s.makespan), (s) => `${s.expected ? `${formatTime(s.expected[0])} to ${formatTime(s.expected[1])} expected; ` : ""}at least ${formatTime(s.bound)}: ${s.bound_name}`),
    figure("exposed", (s) => formatTime(s.exposed), perStep((s) => s.exposed), (s) => `${formatShare(s.exposed, s.makespan)} of the step`),
    figure("compute", (s) => formatTime(s.compute), perStep((s) => s.compute), (s) => `${formatShare(s.compute, s.makespan)} of the step`),
    figure("peak memory", (s) => formatBytes(s.peak), less((s) => s.peak), (s) => s.peak > s.cap ? `does not fit ${formatBytes(s.cap)}` : `${formatShare(s.peak, s.cap)} of ${formatBytes(s.cap)}`),
    figure("MFU", (s) => s.mfu === null ? null : `${(100 * s.mfu).toFixed(1)} %`, more((s) => s.mfu), () => "of the device's peak"),
    figure("tokens/s", (s) => s.tokens_per_second === null ? null : formatCount(s.tokens_per_second), more((s) => s.tokens_per_second),
      (s) => `${formatCount(s.tokens_per_second / s.ranks)} on each device`),
  ];
  section.replaceChildren(...cards.filter(Boolean));
}

function compareTab() {
  const [before, after] = graph.steps;
  const {purposes, units} = graph.comparison;
  const arrow = (a, b, format) => a === b ? format(b) : `${format(a)} → ${format(b)}`;
  const most = Math.max(1, ...purposes.map((r) => Math.abs(r[11] - r[12])));
  const mostUnit = Math.max(1, ...units.map((r) => Math.abs(r[11] - r[12])));
  const columns = (withUnit, whole) => [
    column("phase", (r) => r[0]), column("collective", (r) => r[1]), column("over", (r) => r[2]),
    {name: "why", value: (r) => r[3], show: (r) => whyDot({why: r[3]})},
    ...(withUnit ? [column("unit", (r) => r[4])] : []),
    {name: "launches", value: (r) => r[6] - r[5], number: true, show: (r) => arrow(r[5], r[6], formatCount)},
    {name: "bytes", value: (r) => r[8] - r[7], number: true, show: (r) => arrow(r[7], r[8], formatBytes)},
    {name: "time", value: (r) => r[10] - r[9], number: true, show: (r) => arrow(r[9], r[10], formatTime)},
    {name: "exposed", value: (r) => r[12] - r[11], number: true, show: (r) => arrow(r[11], r[12], formatTime)},
    {name: "saved", value: (r) => r[11] - r[12], number: true,
      show: (r) => bar(Math.abs(r[11] - r[12]), whole, r[11] >= r[12] ? "good" : "exposed", formatTime(r[11] - r[12]))},
    {...column("because", (r) => r[13]), className: "wide"},
  ];
  return [
    element("h3", "", `${before.name} → ${after.name}, by purpose`), makeTable(columns(false, most), purposes),
    element("h3", "", "collective by collective"), makeTable(columns(true, mostUnit), units),
  ];
}
