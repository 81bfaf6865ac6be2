"use strict";
// One run on the page: story, throughput, paths, events, steps, planes.

function el(name, properties, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key.startsWith("aria-") || key === "role" || key === "for") node.setAttribute(key, value);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node[key] = value;
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

class Column {
  // page: {seek(run, t), offset(run), say(text)}
  constructor(run, page, choices) {
    this.run = run;
    this.page = page;
    this.pair = run.busiest();
    this.only = true; // events of the shown pair only
    this.byHand = false; // whether the reader has chosen the pair
    this.known = 0; // faults of a living run that the shown pair has been chosen for
    this.metric = "rate";
    this.marked = new Set(); // cables
    this.chosen = new Set(); // EVs
    this.cable = null;
    this.node = el("article", { className: "run", "aria-labelledby": `run-${run.index}` });
    if (run.header.colour) this.node.style.setProperty("--own", run.header.colour);
    this.build(choices);
  }

  build(choices) {
    const { run } = this;
    const { header } = run;
    const title = el("h2", { id: `run-${run.index}`, textContent: `${header.marker ? `${header.marker} ` : ""}${header.transport}` });
    const fabric = header.fabric;
    const gbps = header.links.length ? header.links[0].gbps : 0;
    const what = `${fabric.hosts} hosts, ${fabric.planes} ${fabric.planes > 1 ? "planes" : "plane"} of ${gbps} Gb/s, ${fabric.t1} T1 each`;
    this.story = el("ul", { className: "story" });
    this.plots = [];
    this.rateCanvas = el("canvas", { role: "img" });
    this.stripCanvas = el("canvas", { role: "img" });
    this.stepCanvas = el("canvas", { role: "img" });
    this.rateNow = el("span", { className: "now" });
    this.stripNow = el("span", { className: "now" });
    this.pathLabels = el("div", { className: "labels" });
    this.rateLabels = el("div", { className: "labels" });
    this.stepLabels = el("div", { className: "labels" });
    this.events = el("ul", { className: "events" });
    this.pairChoice = el("select", {
      "aria-label": "Pair of hosts",
      onchange: () => { this.byHand = true; this.setPair(run.pairs[Number(this.pairChoice.value)]); this.draw(); },
    });
    this.fillPairs();
    const filter = el("select", { "aria-label": "Events of", onchange: () => { this.only = filter.value === "pair"; this.listEvents(); } },
      el("option", { value: "pair", textContent: "this pair" }), el("option", { value: "all", textContent: "all hosts" }));
    this.planes = new Planes(run, (number) => this.chooseCable(number));
    this.commands = el("div", { className: "commands" });
    this.detail = el("div", { className: "detail" }, el("p", { textContent: this.page.live && this.page.live.control ? "Choose a cable to see what its ports carry, to cut it, or to mend it." : "Choose a cable to see what its ports carried." }));
    const metric = el("select", { "aria-label": "Heat of links", onchange: () => { this.metric = metric.value; this.scale(); this.repaintPlanes(); } },
      ...Object.entries(METRICS).map(([name, { word }]) => el("option", { value: name, textContent: word })));
    this.scaleNode = el("span", { className: "scale" });
    const choice = choices.length > 1
      ? el("select", { "aria-label": "Run shown here", onchange: () => this.page.swap(this, Number(choice.value)) },
        ...choices.map((other) => el("option", { value: String(other.index), textContent: this.page.label(other), selected: other === run })))
      : null;
    this.axes = [];
    const panels = [
      el("header", {}, title, choice, el("span", { className: "what", textContent: what })),
      this.story,
      this.panel("Throughput", [this.rateNow], this.lane(this.rateLabels, this.rateCanvas), this.table("throughput", () => this.rateTable())),
      !this.pair ? null : this.panel("Paths", [this.pairChoice, this.stripNow], this.lane(this.pathLabels, this.stripCanvas), this.table("paths", () => this.pathTable())),
      this.panel("What happened", [filter], this.events),
      run.steps.some((steps) => steps.length) || !run.end
        ? this.panel("Steps", [el("span", { className: "now", textContent: this.stepWords() })], this.lane(this.stepLabels, this.stepCanvas), this.table("steps", () => this.stepTable()))
        : null,
      this.panel("Planes", [metric, this.scaleNode], this.planes.node, this.detail, this.commands, this.table("links", () => this.linkTable())),
    ];
    this.node.append(...panels.filter(Boolean));
    this.scale();
    this.setPair(this.pair);
  }

