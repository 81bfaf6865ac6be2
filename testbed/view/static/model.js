"use strict";
// What is known of one run, from frames as they come (docs/how/view.md). Knows nothing of the page.

const STATES = {
  used: { letter: "", word: "in use" },
  backup: { letter: "B", word: "backup" },
  idle: { letter: "", word: "not used by this pair" },
  suspect: { letter: "S", word: "suspect" },
  died: { letter: "✕", word: "died: no data, only probes" },
  closed: { letter: "C", word: "closed: a NIC port is down" },
  probed: { letter: "P", word: "probed, must prove itself" },
  denied: { letter: "D", word: "denied" },
  back: { letter: "▲", word: "back in use" },
};
const OUT = new Set(["suspect", "died", "closed", "probed", "denied"]);
const RUNNING = new Set(["used", "back"]);
const LATE = 200e3; // ns after the begin of a fault that was short, in which senders find out about it [ours]
const RECENT = 500e3; // ns before a fault whose throughput it is compared with, where users start transfers as they like [ours]
const STILL = 0.05; // of the throughput before a fault: less is standing still

// Put an item into a list that is sorted by t; nearly always at its end.
function insert(list, item) {
  let at = list.length;
  while (at > 0 && list[at - 1].t > item.t) at -= 1;
  list.splice(at, 0, item);
}

// The place of the last item with t <= the given time, or -1.
function lastAt(list, t) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].t <= t) low = middle + 1; else high = middle;
  }
  return low - 1;
}

// A time as people read it.
function micros(ns, digits) {
  const us = Math.abs(ns) / 1e3, sign = ns < 0 ? "−" : "";
  if (us >= 1e6) return `${sign}${(us / 1e6).toFixed(2)} s`;
  if (us >= 1e5) return `${sign}${(us / 1e3).toFixed(1)} ms`;
  if (us >= 1e3) return `${sign}${Math.round(us).toLocaleString("en")} µs`;
  return `${sign}${us.toFixed(digits ?? (us < 9.95 && us > 0 ? 1 : 0))} µs`;
}

class RunModel {
  constructor(header) {
    this.header = header;
    this.key = header.key;
    this.end = 0;
    this.outcome = "";
    this.faults = []; // {t, name, fault, on, phase, links, gone, text}
    this.list = []; // all that has a text, sorted: {t, text, kind, state?, src?, dst?, evs?}
    this.steps = header.ranks.map(() => []);
    this.bins = []; // {t, ns, rx, tx}: all hosts together
    this.binAt = new Map();
    this.ports = []; // {t, ns, rows: Map(port -> row)}
    this.losses = [];
    this.outages = new Map(); // link name -> [[from, to]]
    this.linkIndex = new Map(header.links.map((link, number) => [link.name, number]));
    this.pairs = [];
    this.pairOf = new Map();
    for (const pair of header.pairs) this.take_pair(pair);
  }

  take_pair(frame) {
    const pair = {
      src: frame.src, dst: frame.dst, name: `h${frame.src} → h${frame.dst}`, changes: 0, most: 0, sent: 0, windows: new Map(),
      rows: frame.evs.map(([ev, plane, t1, state, links]) => ({ ev, plane, t1, links, name: `${plane}:${t1}`, spans: [{ t: -Infinity, state }], sent: [] })),
    };
    pair.rowOf = new Map(pair.rows.map((row) => [row.ev, row]));
    this.pairs.push(pair);
    this.pairOf.set(`${pair.src}>${pair.dst}`, pair);
  }

  take(frame) {
    this.end = Math.max(this.end, frame.t + (frame.ns || 0) * (frame.f !== "ports"));
    const method = this[`take_${frame.f}`];
    if (method) method.call(this, frame);
  }

  take_path(frame) {
    const pair = this.pairOf.get(`${frame.src}>${frame.dst}`);
    if (!pair) return;
    for (const ev of frame.evs) {
      const row = pair.rowOf.get(ev);
      if (row) insert(row.spans, { t: frame.t, state: frame.state, why: frame.why });
    }
    pair.changes += OUT.has(frame.state) ? 1 : 0;
    insert(this.list, { t: frame.t, text: frame.why, kind: "path", state: frame.state, src: frame.src, dst: frame.dst, evs: frame.evs });
  }

