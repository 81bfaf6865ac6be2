"use strict";
// The canvases of a run: throughput, path strip, steps. Each draws everything once; the time of the player is a line above them.

class Axis { // of time, over the width of a canvas
  constructor(from, to, width) { this.from = from; this.to = to; this.width = width; }
  x(t) { return ((t - this.from) / (this.to - this.from)) * this.width; }
  t(x) { return this.from + (x / this.width) * (this.to - this.from); }

  // Round times in the window, counted from an origin.
  ticks(origin) {
    const least = (this.to - this.from) / Math.max(2, Math.min(7, this.width / 75));
    const unit = 10 ** Math.floor(Math.log10(least));
    const step = unit * [1, 2, 5, 10].find((digit) => digit * unit >= least);
    const ticks = [];
    for (let at = Math.ceil((this.from - origin) / step) * step; at <= this.to - origin; at += step) ticks.push(at + origin);
    return ticks;
  }
}

function palette() {
  const style = getComputedStyle(document.documentElement);
  const colours = {};
  for (const name of ["ink", "soft", "line", "paper", "card", "busy", "backbusy", "fault", ...Object.keys(STATES)]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
  return colours;
}

// Size a canvas for the screen; returns its context, cleared, in CSS pixels.
function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  return context;
}

// Where faults begin and end: shaded, with their names if there is a band for them above.
function drawFaults(context, axis, height, run, colours, band) {
  let named = 0; // where the last name ends
  for (const fault of run.begun()) {
    const from = axis.x(fault.t), to = Math.min(axis.width, axis.x(Math.min(fault.until, run.end)));
    if (to < 0 || from > axis.width) continue;
    context.fillStyle = colours.fault;
    context.globalAlpha = band ? 0.16 : 0.07;
    context.fillRect(Math.max(0, from), 0, Math.max(1, to - Math.max(0, from)), height);
    context.globalAlpha = 1;
    context.strokeStyle = colours.ink;
    context.setLineDash([4, 3]);
    context.beginPath();
    for (const x of [from, fault.until === Infinity ? -1 : axis.x(fault.until)]) {
      if (x < 0 || x > axis.width) continue;
      context.moveTo(Math.round(x) + 0.5, 0);
      context.lineTo(Math.round(x) + 0.5, height);
    }
    context.stroke();
    context.setLineDash([]);
    if (band) {
      context.fillStyle = colours.ink;
      context.font = "600 11px system-ui, sans-serif";
      const width = context.measureText(fault.name).width;
      const at = Math.max(3, Math.min(from + 4, axis.width - width - 3));
      if (at >= named) {
        context.fillText(fault.name, at, band / 2);
        named = at + width + 6;
      }
      context.font = "11px system-ui, sans-serif";
    }
  }
}

const RATE_HEIGHT = 92, RATE_BAND = 16;

function drawRate(canvas, axis, run, top, before, colours) {
  const context = prepare(canvas, axis.width, RATE_HEIGHT);
  const floor = RATE_HEIGHT - 1, height = floor - RATE_BAND;
  const y = (gbps) => floor - (gbps / top) * height;
  drawFaults(context, axis, RATE_HEIGHT, run, colours, RATE_BAND);
  context.fillStyle = run.header.colour || colours.busy;
  context.globalAlpha = 0.85;
  for (const bin of run.bins) {
    const x = axis.x(bin.t), width = axis.x(bin.t + bin.ns) - x;
    if (x + width < 0 || x > axis.width) continue;
    context.fillRect(x, y(run.gbps(bin)), Math.max(0.7, width - (width > 4 ? 0.6 : -0.3)), floor - y(run.gbps(bin)));
  }
  context.globalAlpha = 1;
  context.fillStyle = colours.line;
  context.fillRect(0, floor, axis.width, 1);
  if (before) {
    context.strokeStyle = colours.soft;
    context.setLineDash([2, 3]);
    context.beginPath();
    context.moveTo(0, Math.round(y(before)) + 0.5);
    context.lineTo(axis.width, Math.round(y(before)) + 0.5);
    context.stroke();
    context.setLineDash([]);
  }
}

const GAP = 5; // pixels between planes
const NAMED = 11; // rows of so many pixels have names and letters
const TALL = 15, MOST_TALL = 24; // among rows too thin for names, up to so many that changed are this tall

// Where the rows of a strip are: [{row, y, height}], and the height of all.
function stripRows(pair) {
  const usual = Math.max(2, Math.min(18, Math.floor(300 / pair.rows.length)));
  const changed = pair.rows.filter((row) => row.spans.length > 1).length;
  const places = [];
  let y = 0, plane = pair.rows.length ? pair.rows[0].plane : 0;
  for (const row of pair.rows) {
    if (row.plane !== plane) { y += GAP; plane = row.plane; }
    const height = usual < NAMED && row.spans.length > 1 && changed <= MOST_TALL ? TALL : usual;
    places.push({ row, y, height });
    y += height;
  }
  return { places, height: y };
}