  panel(title, tools, ...content) {
    return el("section", { className: "panel" }, el("div", { className: "head" }, el("h3", { textContent: title }), ...tools), ...content);
  }

  // A canvas with labels to its left, times below and the line of the player above it.
  lane(labels, canvas) {
    const head = el("div", { className: "playhead" });
    const plot = el("div", { className: "plot" }, canvas, head);
    this.plots.push({ plot, head, canvas });
    const scrub = (event) => {
      const box = plot.getBoundingClientRect();
      this.page.seek(this.run, this.axis.t(Math.max(0, Math.min(box.width, event.clientX - box.left))));
    };
    plot.addEventListener("pointerdown", (event) => { plot.setPointerCapture(event.pointerId); scrub(event); });
    plot.addEventListener("pointermove", (event) => { if (event.buttons) scrub(event); });
    const times = el("div", { className: "axis" });
    this.axes.push(times);
    return el("div", {}, el("div", { className: "lane" }, labels, plot), times);
  }

  table(name, fill) {
    const box = el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": `Table of ${name}, ${this.run.header.transport}` });
    const node = el("details", {}, el("summary", { textContent: `Table of ${name}` }), box);
    node.addEventListener("toggle", () => { if (node.open) box.replaceChildren(fill()); });
    return node;
  }

