// The coordinates of a pipeline: a row of actions and bubbles for each.

const PIPELINE_ROW = 26;
const PIPELINE_GAP = 4;
let pipelineChart = null;
// {row, action} or {row, bubble} under the pointer.
let pipelineHover = null;

const pipelineTop = (row) => RULER + row * (PIPELINE_ROW + PIPELINE_GAP);
const pipelineRange = () => ({begin: 0, end: pipeline.step});

// Actions are [token, stage, micro-batch, whether forward, begin, end]; bubbles are [kind, begin,
// end, hop, tag, other coordinate].
function drawPipeline() {
  const chart = pipelineChart;
  chart.resize();
  const context = chart.context(chart.base);
  const range = pipelineRange();
  const height = pipelineTop(pipeline.rows.length);
  drawRuler(chart, context, range, height);
  pipeline.rows.forEach(({actions, bubbles}, row) => {
    const y = pipelineTop(row);
    context.fillStyle = colors.ink;
    context.font = `${row === pipeline.slowest ? "600 " : ""}11px system-ui, sans-serif`;
    context.fillText(row === pipeline.slowest ? `${row}, slowest` : String(row), 8, y + PIPELINE_ROW / 2);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colors.faint;
    context.fillRect(GUTTER, y, chart.plotWidth, PIPELINE_ROW);
    for (const [, begin, end] of bubbles) {
      const x = chart.x(begin, range);
      context.fillStyle = exposedPattern(context);
      context.fillRect(x, y, chart.x(end, range) - x, PIPELINE_ROW);
    }
    for (const [token, stage, batch, forward, begin, end] of actions) {
      const x = chart.x(begin, range);
      const width = chart.x(end, range) - x;
      context.fillStyle = forward ? colors.fwd : colors.bwd;
      // Stages of one coordinate differ in shade.
      context.globalAlpha = actions[0][1] === stage ? 1 : 0.7;
      context.fillRect(x, y, Math.max(width - (width > 4 ? 1 : 0), 0.5), PIPELINE_ROW);
      context.globalAlpha = 1;
      context.fillStyle = colors.panel;
      if (width > 14) context.fillText(fitText(context, width > 34 ? token : String(batch), width - 4), x + 3, y + PIPELINE_ROW / 2 + 0.5);
    }
  });
  drawPipelineHover();
}

// Outlines all actions of the micro-batch under the pointer.
function drawPipelineHover() {
  const context = pipelineChart.context(pipelineChart.over);
  if (!pipelineHover) return;
  const range = pipelineRange();
  const box = (row, begin, end, color) => {
    const x = pipelineChart.x(begin, range);
    context.strokeStyle = color;
    context.lineWidth = 2;
    context.strokeRect(x, pipelineTop(row), Math.max(pipelineChart.x(end, range) - x, 2), PIPELINE_ROW);
  };
  const {row, action, bubble} = pipelineHover;
  if (bubble) return box(row, bubble[1], bubble[2], colors.exposed);
  pipeline.rows.forEach(({actions}, at) => {
    for (const other of actions) if (other[2] === action[2]) box(at, other[4], other[5], colors.accent);
  });
  box(row, action[4], action[5], colors.ink);
}

const actionAt = (row, time) => pipeline.rows[row].actions.find(([, , , , begin, end]) => begin <= time && time < end);

function pipelineAt(event) {
  const box = pipelineChart.box.getBoundingClientRect();
  const x = event.clientX - box.left;
  const row = Math.floor((event.clientY - box.top - RULER) / (PIPELINE_ROW + PIPELINE_GAP));
  if (row < 0 || row >= pipeline.rows.length) return null;
  const time = pipelineChart.time(x, pipelineRange());
  const action = x < GUTTER ? null : actionAt(row, time);
  const bubble = x < GUTTER ? null : pipeline.rows[row].bubbles.find(([, begin, end]) => begin <= time && time < end);
  return {row, time, action, bubble};
}

const BUBBLES = {fill: "before the first action", steady: "between actions", drain: "after the last action"};
function pipelineFacts({row, action, bubble}) {
  const facts = [["coordinate", row === pipeline.slowest ? `${row}, the slowest` : String(row)]];
  if (bubble) {
    const [kind, begin, end, hop, tag, other] = bubble;
    const busy = actionAt(other, begin);
    facts.push(["bubble", `${formatTime(end - begin - hop)}, ${BUBBLES[kind]}`], ["from", `${formatTime(begin)} to ${formatTime(end)}`]);
    if (hop > 0) facts.push(["on the way", formatTime(hop)]);
    facts.push(["waits for", tag ? `${tag} of coordinate ${other}` : `coordinate ${other}, which ends last`]);
    if (busy) facts.push(["which runs", busy[0]]);
    return facts;
  }
  const [token, stage, batch, , begin, end] = action;
  facts.push(["micro-batch", String(batch)], ["stage", String(stage)], ["action", token], ["takes", formatTime(end - begin)], ["from", `${formatTime(begin)} to ${formatTime(end)}`]);
  return facts;
}

function onPipelineMove(event) {
  const at = pipelineAt(event);
  pipelineHover = at && (at.action || at.bubble) ? at : null;
  // A bubble inside of an action is what the pointer is on.
  if (pipelineHover && at.action && at.bubble) pipelineHover = {...at, action: null};
  pipelineChart.box.style.cursor = at ? "pointer" : "";
  const tip = byId("tip");
  tip.hidden = !pipelineHover;
  if (pipelineHover) {
    const list = element("dl");
    for (const [name, value] of pipelineFacts(pipelineHover)) list.append(element("dt", "", name), element("dd", "", value));
    tip.replaceChildren(list);
    placeTip(tip, event.clientX, event.clientY);
  }
  drawPipelineHover();
}

// Shows the coordinate under the pointer below, zoomed to the action.
function onPipelineClick(event) {
  const at = pipelineAt(event);
  if (!at) return;
  byId("graphs").value = String(at.row);
  showGraph(at.row);
  const range = at.bubble ? [at.bubble[1], at.bubble[2]] : at.action ? [at.action[4], at.action[5]] : null;
  if (range) show(range[0] - (range[1] - range[0]) * 0.2, range[1] + (range[1] - range[0]) * 0.2);
}

function startPipeline() {
  if (!pipeline) return;
  byId("pipeline").hidden = false;
  const gap = pipeline.bound > 0 ? `, ${(100 * (pipeline.step / pipeline.bound - 1)).toFixed(1)} % above the bound ${formatTime(pipeline.bound)}` : "";
  byId("pipeline-title").textContent = `${pipeline.schedule ? pipeline.schedule + ": " : ""}${formatCount(pipeline.stages)} stages, ${formatCount(pipeline.micro_batches)} micro-batches, ${formatTime(pipeline.step)}${gap}; bubble ${formatShare(pipeline.bubble, pipeline.step)}; slowest: coordinate ${pipeline.slowest}`;
  pipelineChart = new Chart(byId("pipeline-chart"), pipelineTop(pipeline.rows.length) + 2);
  pipelineChart.box.addEventListener("mousemove", onPipelineMove);
  pipelineChart.box.addEventListener("mouseleave", () => { pipelineHover = null; byId("tip").hidden = true; drawPipelineHover(); });
  pipelineChart.box.addEventListener("click", onPipelineClick);
}
