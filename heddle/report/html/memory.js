// The memory of a step over time, by use, with the memory limit.

// A single step has the height of two.
const memoryHeight = () => graph.steps.length > 1 ? 120 : 250;

// The value at the top of the plot: the limit, unless the step is far below it. A device may use
// less than its values (docs/gpu.md).
function memoryScale(step) {
  const values = step.count > 0 ? step.nodes.live[step.peak_position] : 0;
  const top = Math.max(step.peak, values) * 1.12 || 1;
  return step.cap <= step.peak * 4 ? Math.max(top, step.cap * 1.06) : top;
}

// For each pixel, the position with the most memory within it.
function memoryColumns(chart, view, step) {
  const {reached, left, live} = step.nodes;
  const out = [];
  if (step.count === 0) return out;
  let position = nodeAt(step, view.begin);
  for (let x = 0; x < chart.plotWidth; ++x) {
    const until = view.begin + (x + 1) / chart.plotWidth * (view.end - view.begin);
    let most = position;
    while (position + 1 < step.count && reached[position + 1] < until) {
      ++position;
      if (live[position] > live[most]) most = position;
    }
    // After the last node, the page does not know what is freed.
    out.push(most);
    if (left[step.count - 1] < until && position + 1 >= step.count && until > step.makespan) break;
  }
  return out;
}

function drawMemory(chart, context, view, step, top, scale) {
  const height = memoryHeight();
  const y = (bytes) => top + height - bytes / scale * height;
  context.fillStyle = colors.ink;
  context.font = "600 11px system-ui, sans-serif";
  context.fillText("memory", 8, top + 10);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = colors.muted;
  context.fillText("peak", 8, top + 26);
  context.fillText(formatBytes(step.peak), 8, top + 40);
  chart.clip(context);
  context.fillStyle = colors.faint;
  context.fillRect(GUTTER, top, chart.plotWidth, height);
  const columns = memoryColumns(chart, view, step);
  const sums = new Float64Array(columns.length);
  step.stacks.forEach((stack, held) => {
    context.fillStyle = colors["held" + held];
    context.beginPath();
    columns.forEach((position, x) => context.lineTo(GUTTER + x, y(sums[x])));
    for (let x = columns.length - 1; x >= 0; --x) {
      sums[x] += stack[columns[x]];
      context.lineTo(GUTTER + x, y(sums[x]));
    }
    context.fill();
  });
  drawLimit(chart, context, step, y, top, scale);
  context.restore();
}

function drawLimit(chart, context, step, y, top, scale) {
  const over = step.peak > step.cap;
  const words = `limit ${formatBytes(step.cap)}` + (over ? ", does not fit" : "");
  context.fillStyle = over ? colors.exposed : colors.muted;
  context.textAlign = "right";
  if (step.cap <= scale) {
    const line = Math.round(y(step.cap)) + 0.5;
    context.strokeStyle = colors.exposed;
    context.setLineDash([6, 4]);
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(GUTTER, line);
    context.lineTo(GUTTER + chart.plotWidth, line);
    context.stroke();
    context.setLineDash([]);
    context.fillText(words, GUTTER + chart.plotWidth - 6, Math.max(line + 10, top + 10));
  } else {
    context.fillText(words + " is above this plot", GUTTER + chart.plotWidth - 6, top + 10);
  }
  context.textAlign = "left";
}

function drawPeak(chart, context, view, step, top, scale) {
  if (step.count === 0) return;
  const time = step.nodes.reached[step.peak_position];
  const x = chart.x(time, view);
  if (x < GUTTER || x > GUTTER + chart.plotWidth) return;
  context.fillStyle = colors.ink;
  context.beginPath();
  context.arc(x, top + memoryHeight() * (1 - step.peak / scale), 3, 0, 2 * Math.PI);
  context.fill();
}

// The storages that exist while a node runs, the largest first.
function aliveAt(step, position, most) {
  const {bytes, birth, death} = step.storages;
  const out = [];
  for (let i = 0; i < bytes.length; ++i) {
    if (birth[i] <= position && (death[i] < 0 || position <= death[i])) out.push(i);
  }
  out.sort((a, b) => bytes[b] - bytes[a] || a - b);
  return {count: out.length, largest: out.slice(0, most)};
}