  take_fault(frame) {
    insert(this.faults, frame);
    insert(this.list, { t: frame.t, text: frame.text, kind: "fault" });
    for (const link of frame.links) {
      const outages = this.outages.get(link) || [];
      this.outages.set(link, outages);
      const open = outages.find((outage) => outage[1] === Infinity);
      if (frame.gone) { if (open) open[1] = frame.t; }
      else if (!open) outages.push([frame.t, Infinity]);
    }
  }

  take_event(frame) { insert(this.list, { t: frame.t, text: frame.text, kind: frame.level === "bad" ? "bad" : "note", host: frame.host }); }

  take_end(frame) {
    this.outcome = frame.outcome;
    insert(this.list, { t: frame.t, text: frame.text, kind: "note" });
  }

  take_step(frame) { if (this.steps[frame.rank]) insert(this.steps[frame.rank], frame); }

  take_rate(frame) {
    let bin = this.binAt.get(frame.t);
    if (!bin) {
      bin = { t: frame.t, ns: frame.ns, rx: 0, tx: 0, hosts: 0 };
      this.binAt.set(frame.t, bin);
      insert(this.bins, bin);
    }
    for (const bytes of frame.rx) bin.rx += bytes;
    for (const bytes of frame.tx) bin.tx += bytes;
  }

  take_evs(frame) {
    const pair = this.pairOf.get(`${frame.src}>${frame.dst}`);
    if (!pair) return;
    for (const [ev, count] of frame.tx) {
      const row = pair.rowOf.get(ev);
      if (!row) continue;
      insert(row.sent, { t: frame.t, ns: frame.ns, count });
      pair.most = Math.max(pair.most, count);
      pair.sent += count;
    }
  }

  take_cwnd(frame) {
    const pair = this.pairOf.get(`${frame.src}>${frame.dst}`);
    if (!pair) return;
    if (!pair.windows.has(frame.qp)) pair.windows.set(frame.qp, []);
    insert(pair.windows.get(frame.qp), frame);
  }

  take_ports(frame) { insert(this.ports, { t: frame.t, ns: frame.ns, rows: new Map(frame.rows.map((row) => [row[0], row])) }); }
  take_loss(frame) { insert(this.losses, frame); }

  // --- questions -------------------------------------------------------------------------------------------

  // The first phase of every fault that began, with the time at which it ended (Infinity: it did not).
  begun() {
    const begun = [];
    for (const fault of this.faults) {
      if (fault.phase === "begin") begun.push({ ...fault, until: Infinity });
      else if (fault.phase === "heal") {
        const open = begun.find((other) => other.name === fault.name && other.until === Infinity);
        if (open) open.until = fault.t;
      }
    }
    return begun;
  }

  deadAt(name, t) { return (this.outages.get(name) || []).some(([from, to]) => from <= t && t < to); }

  stateAt(row, t) { return row.spans[Math.max(0, lastAt(row.spans, t))].state; }

  // The sample of ports that a time lies in, or null.
  sampleAt(t) {
    const at = lastAt(this.ports, t);
    const next = this.ports[at + 1];
    if (next && next.t - next.ns <= t) return next; // a sample says what was in the interval that ended at its time
    return at >= 0 && t - this.ports[at].t <= this.ports[at].ns ? this.ports[at] : null;
  }

  // The windows of all queue pairs of a pair together, bytes, and the longest smoothed RTT, ns; null before the first was logged.
  windowAt(pair, t) {
    const last = [...pair.windows.values()].map((list) => list[lastAt(list, t)]).filter(Boolean);
    if (!last.length) return null;
    return { bytes: last.reduce((sum, frame) => sum + frame.window, 0), srtt: Math.max(...last.map((frame) => frame.srtt_ns)) };
  }