function drawStrip(canvas, axis, run, pair, colours, chosen) {
  const { places, height } = stripRows(pair);
  const context = prepare(canvas, axis.width, height);
  for (const { row, y, height: tall } of places) {
    const inner = tall > 6 ? tall - 2 : tall;
    const own = run.outages;
    row.spans.forEach((span, place) => {
      const from = Math.max(0, axis.x(Math.max(0, span.t))), end = row.spans[place + 1] ? row.spans[place + 1].t : run.end;
      const to = Math.min(axis.width, axis.x(end));
      if (to <= 0 || from >= axis.width || to <= from) return;
      context.fillStyle = colours[span.state];
      context.fillRect(from, y, to - from, inner);
      if (span.state === "backup" || span.state === "idle") hatch(context, from, y, to - from, inner, colours.line);
    });
    drawSent(context, axis, row, pair, y, inner, colours);
    for (const link of row.links) { // what was really broken, whatever the sender believed
      for (const [from, to] of own.get(run.header.links[link].name) || []) {
        const a = Math.max(0, axis.x(from)), b = Math.min(axis.width, axis.x(Math.min(to, run.end)));
        if (b <= 0 || a >= axis.width) continue;
        context.fillStyle = colours.ink;
        context.fillRect(a, y, Math.max(1, b - a), Math.max(1, Math.min(2.5, tall / 6)));
      }
    }
    if (tall >= NAMED) drawLetters(context, axis, row, run, y, inner, colours);
    if (chosen && chosen.has(row.ev)) {
      context.strokeStyle = colours.ink;
      context.lineWidth = 1.5;
      context.strokeRect(0.75, y + 0.75, axis.width - 1.5, Math.max(1, inner - 1.5));
      context.lineWidth = 1;
    }
  }
  drawFaults(context, axis, height, run, colours, 0);
}

function hatch(context, x, y, width, height, colour) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = colour;
  context.beginPath();
  for (let at = x - height; at < x + width; at += 7) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.stroke();
  context.restore();
}

// Packets per bin as bars from the bottom of the row.
function drawSent(context, axis, row, pair, y, tall, colours) {
  for (let at = Math.max(0, lastAt(row.sent, axis.from) - 1); at < row.sent.length; at += 1) {
    const bin = row.sent[at];
    const x = axis.x(bin.t), to = axis.x(bin.t + bin.ns);
    if (to < 0) continue;
    if (x > axis.width) break;
    const span = row.spans[Math.max(0, lastAt(row.spans, bin.t + bin.ns / 2))];
    const high = Math.max(1, (bin.count / Math.max(1, pair.most)) * (tall - 3));
    context.fillStyle = span.state === "back" ? colours.backbusy : colours.busy;
    if (OUT.has(span.state)) context.fillStyle = colours.ink;
    context.globalAlpha = OUT.has(span.state) ? 0.35 : 0.8;
    context.fillRect(x, y + tall - high, Math.max(0.8, to - x - (to - x > 4 ? 0.6 : -0.2)), high);
  }
  context.globalAlpha = 1;
}

// A letter or shape at the begin of every span that is not plain use.
function drawLetters(context, axis, row, run, y, tall, colours) {
  row.spans.forEach((span, place) => {
    const letter = STATES[span.state].letter;
    const end = row.spans[place + 1] ? row.spans[place + 1].t : run.end;
    const from = axis.x(span.t), to = axis.x(end);
    if (!letter || to < 4 || from > axis.width - 6 || to - Math.max(0, from) < 9) return;
    context.font = "700 11px system-ui, sans-serif";
    context.fillStyle = span.state === "denied" ? colours.paper : colours.ink;
    context.fillText(letter, Math.max(3, from + 3), y + tall / 2 + 1);
  });
}

// The height of a rank's lane.
function laneOf(run) { return Math.max(3, Math.min(13, Math.floor(300 / run.steps.length))); }

function drawSteps(canvas, axis, run, colours) {
  const lane = laneOf(run), height = lane * run.steps.length, inner = lane > 6 ? lane - 3 : lane - 1;
  const context = prepare(canvas, axis.width, height);
  const ideal = run.header.ideal_step_ns;
  run.steps.forEach((steps, rank) => {
    const y = rank * lane;
    for (const step of steps) {
      const from = axis.x(step.start), to = axis.x(step.t);
      if (to < 0 || from > axis.width) continue;
      const a = Math.max(0, from), b = Math.min(axis.width, to);
      const due = ideal ? Math.max(a, Math.min(b, axis.x(step.start + ideal))) : b;
      context.fillStyle = step.ok ? (step.step < 0 ? colours.line : run.header.colour || colours.busy) : colours.died;
      context.globalAlpha = 0.85;
      context.fillRect(a, y + 1, Math.max(0, due - a), inner);
      context.globalAlpha = 0.3;
      context.fillRect(due, y + 1, Math.max(0, b - due), inner);
      context.globalAlpha = 1;
      context.fillStyle = colours.ink;
      if (ideal && axis.x(step.start + ideal) < b) context.fillRect(due - 0.5, y, 1.5, lane - 1);
      context.fillStyle = colours.card;
      context.fillRect(b - 1, y, 2, lane - 1);
      if (rank === 0 && lane > 9 && b - a > 18 && step.step >= 0) {
        context.fillStyle = colours.ink;
        context.font = "10px system-ui, sans-serif";
        context.fillText(String(step.step), a + 3, y + lane / 2);
      }
    }
  });
  drawFaults(context, axis, height, run, colours, 0);
}