  rows(head, rows) {
    return el("table", {}, el("thead", {}, el("tr", {}, ...head.map((text) => el("th", { scope: "col", textContent: text })))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((text) => el("td", { textContent: String(text) }))))));
  }

  time(t) { return micros(t - this.page.offset(this.run)); }

  rateTable() {
    return this.rows(["from", "to", "Gb/s per host"], this.run.bins.map((bin) => [this.time(bin.t), this.time(bin.t + bin.ns), this.run.gbps(bin).toFixed(1)]));
  }

  pathTable() {
    const rows = this.pair.rows.flatMap((row) => row.spans.map((span, place) => [
      row.name, place ? this.time(span.t) : "begin", STATES[span.state].word, span.why || "", place ? "" : row.sent.reduce((sum, bin) => sum + bin.count, 0),
    ]));
    return this.rows(["EV", "from", "state", "why", "packets in all"], rows);
  }

  stepTable() {
    const ideal = this.run.header.ideal_step_ns;
    const rows = this.run.steps.flatMap((steps, rank) => steps.map((step) => [
      rank, step.step < 0 ? `warm-up ${step.step}` : step.step, this.time(step.start), micros(step.t - step.start), ideal ? ((step.t - step.start) / ideal).toFixed(2) : "", step.ok ? "yes" : "no",
    ]));
    return this.rows(["rank", "step", "begins", "takes", "in times of theory's", "right"], rows);
  }

  linkTable() {
    const sample = this.run.sampleAt(this.t);
    const rows = this.run.header.links.flatMap((link, number) => [[0, link.a, link.b], [1, link.b, link.a]].map(([end, from, to]) => {
      const row = (sample && sample.rows.get(2 * number + end)) || [0, 0, 0, 0, 0, 0];
      return [`${from} → ${to}`, this.run.deadAt(link.name, this.t) ? "down" : "up", sample ? ((row[1] * 8) / sample.ns).toFixed(1) : "", row[2], row[3], row[4], row[5]];
    }));
    return this.rows([`at ${this.time(this.t)}`, "link", "Gb/s", "bytes waiting", "marked", "trimmed", "dropped"], rows);
  }

  stepWords() {
    const { ideal_step_ns: ideal, typical_step_ns: typical } = this.run.header;
    return ideal ? `mark: theory, ${micros(ideal)}${typical ? `; median ${micros(typical)}` : ""}; light: beyond it` : "";
  }

  scale() {
    const { unit, top } = METRICS[this.metric];
    const worth = unit === "packets" ? `${top}+ packets` : `${Math.round(top * HEAT[HEAT.length - 1] * 100)} %+ ${unit}`;
    this.scaleNode.replaceChildren("0", ...[0, 1, 2, 3, 4, 5].map((number) => el("i", { className: `k${number}` })), worth);
  }

  fillPairs() {
    for (let number = this.pairChoice.options.length; number < this.run.pairs.length; number += 1) {
      this.pairChoice.append(el("option", { value: String(number), textContent: this.run.pairs[number].name }));
    }
  }

  setPair(pair) {
    this.pair = pair;
    if (pair) this.pairChoice.value = String(this.run.pairs.indexOf(pair));
    this.chosen.clear();
    this.listEvents();
  }

  // In a living run: the pair that the newest fault hit, as soon as a path of it has changed.
  followFault() {
    const faults = this.run.begun();
    if (this.byHand || faults.length === this.known) return;
    const effect = this.run.effect(faults[faults.length - 1]);
    if (!effect.given.length) return;
    this.known = faults.length;
    if (!effect.pairs.includes(this.pair)) this.setPair(effect.pair);
  }

  choosePath(row) {
    if (this.chosen.has(row.ev)) this.chosen.clear();
    else { this.chosen.clear(); this.chosen.add(row.ev); }
    this.marked = new Set(this.chosen.size ? row.links : []);
    this.cable = null;
    if (this.chosen.size) this.page.say(`Path ${row.name} of ${this.pair.name}: ${row.links.map((link) => this.run.header.links[link].name).join(", ")}`);
    this.draw();
  }

  chooseCable(number) {
    const again = this.cable === number;
    this.cable = again ? null : number;
    this.marked = new Set(again ? [] : [number]);
    const over = this.pair && this.pair.rows.some((row) => row.links.includes(number));
    if (!again && !over && !this.byHand && this.run.busiest(number)) this.setPair(this.run.busiest(number)); // one whose paths go over it
    this.chosen = new Set(again || !this.pair ? [] : this.pair.rows.filter((row) => row.links.includes(number)).map((row) => row.ev));
    this.planes.cables.forEach((cable, other) => cable.node.setAttribute("aria-pressed", String(other === number && !again)));
    this.draw();
    this.showCommand();
    if (!again) this.page.say(this.planes.tell(number, this.t).join(". "));
  }

  // In a living view that may command: what to do with the chosen cable.
  showCommand() {
    const { live } = this.page;
    const link = this.cable === null ? null : this.run.header.links[this.cable].name;
    const offered = link !== null && live && live.control;
    this.commands.replaceChildren(...(offered ? [["cut", "Cut"], ["mend", "Mend"]] : []).map(([what, word]) => el("button", {
      type: "button", textContent: `${word} ${link}`, onclick: () => live.command(what, link),
    })));
  }

  // --- drawing ---------------------------------------------------------------------------------------------

  // Everything, for a window of time in the run's own ns.
  layout(from, to, top, before) {
    this.window = [from, to];
    this.top = top;
    this.before = before;
    this.draw();
  }

  draw() {
    if (!this.window || !this.plots[0].plot.clientWidth) return;
    const { run } = this, colours = palette();
    const axis = this.axis = new Axis(...this.window, this.plots[0].plot.clientWidth);
    drawRate(this.rateCanvas, axis, run, this.top, this.before, colours);
    this.rateLabels.replaceChildren(...[1, 0.5, 0].map((share) => {
      const label = el("span", { textContent: share === 0 ? "0" : (this.top * share).toFixed(0) });
      label.style.top = `${RATE_BAND + (1 - share) * (RATE_HEIGHT - RATE_BAND) - (share === 0 ? 11 : share === 1 ? 0 : 5)}px`;
      return label;
    }));
    this.rateCanvas.setAttribute("aria-label", `Throughput of ${run.header.transport} over time, Gb/s per host; a table is below`);
    if (this.pair) {
      drawStrip(this.stripCanvas, axis, run, this.pair, colours, this.chosen);
      this.labelPaths();
      this.stripCanvas.setAttribute("aria-label", `State of ${this.pair.rows.length} paths of ${this.pair.name} over time; a table is below`);
    }
    drawSteps(this.stepCanvas, axis, run, colours);
    this.stepCanvas.setAttribute("aria-label", `Steps of ${run.steps.length} ranks over time; a table is below`);
    const lane = laneOf(run), every = Math.ceil(12 / lane);
    this.stepLabels.replaceChildren(...run.steps.map((steps, rank) => {
      const label = el("span", { textContent: rank % every === 0 ? `rank ${rank}` : "" });
      label.style.top = `${rank * lane + 1}px`;
      return label;
    }));
    const offset = this.page.offset(run);
    for (const times of this.axes) {
      times.replaceChildren(...axis.ticks(offset).map((t) => {
        const tick = el("span", { textContent: micros(t - offset, 0) });
        tick.style.left = `${Math.max(26, Math.min(axis.width - 26, axis.x(t)))}px`;
        return tick;
      }));
    }
    this.show(this.t === undefined ? this.window[0] : this.t, true);
  }

  labelPaths() {
    const { places, height } = stripRows(this.pair);
    const labels = [];
    const planes = new Map();
    for (const place of places) {
      planes.set(place.row.plane, [...(planes.get(place.row.plane) || []), place]);
      if (place.height < NAMED) continue;
      const label = el("button", {
        type: "button", textContent: place.row.name, "aria-pressed": String(this.chosen.has(place.row.ev)),
        "aria-label": `Path ${place.row.name} of ${this.pair.name}, ${this.run.header.transport}`, onclick: () => {
          this.choosePath(place.row);
          const again = this.pathLabels.querySelector(`[data-ev="${place.row.ev}"]`);
          if (again) again.focus();
        },
      });
      label.dataset.ev = place.row.ev;
      label.style.top = `${place.y + (place.height - 14) / 2}px`;
      label.style.height = "13px";
      labels.push(label);
    }
    for (const [plane, own] of planes) {
      const tall = own[own.length - 1].y + own[own.length - 1].height - own[0].y;
      const label = el("span", { className: "planename", textContent: tall >= 42 ? `plane ${plane}` : `p${plane}` });
      label.style.top = `${own[0].y}px`;
      label.style.height = `${tall}px`;
      labels.push(label);
    }
    this.pathLabels.style.height = `${height}px`;
    this.pathLabels.replaceChildren(...labels);
  }

  listed() {
    const pair = this.pair;
    return this.run.list.filter((item) => !this.only || item.kind !== "path" || (pair && item.src === pair.src && item.dst === pair.dst))
      .filter((item) => !this.only || item.host === undefined || item.host < 0 || (pair && (item.host === pair.src)));
  }

  listEvents() {
    this.shownEvents = this.listed().slice(0, 400);
    this.latest = undefined;
    if (!this.shownEvents.length) {
      this.events.replaceChildren(el("li", { className: "none", textContent: "Nothing happened to these paths." }));
      return;
    }
    this.events.replaceChildren(...this.shownEvents.map((item) => {
      const sign = item.kind === "path" ? STATES[item.state].letter || "·" : item.kind === "fault" ? "⚡" : item.kind === "bad" ? "!" : "·";
      const mark = item.kind === "path" ? `s-${item.state}` : item.kind === "note" ? "" : `s-${item.kind}`;
      const pair = item.kind === "path" && !this.only ? `h${item.src} → h${item.dst}: ` : "";
      return el("li", {}, el("button", { type: "button", className: item.kind, onclick: () => this.page.seek(this.run, item.t) },
        el("span", { className: "t", textContent: this.time(item.t) }), el("span", { className: `sign ${mark}`, "aria-hidden": "true", textContent: sign }),
        item.kind === "fault" ? el("b", { textContent: item.text }) : el("span", { textContent: pair + item.text })));
    }));
  }

  tellStory() {
    const faults = this.run.begun();
    this.story.replaceChildren(...(this.page.live ? faults.slice(-3) : faults.slice(0, 3)).map((fault) => el("li", {}, el("b", { textContent: `${fault.name}: ` }), storyOf(this.run, this.run.effect(fault)))));
    if (costOf(this.run)) this.story.append(el("li", {}, el("b", { textContent: "All failures cost: " }), costOf(this.run)));
    const quiet = this.page.live && !this.run.outcome ? "Nothing has been broken so far." : "Nothing was broken in this run.";
    if (!faults.length) this.story.replaceChildren(el("li", { textContent: quiet }));
  }

  repaintPlanes() { this.planes.show(this.t, this.metric, this.marked); }

  // The time of the player, in the run's own ns.
  show(t, all) {
    this.t = t;
    const x = this.axis ? Math.max(0, Math.min(this.axis.width, this.axis.x(t))) : 0;
    for (const { head } of this.plots) head.style.transform = `translateX(${x}px)`;
    this.repaintPlanes();
    const at = lastAt(this.run.bins, t);
    const bin = at >= 0 && t < this.run.bins[at].t + this.run.bins[at].ns ? this.run.bins[at] : null;
    const rate = `${(bin ? this.run.gbps(bin) : 0).toFixed(0)} Gb/s per host`;
    if (this.rateNow.textContent !== rate) this.rateNow.textContent = rate;
    if (this.pair) {
      const counts = new Map();
      for (const row of this.pair.rows) {
        const state = this.run.stateAt(row, t);
        const name = RUNNING.has(state) ? "in use" : state;
        counts.set(name, (counts.get(name) || 0) + 1);
      }
      const sender = this.run.windowAt(this.pair, t);
      const text = [...counts].filter(([state]) => state !== "idle").map(([state, count]) => `${count} ${state}`).join(", ")
        + (sender ? ` · window ${(sender.bytes / 1e3).toFixed(0)} kB, RTT ${micros(sender.srtt)}` : "");
      if (this.stripNow.textContent !== text) this.stripNow.textContent = text;
    }
    if (this.cable !== null) this.detail.replaceChildren(...this.planes.tell(this.cable, t).map((line) => el("p", { textContent: line })));
    else if (all && this.marked.size) this.detail.replaceChildren(el("p", { textContent: [...this.marked].map((link) => this.run.header.links[link].name).join(", ") }));
    this.markEvent(t);
  }

  markEvent(t) {
    const latest = lastAt(this.shownEvents, t);
    if (latest === this.latest) return;
    this.latest = latest;
    [...this.events.children].forEach((item, number) => {
      const button = item.firstChild;
      if (!button.classList) return;
      button.classList.toggle("latest", number === latest);
      button.classList.toggle("later", number > latest);
    });
    const node = latest >= 0 ? this.events.children[latest] : null;
    if (node) this.events.scrollTop = node.offsetTop - this.events.offsetTop - 58;
  }
}

