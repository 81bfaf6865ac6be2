"use strict";
// A living view: frames come over the network of this machine, a line of JSON each; commands go back, if the server takes them.

const NEWEST = 2e6; // ns of the network that a page shows that follows one run

const living = {
  token: "", controlToken: "",
  control: false,
  following: true,
  length: 1, // of the window that the speeds to choose from are for, ns

  // The tokens are in the address's fragment, which a browser does not send; they leave the address bar at once.
  begin() {
    [this.token, this.controlToken = ""] = (location.hash.slice(1) || sessionStorage.getItem("tokens") || "").split("&");
    try { sessionStorage.setItem("tokens", `${this.token}&${this.controlToken}`); } catch { /* a reload will then ask for the address */ }
    history.replaceState(null, "", location.pathname);
    page.listen();
    page.live = this;
    byId("headline").textContent = "Waiting for a run to begin …";
    byId("sub").textContent = "It appears here as soon as its time begins.";
    this.button = el("button", { type: "button", id: "follow", textContent: "Follow", "aria-pressed": "true", title: "Stay at the newest time", onclick: () => this.follow(!this.following) });
    byId("bar").append(this.button);
    document.addEventListener("visibilitychange", () => { if (!document.hidden && page.columns.length) page.refresh(); });
    this.read();
  },

  follow(on) {
    if (on === this.following) return;
    this.following = on;
    this.button.setAttribute("aria-pressed", String(on));
    if (on && page.columns.length) page.refresh();
  },

  // The newest stretch of the run that goes on, or all of both runs where there is one to compare with.
  place() {
    if (!this.following) return;
    if (page.shown !== -1) { page.shown = -1; byId("window").value = "-1"; page.headline(); }
    const ends = page.columns.map((column) => column.run.end - page.offset(column.run));
    const begins = page.columns.map((column) => -page.offset(column.run));
    page.to = Math.max(...ends, 1);
    page.from = page.columns.length > 1 ? Math.min(...begins) : Math.max(begins[0], page.to - NEWEST);
    const newest = page.columns[page.columns.length - 1];
    page.t = newest.run.end - page.offset(newest.run);
    const length = page.to - page.from;
    if (length > 1.5 * this.length || length < this.length / 1.5) { this.length = length; page.speeds(); }
  },

  async read() {
    try {
      const answer = await fetch("/frames", { headers: { Authorization: `Bearer ${this.token}` } });
      if (!answer.ok) { this.stop((await answer.text()).replace(/^mrcbed: /, "")); return; }
      await this.lines(answer.body.getReader());
    } catch {
      if (!page.runs.length) { this.stop("no answer: the run has ended, or was stopped."); return; }
    }
    this.stop("the run's view has ended; what was seen stays here.");
  },

  async lines(reader) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = parts.pop();
      for (const part of parts) this.take(...JSON.parse(part));
    }
  },

  take(source, frame) {
    if (frame.f === "hello") this.control = frame.control && Boolean(this.controlToken);
    else if (frame.f === "missed") page.forget();
    else {
      page.take(frame, source);
      if (!page.columns.length) { page.start(); this.place(); }
      document.documentElement.dataset.ready = "yes";
    }
  },

  // What is broken now, and what happened last, in the run that goes on.
  headline({ run }) {
    const broken = [...run.outages].filter(([, spans]) => spans.some(([, until]) => until === Infinity)).map(([name]) => name);
    const step = Math.max(-1, ...run.steps.map((own) => (own.length ? own[own.length - 1].step : -1)));
    const what = broken.length ? `${broken.slice(0, 3).join(", ")}${broken.length > 3 ? ` and ${broken.length - 3} more` : ""} ${broken.length > 1 ? "are" : "is"} broken` : "all cables work";
    byId("headline").textContent = `${run.header.transport}${run.outcome ? " has ended" : ""}: ${what}`;
    const last = run.list[run.list.length - 1];
    if (!run.bins.length && !last && !run.outcome) { byId("sub").textContent = run.header.workload || run.header.world !== "emulated" ? "Nothing has moved yet." : "Nothing has moved yet. At the prompt, allreduce starts a transfer."; return; }
    byId("sub").textContent = `${step < 0 ? "No step has ended yet." : `Step ${step} has ended.`}${last ? ` Last: ${last.text}.` : ""}`;
  },

  stop(text) {
    byId("status").textContent = text;
    page.say(text);
    this.button.remove();
    this.control = false;
    for (const column of page.columns) column.showCommand();
    if (!page.runs.length) { byId("headline").textContent = "Nothing to show"; byId("sub").textContent = text; }
  },

  // Pull or plug a cable; says how it went.
  async command(what, link) {
    let text;
    try {
      const answer = await fetch("/command", {
        method: "POST", body: JSON.stringify({ do: what, link }),
        headers: { "Content-Type": "application/json", Authorization: `Bearer ${this.controlToken}` },
      });
      const body = answer.headers.get("content-type") === "application/json" ? await answer.json() : { error: (await answer.text()).replace(/^mrcbed: /, "") };
      text = body.error ? `${link}: ${body.error}` : `${link} is ${what === "cut" ? "cut" : "mended"}`;
    } catch { text = `${link}: no answer`; }
    byId("status").textContent = text;
    page.say(text);
  },
};
