// A canvas with two layers: one that changes with the visible time range, and one that changes with
// the pointer.

const GUTTER = 96;
const PAD_RIGHT = 12;

let colors = {};
function readColors() {
  const style = getComputedStyle(document.documentElement);
  const names = ["ink", "muted", "faint", "line", "panel", "ground", "accent", "fwd", "bwd", "opt", "launch", "exposed",
    "unshard", "grad", "tensor", "expert", "context", "loss", "norm", "copy",
    "held0", "held1", "held2", "held3", "held4", "held5", "held6"];
  colors = Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
  hatch = null;
}

let hatch = null;
// Stripes for time in which compute is idle.
function exposedPattern(context) {
  if (hatch) return hatch;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const draw = tile.getContext("2d");
  draw.globalAlpha = 0.28;
  draw.fillStyle = colors.exposed;
  draw.fillRect(0, 0, 8, 8);
  draw.globalAlpha = 1;
  draw.strokeStyle = colors.exposed;
  draw.lineWidth = 2;
  draw.beginPath();
  for (const x of [-8, 0, 8]) { draw.moveTo(x, 8); draw.lineTo(x + 8, 0); }
  draw.stroke();
  return hatch = context.createPattern(tile, "repeat");
}

class Chart {
  constructor(parent, height) {
    this.box = element("div", "chart");
    this.base = document.createElement("canvas");
    this.over = document.createElement("canvas");
    this.box.append(this.base, this.over);
    parent.append(this.box);
    this.setHeight(height);
  }
  setHeight(height) {
    this.height = height;
    this.box.style.height = `${height}px`;
  }
  // Both contexts, cleared, in CSS pixels.
  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.box.clientWidth;
    for (const canvas of [this.base, this.over]) {
      const width = Math.round(this.width * ratio);
      const height = Math.round(this.height * ratio);
      if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    }
  }
  context(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    return context;
  }
  get plotWidth() { return Math.max(this.width - GUTTER - PAD_RIGHT, 1); }
  x(time, view) { return GUTTER + (time - view.begin) / (view.end - view.begin) * this.plotWidth; }
  time(x, view) { return view.begin + (x - GUTTER) / this.plotWidth * (view.end - view.begin); }
  // Draws inside the plot, not over the names to its left.
  clip(context) {
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, this.plotWidth, this.height);
    context.clip();
  }
}

// Round times at least `least` pixels apart.
function ticks(view, width, least) {
  const rough = (view.end - view.begin) / Math.max(width / least, 1);
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? 10 * power;
  const out = [];
  for (let t = Math.ceil(view.begin / step) * step; t <= view.end; t += step) out.push(t);
  return out;
}

// The part of `words` that fits into `width`; empty if too little fits.
function fitText(context, words, width) {
  if (width < 18) return "";
  if (context.measureText(words).width <= width) return words;
  let length = Math.floor(width / 6);
  while (length > 1 && context.measureText(words.slice(0, length) + "…").width > width) --length;
  return length > 1 ? words.slice(0, length) + "…" : "";
}
