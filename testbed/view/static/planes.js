"use strict";
// The planes of a fabric as cards: every cable a button, coloured by what its ports carried at the time of the player.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = { t1: 8, hosts: 32 }; // of a plane, at most: beyond them a matrix, T0 x T1, instead of lines
const METRICS = {
  rate: { word: "rate", unit: "of the link", of: (row, ns, link) => (row[1] * 8) / ns / link.gbps, top: 1 },
  queue: { word: "queue", unit: "of the buffer", of: (row, ns, link, buffer) => row[2] / buffer, top: 0.25 },
  marks: { word: "marks", unit: "packets", of: (row) => row[3], top: 20 },
  trims: { word: "trims", unit: "packets", of: (row) => row[4], top: 5 },
  drops: { word: "drops", unit: "packets", of: (row) => row[5], top: 5 },
};
const HEAT = [0.02, 0.2, 0.4, 0.6, 0.8]; // from which share of the top each darker colour begins

function svg(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function level(value, top) {
  const share = value / top;
  return HEAT.reduce((best, from, number) => (share >= from ? number + 1 : best), 0);
}

class Planes {
  // onLink(number): a cable was chosen.
  constructor(run, onLink) {
    this.run = run;
    this.onLink = onLink;
    this.cables = run.header.links.map(() => null); // number -> {node, lines, cross, seen}
    this.node = document.createElement("div");
    this.node.className = "planes";
    for (let plane = 0; plane < run.header.fabric.planes; plane += 1) this.node.append(this.card(plane));
  }

  card(plane) {
    const { fabric, links } = this.run.header;
    const own = links.map((link, number) => ({ ...link, number })).filter((link) => link.plane === plane);
    const nics = own.filter((link) => link.kind === "nic"), cables = own.filter((link) => link.kind !== "nic");
    const card = document.createElement("section");
    card.className = "card";
    const head = document.createElement("h4");
    head.textContent = `plane ${plane}`;
    head.id = `plane-${this.run.index}-${plane}`;
    const drawing = fabric.t1 > DRAWN.t1 || fabric.hosts > DRAWN.hosts ? this.matrix(nics, cables) : this.clos(nics, cables);
    drawing.setAttribute("role", "group");
    drawing.setAttribute("aria-labelledby", head.id);
    card.append(head, drawing);
    this.rove(drawing);
    return card;
  }

  clos(nics, cables) {
    const own = [...cables, ...nics];
    const { fabric } = this.run.header;
    const hauls = cables.filter((link) => link.kind === "haul"); // between T1s: bars above them, one above the other
    const width = 280, top = 16 + 4 * hauls.length, middle = 74, bottom = 126;
    const place = (count, number) => ((number + 0.5) / count) * width;
    const at = (node) => {
      if (node.startsWith("h")) return [place(fabric.hosts, Number(node.slice(1))), bottom];
      const [, tier, number] = node.split("-");
      return tier === "t0" ? [place(fabric.t0, Number(number)), middle] : [place(fabric.t1, Number(number)), top];
    };
    const drawing = svg("svg", { viewBox: `0 0 ${width} 142`, class: "clos" });
    for (const link of own) {
      const bar = hauls.indexOf(link), ends = [at(link.a), at(link.b)];
      if (bar >= 0) for (const end of ends) end[1] = top - 12 - 4 * bar;
      drawing.append(this.cable(link, ...ends));
    }
    for (const link of own) drawing.append(this.cables[link.number].cross); // above all cables
    const node = (x, y, name, wide, tall) => {
      drawing.append(
        svg("rect", { x: x - wide / 2, y: y - tall / 2, width: wide, height: tall, rx: 3, class: "node", "aria-hidden": "true" }),
        svg("text", { x, y: y + 3.5, class: "name", "aria-hidden": "true" }, name),
      );
    };
    for (let i = 0; i < fabric.t1; i += 1) node(place(fabric.t1, i), top, `T1 ${i}`, Math.min(38, width / fabric.t1 - 4), 17);
    for (let i = 0; i < fabric.t0; i += 1) node(place(fabric.t0, i), middle, `T0 ${i}`, Math.min(90, width / fabric.t0 - 4), 17);
    const wide = Math.min(26, width / fabric.hosts - 1.5);
    if (wide > 11) for (let i = 0; i < fabric.hosts; i += 1) node(place(fabric.hosts, i), bottom + 6, wide > 18 ? `h${i}` : String(i), wide, 14);
    return drawing;
  }

  // Two lines, one a direction: from the lower node up, and down again.
  cable(link, [x, y], [u, v]) {
    const long = Math.hypot(u - x, v - y) || 1, dx = ((v - y) / long) * 1.8, dy = (-(u - x) / long) * 1.8;
    const lines = [1, -1].map((side) => svg("line", { x1: x + dx * side, y1: y + dy * side, x2: u + dx * side, y2: v + dy * side, class: "heat h0" }));
    const cross = svg("text", { x: (x + u) / 2, y: (y + v) / 2 + 5, class: "cross", "aria-hidden": "true" }, "✕");
    const group = this.button(link, lines, cross);
    group.append(svg("line", { x1: x, y1: y, x2: u, y2: v, class: "hit" }), ...lines);
    return group;
  }

  matrix(nics, cables) {
    const { fabric } = this.run.header;
    const beside = 262 / (fabric.t1 + fabric.hosts_per_t0 + 1); // the size of a cell if both matrices are side by side
    const stacked = beside < 9;
    const size = Math.min(16, stacked ? 270 / Math.max(fabric.t1, fabric.hosts_per_t0) : beside);
    const tall = fabric.t0 * size, right = stacked ? 0 : (fabric.t1 + 1) * size, below = stacked ? tall + 18 : 0;
    const drawing = svg("svg", { viewBox: `0 0 280 ${below + tall + 18}`, class: "clos" });
    const cell = (link, column, row) => {
      const box = { x: column * size + 0.5, width: size - 1 };
      const halves = [0, 1].map((half) => svg("rect", { ...box, y: row + (half * (size - 1)) / 2 + 0.5, height: (size - 1) / 2, class: "heat cell h0" }));
      const cross = svg("text", { x: (column + 0.5) * size, y: row + size / 2 + 4, class: "cross", "aria-hidden": "true" }, "✕");
      const group = this.button(link, halves, cross);
      group.append(...halves, cross);
      drawing.append(group);
    };
    const label = (text, x, y) => drawing.append(svg("text", { x, y, class: "name start" }, text));
    label("T0s × T1s", 0, 10);
    label("T0s × hosts", right, below + 10);
    for (const link of cables) cell(link, Number(link.b.split("-")[2]), 14 + Number(link.a.split("-")[2]) * size);
    for (const link of nics) {
      const host = Number(link.a.slice(1));
      cell(link, right / size + (host % fabric.hosts_per_t0), below + 14 + Math.floor(host / fabric.hosts_per_t0) * size);
    }
    return drawing;
  }

  button(link, lines, cross) {
    const group = svg("g", { class: "cable", role: "button", tabindex: "-1", "aria-pressed": "false", "aria-label": link.name });
    group.addEventListener("click", () => this.onLink(link.number));
    this.cables[link.number] = { node: group, lines, cross, seen: "" };
    return group;
  }

  // One stop of the tab key per card; arrows go from cable to cable.
  rove(drawing) {
    const cables = [...drawing.querySelectorAll(".cable")];
    if (cables.length) cables[0].setAttribute("tabindex", "0");
    drawing.addEventListener("keydown", (event) => {
      const at = cables.indexOf(document.activeElement);
      if (at < 0) return;
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) {
        const next = cables[(at + step + cables.length) % cables.length];
        cables[at].setAttribute("tabindex", "-1");
        next.setAttribute("tabindex", "0");
        next.focus();
      } else if (event.key === "Enter" || event.key === " ") {
        cables[at].dispatchEvent(new MouseEvent("click", { bubbles: true }));
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  // Show a time. Only what changed is touched: this runs in every frame of the player.
  show(t, metricName, marked) {
    const { run } = this;
    const metric = METRICS[metricName], sample = run.sampleAt(t);
    run.header.links.forEach((link, number) => {
      const cable = this.cables[number];
      const dead = run.deadAt(link.name, t);
      const levels = [0, 1].map((end) => {
        const row = sample && sample.rows.get(2 * number + end);
        return row ? level(metric.of(row, sample.ns, link, run.header.fabric.buffer), metric.top) : 0;
      });
      const chosen = marked.has(number);
      const seen = `${levels}${dead}${chosen}`;
      if (seen === cable.seen) return;
      cable.seen = seen;
      cable.lines.forEach((line, end) => line.setAttribute("class", `${line.classList.contains("cell") ? "cell " : ""}heat h${levels[end]}`));
      cable.cross.setAttribute("class", dead ? "cross shown" : "cross");
      cable.node.setAttribute("class", `cable${dead ? " dead" : ""}${chosen ? " marked" : ""}`);
    });
  }

  // What a cable carried at a time: lines of text.
  tell(number, t) {
    const { run } = this;
    const link = run.header.links[number], sample = run.sampleAt(t);
    const lines = [`${link.name}, ${link.kind === "nic" ? "NIC port and its cable" : link.kind === "haul" ? "long-haul cable" : "cable T0 to T1"}, plane ${link.plane}, ${link.gbps} Gb/s${run.deadAt(link.name, t) ? ": down" : ""}`];
    [[0, link.a, link.b], [1, link.b, link.a]].forEach(([end, from, to]) => {
      const row = sample ? sample.rows.get(2 * number + end) || [0, 0, 0, 0, 0, 0] : null;
      lines.push(row
        ? `${from} → ${to}: ${((row[1] * 8) / sample.ns).toFixed(1)} Gb/s, queue ${(row[2] / 1e3).toFixed(1)} kB, ${row[3]} marked, ${row[4]} trimmed, ${row[5]} dropped in ${micros(sample.ns)}`
        : `${from} → ${to}: no sample of ports at this time`);
    });
    return lines;
  }
}
