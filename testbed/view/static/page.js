"use strict";
// The page: takes frames, lays out runs side by side, and plays them. Frames are inlined, or come one by one: page.take(frame, source).

const byId = (id) => document.getElementById(id);
const STILL_BINS = 3; // bins without throughput that the headline speaks of: fewer are a dip of a few round trips
const still = window.matchMedia("(prefers-reduced-motion: reduce)");

const page = {
  runs: [],
  columns: [],
  sources: new Map(), // a stream of frames -> its run
  from: 0, to: 1, t: 0, // the window and the time of the player, ns from each run's shown fault
  shown: 0, // which fault, by its number in a run; -1: the whole run
  playing: false,
  perSecond: 1e5,
  live: null, // of a living view: static/live.js

  take(frame, source) {
    if (frame.f === "run") {
      if (frame.v !== 1) throw new Error(`frames of format ${frame.v}: this page reads 1`);
      const run = new RunModel(frame);
      run.index = this.runs.length;
      this.runs.push(run);
      this.sources.set(source, run);
    } else this.sources.get(source).take(frame);
    if (this.columns.length && !this.due) this.due = setTimeout(() => this.refresh(), 250); // a living run: four pictures a second
  },

  // Frames have come since the page was laid out.
  refresh() {
    this.due = 0;
    if (document.hidden || !this.columns.length) return; // nobody looks
    const known = byId("window").options.length;
    const late = this.columns.some((column) => !column.pair && column.run.pairs.length); // a job's ranks have connected
    const behind = this.live && this.live.following && this.columns.every((column) => column.run !== this.runs[this.runs.length - 1]);
    if (late || behind || this.columns.length < Math.min(2, this.runs.length)) { this.start(); return; }
    for (const column of this.columns) {
      column.fillPairs();
      if (this.live) column.followFault();
      column.tellStory();
    }
    this.fillWindows();
    if (this.live || byId("window").options.length !== known) this.headline();
    if (this.shown < 0) this.to = Math.max(this.to, ...this.columns.map((column) => column.run.end - this.offset(column.run)));
    if (this.live) this.live.place();
    this.draw();
    this.show(this.t);
  },

  // Begin anew: lines were missed.
  forget() {
    this.pause();
    this.runs = [];
    this.columns = [];
    this.sources.clear();
  },

  offset(run) {
    const faults = run.begun();
    if (this.shown >= 0 && faults[this.shown]) return faults[this.shown].t;
    return faults.length ? faults[0].t : 0;
  },

  say(text) { byId("live").textContent = text; },

  seek(run, t) {
    this.pause();
    this.show(t - this.offset(run));
  },

  // --- layout ----------------------------------------------------------------------------------------------

  start() {
    const shown = this.live && this.runs.length > 2 ? [this.runs[0], this.runs[this.runs.length - 1]] : this.runs.slice(0, 2);
    const cables = new Map(this.columns.map((column) => [column.run, column.cable])); // a page that is laid out again keeps what was chosen
    this.columns = shown.map((run) => new Column(run, this, this.runs.length > 2 ? this.runs : []));
    byId("runs").replaceChildren(...this.columns.map((column) => column.node));
    this.shown = this.runs.some((run) => run.begun().length) ? 0 : -1;
    this.fillWindows();
    this.legend();
    this.choosePairs();
    this.frameWindow();
    for (const column of this.columns) if (typeof cables.get(column.run) === "number") column.chooseCable(cables.get(column.run));
  },

  // The stretches of time to choose from: around each fault, and all.
  fillWindows() {
    const most = this.runs.reduce((best, run) => (run.begun().length > best.length ? run.begun() : best), []);
    byId("window").replaceChildren(...most.slice(0, 8).map((fault, number) => el("option", { value: String(number), textContent: `around “${fault.name}”` })),
      el("option", { value: "-1", textContent: "the whole run" }));
    byId("window").value = String(this.shown);
  },

  // What tells a run from the others on the page.
  label(run) {
    const { transport, placement, seed } = run.header;
    return this.runs.some((other) => other !== run && other.header.transport === transport) ? `${transport}, ${placement}, seed ${seed}` : transport;
  },

  swap(column, index) {
    const other = new Column(this.runs[index], this, this.runs);
    this.columns[this.columns.indexOf(column)] = other;
    column.node.replaceWith(other.node);
    this.choosePairs();
    this.frameWindow();
  },

  // The pair of hosts that the fault hit, the same in all columns if there is one.
  choosePairs() {
    const effects = this.columns.map(({ run }) => {
      const fault = run.begun()[Math.max(0, this.shown)];
      return fault ? run.effect(fault) : null;
    });
    const names = effects.map((effect) => (effect ? effect.pairs.map((pair) => pair.name) : []));
    const shared = names[names.length - 1].find((name) => names.every((own) => own.includes(name)));
    this.columns.forEach((column, number) => {
      if (effects[number]) column.setPair(effects[number].pairs.find((pair) => pair.name === shared) || effects[number].pair);
      column.tellStory();
    });
  },

  // The stretch of time shown: around a fault, or all.
  frameWindow() {
    const runs = this.columns.map((column) => column.run);
    const offsets = runs.map((run) => this.offset(run));
    const least = Math.min(...runs.map((run, number) => -offsets[number])), most = Math.max(...runs.map((run, number) => run.end - offsets[number]));
    this.from = least;
    this.to = most;
    if (this.shown >= 0) {
      const hit = runs.filter((run) => run.begun()[this.shown]), lengths = hit.map((run) => run.begun()[this.shown].until - run.begun()[this.shown].t);
      const ended = lengths.filter((length) => length !== Infinity); // of one that lasts, the shortest run shows the effect
      const length = ended.length ? Math.max(...ended) : Math.min(...hit.map((run) => run.end - run.begun()[this.shown].t));
      this.from = Math.max(least, -Math.max(0.6 * length, 100e3));
      this.to = Math.min(most, Math.max(2 * length, 300e3));
    }
    this.speeds();
    const slider = byId("slider");
    slider.min = "0";
    slider.max = "1000";
    this.headline();
    this.draw();
    this.show(this.shown >= 0 ? 0 : this.from);
  },

  // The speeds to choose from: the window in 20 s, and some beside it.
  speeds() {
    const steps = [1, 2, 5].flatMap((digit) => [1e3, 1e4, 1e5, 1e6, 1e7, 1e8].map((unit) => digit * unit)).sort((a, b) => a - b);
    const wanted = (this.to - this.from) / 20;
    const fit = steps.reduce((best, step) => (Math.abs(Math.log(step / wanted)) < Math.abs(Math.log(best / wanted)) ? step : best), steps[0]);
    const place = steps.indexOf(fit);
    byId("speed").replaceChildren(...steps.slice(Math.max(0, place - 3), place + 4).map((step) => el("option", { value: String(step), textContent: `${micros(step)} per s` })));
    byId("speed").value = String(fit);
    this.perSecond = fit;
  },

  draw() {
    const tops = this.columns.map((column) => Math.max(1, ...column.run.bins.map((bin) => column.run.gbps(bin))));
    const top = Math.ceil(Math.max(...tops) / 50) * 50;
    for (const column of this.columns) {
      const offset = this.offset(column.run);
      const fault = column.run.begun()[Math.max(0, this.shown)];
      column.layout(this.from + offset, this.to + offset, top, fault ? column.run.effect(fault).before : null);
      column.listEvents();
    }
    this.overview();
  },

  // Under the slider: where faults are, a line per run.
  overview() {
    const canvas = byId("overview"), colours = palette();
    const context = prepare(canvas, canvas.clientWidth, 30);
    const axis = new Axis(this.from, this.to, canvas.clientWidth);
    this.columns.forEach((column, number) => {
      for (const fault of column.run.begun()) {
        const from = axis.x(fault.t - this.offset(column.run)), to = axis.x(Math.min(fault.until, column.run.end) - this.offset(column.run));
        context.fillStyle = column.run.header.colour || colours.fault;
        context.fillRect(Math.max(0, from), number ? 25 : 1, Math.max(2, Math.min(axis.width, to) - Math.max(0, from)), 4);
      }
    });
  },

  headline() {
    const { run } = this.columns[0], { header } = run, faults = run.begun();
    byId("where").textContent = [document.title.split(":")[0], header.workload, header.placement, `seed ${header.seed}`, `${header.world} world`]
      .filter((part) => part && !part.startsWith("undefined")).join(" · ");
    if (this.live) { this.live.headline(this.columns[this.columns.length - 1]); return; }
    const fault = faults[Math.max(0, this.shown)];
    const ends = this.columns.filter((column) => column.run.outcome && column.run.outcome !== "done").map((column) => `; ${column.run.header.transport} ended: ${column.run.outcome}`).join("");
    if (!fault) {
      byId("headline").textContent = `${this.columns.map((column) => column.run.header.transport).join(" and ")}: nothing was broken${ends}`;
      byId("sub").textContent = "Time 0 is the begin of each run.";
      return;
    }
    const told = this.columns.map((column) => {
      const own = column.run.begun()[Math.max(0, this.shown)], name = column.run.header.transport;
      if (this.shown < 0) return `${name} ${costOf(column.run).replace(/\.$/, "") || "unknown"}`;
      const effect = own && column.run.effect(own);
      if (!effect || effect.kept === null) return effect && effect.paths ? `${name} left the dead paths within ${micros(effect.last)}` : `${name}: no effect seen`;
      const kept = `at ${Math.round(effect.kept * 100)} % (${(effect.kept * effect.before).toFixed(0)} Gb/s per host)`;
      return effect.still >= STILL_BINS * column.run.bins[0].ns ? `${name} stood still for ${micros(effect.still)}, ${kept} in all` : `${name} went on ${kept}`;
    });
    byId("headline").textContent = `${this.shown < 0 ? "What the failures cost" : fault.name}: ${told.join("; ")}${ends}`;
    const lasted = fault.until === Infinity ? "until the end" : `for ${micros(fault.until - fault.t)}`;
    const others = faults.filter((other) => other !== fault).slice(0, 2).map((other) => `${other.name} (${other.on})`);
    byId("sub").textContent = `${this.shown < 0 ? `${fault.name}: ` : ""}${fault.on} failed ${lasted}. Time 0 is ${this.shown < 0 ? "this fault" : "the fault"}, in each run.${others.length ? ` Also: ${others.join(", ")}.` : ""}`;
  },

  legend() {
    byId("legend").replaceChildren(...Object.entries(STATES).map(([state, { letter, word }]) => el("li", {}, el("span", { className: `swatch s-${state}`, "aria-hidden": "true", textContent: letter }), word)),
      el("li", {}, el("span", { className: "swatch", "aria-hidden": "true", textContent: "▂" }), "bars in a row: packets sent on the path"),
      el("li", {}, el("span", { className: "swatch", "aria-hidden": "true", textContent: "▔" }), "line on top of a row: the path was really broken"));
  },

  // --- time ------------------------------------------------------------------------------------------------

  show(t) {
    this.t = Math.max(this.from, Math.min(this.to, t));
    const place = Math.round(((this.t - this.from) / (this.to - this.from)) * 1000);
    const slider = byId("slider");
    if (Number(slider.value) !== place) slider.value = String(place);
    const text = !this.columns.some((column) => column.run.faults.length) ? micros(this.t) : this.t < 0 ? `${micros(-this.t)} before` : `${micros(this.t)} after`;
    if (byId("clock").textContent !== text) {
      byId("clock").textContent = text;
      slider.setAttribute("aria-valuetext", /(before|after)$/.test(text) ? `${text} the fault` : text);
    }
    for (const column of this.columns) column.show(this.t + this.offset(column.run));
  },

  nudge(steps) { this.pause(); this.show(this.t + ((this.to - this.from) / 200) * steps); this.tell(); },

  // To the next (1) or the last (-1) event of either run.
  jump(side) {
    this.pause();
    const times = this.columns.flatMap((column) => column.shownEvents.map((item) => item.t - this.offset(column.run))).filter((t) => t >= this.from && t <= this.to);
    const onward = times.filter((t) => (side > 0 ? t > this.t + 1 : t < this.t - 1));
    if (!onward.length) return;
    this.show(side > 0 ? Math.min(...onward) : Math.max(...onward));
    this.tell();
  },

  // Say what has just happened.
  tell() {
    const said = this.columns.map((column) => {
      const item = column.shownEvents[lastAt(column.shownEvents, column.t + 1)];
      return item ? `${column.run.header.transport}: ${item.text}` : "";
    }).filter(Boolean);
    this.say(`${byId("clock").textContent}. ${said.join(". ")}`);
  },

  play() {
    if (this.t >= this.to) this.show(this.from);
    this.playing = true;
    this.stamp = undefined;
    byId("play-sign").textContent = "❚❚";
    byId("play-word").textContent = "Pause";
    requestAnimationFrame((now) => this.tick(now));
  },

  pause() {
    if (this.live) this.live.follow(false);
    if (!this.playing) return;
    this.playing = false;
    byId("play-sign").textContent = "▶";
    byId("play-word").textContent = "Play";
  },

  tick(now) {
    if (!this.playing) return;
    if (this.stamp === undefined) this.stamp = now;
    const passed = now - this.stamp;
    if (!still.matches || passed >= 500) { // without motion: two pictures a second
      this.stamp = now;
      this.show(this.t + (Math.min(passed, 1000) / 1000) * this.perSecond);
      if (this.t >= this.to) { this.pause(); this.tell(); return; }
    }
    requestAnimationFrame((later) => this.tick(later));
  },

  keys(event) {
    const target = event.target;
    if (event.ctrlKey || event.altKey || event.metaKey || target.matches("select, [contenteditable]")) return;
    const pressed = target.matches("button, summary, [role=button]");
    if (event.key === " " && !pressed) { if (this.playing) { this.pause(); this.tell(); } else this.play(); }
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") this.nudge((event.key === "ArrowRight" ? 1 : -1) * (event.shiftKey ? 10 : 1));
    else if (event.key === "]") this.jump(1);
    else if (event.key === "[") this.jump(-1);
    else if (event.key === "Home" && target === byId("slider")) { this.pause(); this.show(this.from); }
    else if (event.key === "End" && target === byId("slider")) { this.pause(); this.show(this.to); }
    else return;
    event.preventDefault();
  },

  listen() {
    byId("play").addEventListener("click", () => { if (this.playing) { this.pause(); this.tell(); } else this.play(); });
    byId("back-event").addEventListener("click", () => this.jump(-1));
    byId("next-event").addEventListener("click", () => this.jump(1));
    byId("slider").addEventListener("input", (event) => {
      this.pause();
      this.show(this.from + (Number(event.target.value) / 1000) * (this.to - this.from));
    });
    byId("slider").addEventListener("change", () => this.tell());
    byId("window").addEventListener("change", (event) => {
      this.pause();
      this.shown = Number(event.target.value);
      this.choosePairs();
      this.frameWindow();
    });
    byId("speed").addEventListener("change", (event) => { this.perSecond = Number(event.target.value); });
    document.addEventListener("keydown", (event) => this.keys(event));
    let waiting = 0;
    new ResizeObserver(() => { clearTimeout(waiting); waiting = setTimeout(() => this.draw(), 60); }).observe(byId("runs"));
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  },
};

// Frames that are inlined: base64 of gzip of a line of JSON each.
async function inlined(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).text()).split("\n").filter(Boolean);
}

async function begin() {
  if (typeof living !== "undefined") { living.begin(); return; }
  try {
    for (const block of document.querySelectorAll("script.frames")) {
      for (const line of await inlined(block.textContent)) page.take(JSON.parse(line), block.id);
      block.remove();
    }
    page.listen();
    page.start();
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    byId("headline").textContent = "This run cannot be shown";
    byId("runs").replaceChildren(el("p", { className: "problem", textContent: `${error.message}. A browser of 2023 or later is needed; else write the page again: mrcbed results view DIR.` }));
    throw error;
  }
}

begin();