// A sentence on what a fault did to a run.
function storyOf(run, effect) {
  const parts = [];
  const { fault } = effect;
  if (effect.paths) {
    const closed = effect.given.some((item) => item.state === "closed");
    const who = effect.senders === 1 ? "one sender" : `${effect.senders} senders`;
    const gone = new Set(effect.given.filter((item) => item.src === effect.pair.src && item.dst === effect.pair.dst).flatMap((item) => item.evs)).size;
    const first = Math.max(0, effect.first);
    const span = micros(first) === micros(effect.last) ? micros(first) : `${micros(first).replace(/ µs$/, "")} to ${micros(effect.last)}`;
    const when = effect.last < 1000 ? "at once" : first < 1000 ? `within ${micros(effect.last)}` : `after ${span}`;
    parts.push(`${who} left ${gone} of ${effect.pair.rows.length} paths ${when}${closed ? ", a port is down" : ""}`);
  } else if (run.header.reconvergence_ns) parts.push(`no sender leaves a path by itself, the network re-routes after ${micros(run.header.reconvergence_ns)}`);
  if (effect.kept !== null) parts.push(`went on at ${Math.round(effect.kept * 100)} %: ${(effect.before * effect.kept).toFixed(0)} of ${effect.before.toFixed(0)} Gb/s per host`);
  if (effect.still) parts.push(`no throughput at all for ${micros(effect.still)}`);
  return `${parts.join("; ") || "no effect seen"}.`;
}

// What all failures of a run cost it, from the figures of its summary; "" if they are not known.
function costOf(run) {
  const { cost } = run.header;
  if (!cost) return "";
  const noise = cost.noise_ns > Math.abs(cost.extra_ns) ? `within noise (±${micros(cost.noise_ns)})` : `${micros(cost.extra_ns)}, the job took ${cost.extra_percent.toFixed(0)} % longer`;
  return `${noise}.`;
}
