// The lanes of a step: one per stream, with a block for each timed event.

const RULER = 22;
const LANE = 30;
const LANE_GAP = 5;

const laneTop = (index) => RULER + index * (LANE + LANE_GAP);
const lanesHeight = (step) => laneTop(step.lanes.length) + 4;

function colorOf(step, lane, i) {
  const node = lane.node[i];
  switch (lane.block[i]) {
    case BLOCK.launch: return colors.launch;
    case BLOCK.unpack: return colors.launch;
    case BLOCK.collective: return colors[text(step, step.collectives.why[step.collectiveOf[node]])] || colors.copy;
    default: return colors[PHASES[step.nodes.phase[node]]];
  }
}

function drawRuler(chart, context, view, height) {
  context.fillStyle = colors.muted;
  context.strokeStyle = colors.line;
  context.lineWidth = 1;
  context.textAlign = "center";
  for (const time of ticks(view, chart.plotWidth, 90)) {
    const x = Math.round(chart.x(time, view)) + 0.5;
    context.beginPath();
    context.moveTo(x, RULER - 5);
    context.lineTo(x, height);
    context.stroke();
    if (x > GUTTER + 20 && x < chart.width - 20) context.fillText(time === 0 ? "0" : formatTime(time), x, 9);
  }
  context.textAlign = "left";
}

// A red line under the block of a collective while compute waits for it.
function drawExposed(chart, context, view, step, node, y) {
  const i = step.collectiveOf[node];
  if (step.collectives.exposed[i] === 0) return;
  const {reached, begin, end} = step.nodes;
  const wait = step.collectives.wait[i];
  const from = wait >= 0 ? Math.max(reached[wait], begin[node]) : Math.max(end[node] - step.collectives.exposed[i], begin[node]);
  const to = wait >= 0 ? Math.min(begin[wait], end[node]) : end[node];
  if (to <= from) return;
  const xa = chart.x(from, view);
  context.fillStyle = colors.exposed;
  context.fillRect(xa, y + LANE - 5, Math.max(chart.x(to, view) - xa, 1), 5);
}

function drawBlocks(chart, context, view, step, lane, y, marked) {
  const scale = chart.plotWidth / (view.end - view.begin);
  // Compute fills its lane: blocks narrower than a pixel blend into their average. Collectives are
  // drawn separately and stay visible.
  const blend = lane === step.lanes[0] && !marked;
  let lastPixel = -1;
  for (let i = lane.from(view.begin); i < lane.length && lane.begin[i] < view.end; ++i) {
    const xa = Math.max(chart.x(lane.begin[i], view), GUTTER - 2);
    const width = (lane.end[i] - Math.max(lane.begin[i], view.begin)) * scale;
    const pixel = Math.floor(xa);
    if (width < 0.7 && pixel === lastPixel && !blend && !marked) continue;
    lastPixel = pixel;
    const isWaiting = lane.block[i] === BLOCK.waiting;
    context.globalAlpha = marked && !marked(lane, i) ? 0.14 : 1;
    context.fillStyle = !isWaiting ? colorOf(step, lane, i) : width < 3 ? colors.exposed : exposedPattern(context);
    const gap = width > 5 ? 1 : 0;
    context.fillRect(xa, y, Math.max(Math.min(width, chart.width) - gap, blend ? 0 : 0.8), LANE);
    if (lane.block[i] === BLOCK.collective) drawExposed(chart, context, view, step, lane.node[i], y);
    if (width > 26 && !isWaiting) {
      context.fillStyle = colors.panel;
      const shown = text(step, step.nodes.name[lane.node[i]]).replace(/^%/, "");
      context.fillText(fitText(context, shown, Math.min(width, chart.width) - 8), xa + 4, y + LANE / 2 + 0.5);
    }
  }
  context.globalAlpha = 1;
}

function drawLanes(chart, context, view, step, marked) {
  drawRuler(chart, context, view, lanesHeight(step) - 4);
  step.lanes.forEach((lane, index) => {
    const y = laneTop(index);
    context.fillStyle = colors.ink;
    context.font = "600 11px system-ui, sans-serif";
    context.fillText(fitText(context, lane.name, GUTTER - 14), 8, y + LANE / 2 - 6);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colors.muted;
    context.fillText(formatTime(step.busy[index]), 8, y + LANE / 2 + 8);
    chart.clip(context);
    context.fillStyle = colors.faint;
    context.fillRect(GUTTER, y, chart.plotWidth, LANE);
    drawBlocks(chart, context, view, step, lane, y, marked);
    context.restore();
  });
}

// The block at a point, including one that is too narrow to hit.
function blockAt(chart, view, step, x, y) {
  const index = Math.floor((y - RULER) / (LANE + LANE_GAP));
  if (x < GUTTER || index < 0 || index >= step.lanes.length || y - laneTop(index) > LANE) return null;
  const lane = step.lanes[index];
  const slack = 3 * (view.end - view.begin) / chart.plotWidth;
  const time = chart.time(x, view);
  const i = lane.from(time - slack);
  if (i >= lane.length || lane.begin[i] > time + slack) return null;
  // Of two near blocks, the one under the point.
  const next = i + 1 < lane.length && lane.begin[i + 1] <= time && lane.end[i] < time ? i + 1 : i;
  return {lane: index, i: next};
}

function outline(chart, context, view, step, block, color) {
  const lane = step.lanes[block.lane];
  const xa = chart.x(lane.begin[block.i], view);
  const xb = chart.x(lane.end[block.i], view);
  context.strokeStyle = color;
  context.lineWidth = 2;
  context.strokeRect(xa - 1, laneTop(block.lane) - 1, Math.max(xb - xa, 2) + 2, LANE + 2);
}

// A line from the launch of a collective to its block, and from there to its wait.
function drawThread(chart, context, view, step, block) {
  const node = step.lanes[block.lane].node[block.i];
  const i = step.collectiveOf[node];
  if (i < 0) return;
  const start = step.collectives.node[i];
  const wait = step.collectives.wait[i];
  const {reached, begin, end} = step.nodes;
  const top = laneTop(step.collectives.stream[i]);
  const curve = (from, y, to, target) => {
    context.beginPath();
    context.moveTo(from, y);
    context.bezierCurveTo(from, (y + target) / 2, to, (y + target) / 2, to, target);
    context.stroke();
  };
  context.strokeStyle = colors.ink;
  context.lineWidth = 1.5;
  curve(chart.x(reached[start], view), laneTop(0) + LANE, chart.x(begin[start], view), top);
  if (wait >= 0) curve(chart.x(end[start], view), top, chart.x(begin[wait], view), laneTop(0) + LANE);
}