  // Throughput of a bin in Gb/s per host.
  gbps(bin) { return (bin.rx * 8) / bin.ns / this.header.ranks.length; }

  // Mean throughput (Gb/s per host) and the longest time without any to speak of, in a stretch of time; null if no bin lies in it.
  throughput(from, to, before) {
    const width = this.bins.length ? this.bins[0].ns : 0;
    if (!width || to - from < width) return null;
    let bytes = 0, still = 0, longest = 0, covered = 0;
    const first = Math.ceil(from / width) * width;
    const origin = this.bins[0].t - Math.ceil((this.bins[0].t - first) / width) * width;
    for (let t = origin; t + width <= to + 1; t += width) {
      if (t < from - 1) continue;
      const at = lastAt(this.bins, t + width / 2);
      const bin = at >= 0 && this.bins[at].t + this.bins[at].ns > t + width / 2 ? this.bins[at] : null;
      bytes += bin ? bin.rx : 0;
      covered += width;
      still = before !== undefined && (bin ? this.gbps(bin) : 0) < STILL * before ? still + width : 0;
      longest = Math.max(longest, still);
    }
    return covered ? { gbps: (bytes * 8) / covered / this.header.ranks.length, still: longest } : null;
  }

  // What a fault did here: which paths left use and when, what was left of the throughput.
  effect(fault) {
    const end = Math.min(fault.until, this.end), links = new Set(fault.links.map((name) => this.linkIndex.get(name)));
    const left = this.list.filter((item) => item.kind === "path" && OUT.has(item.state) && item.state !== "probed" && item.t >= fault.t);
    const touched = (item) => this.pairOf.get(`${item.src}>${item.dst}`).rows.some((row) => item.evs.includes(row.ev) && row.links.some((link) => links.has(link)));
    const given = left.filter((item) => item.t <= end || (item.t <= fault.t + LATE && touched(item)));
    const paths = given.reduce((sum, item) => sum + item.evs.length, 0);
    const before = this.throughput(this.header.workload ? Math.max(0, this.firstStep()) : Math.max(0, fault.t - RECENT), fault.t);
    const during = before && this.throughput(fault.t, end, before.gbps);
    const after = before && this.throughput(fault.t, Math.min(this.end, end + (end - fault.t)), before.gbps);
    const pairs = this.hitPairs(fault, given);
    return {
      fault, end, paths, given, first: given.length ? given[0].t - fault.t : null, last: given.length ? given[given.length - 1].t - fault.t : null,
      senders: new Set(given.map((item) => item.src)).size, kept: during && before.gbps ? during.gbps / before.gbps : null,
      still: after && this.header.workload !== "job" ? after.still : 0, before: before ? before.gbps : null, pairs, pair: pairs[0],
    };
  }

  firstStep() {
    const measured = this.steps.flat().filter((step) => step.step === 0);
    return measured.length ? Math.min(...measured.map((step) => step.start)) : 0;
  }

  // The pairs that a fault changed, most of all first; without any, those with a path over a link that it broke.
  hitPairs(fault, given) {
    const counts = new Map();
    for (const item of given) {
      const key = `${item.src}>${item.dst}`;
      counts.set(key, (counts.get(key) || 0) + item.evs.length);
    }
    const changed = [...counts].sort((a, b) => b[1] - a[1]).map(([key]) => this.pairOf.get(key));
    const senders = changed.filter((pair) => pair.sent);
    if (changed.length) return senders.length ? senders : changed;
    const links = new Set(fault.links.map((name) => this.linkIndex.get(name)));
    const users = this.pairs.filter((pair) => pair.rows.some((row) => this.stateAt(row, fault.t) === "used" && row.links.some((link) => links.has(link))));
    return users.length ? users : [this.busiest()].filter(Boolean);
  }

  // The pair that sent most, of all or of those with a path over a cable.
  busiest(cable) {
    const those = cable === undefined ? this.pairs : this.pairs.filter((pair) => pair.rows.some((row) => row.links.includes(cable)));
    return those.reduce((best, pair) => (!best || pair.sent > best.sent ? pair : best), null);
  }
}
