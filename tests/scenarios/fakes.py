"""A cluster without a network: agents that pretend to run a ring, or flows, on real time, and log as the real ones do.

Every flow gets half of its host's line, and one that counts messages has sent them all at once. In a ring
MRC leaves a cut path 5 ms after its loss and goes on; RoCE stalls from the cut until ``reroute`` without its cable.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.clock import Heard, RealClock
from testbed.faults.kinds import KINDS, resolve
from testbed.faults.targets import FaultEvent, Injected
from topologies import Fabric
from topologies.paths import evs_over, path_evs

MS = 1_000_000
TICK_NS = 3 * MS
"""A fake step is ten of these long, and as long as a dead path stalls it."""


class FakeClock(RealClock):
    """Counts how often its user has done what there was to do and waits again."""

    rounds = 0

    @contextmanager
    def waiter(self, agents: Sequence[Heard]) -> Iterator[Callable[[float], None]]:
        with super().waiter(agents) as wait_really:

            def wait(seconds: float) -> None:
                self.rounds += 1
                wait_really(seconds)

            yield wait


class FakeAgent:
    def __init__(self, cluster: FakeCluster, host: int, transport: str, log: Path) -> None:
        self.cluster, self.host, self.transport = cluster, host, transport
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.log_file = open(log, "w", encoding="utf-8")
        self.lock = threading.Lock()
        self.notes: list[dict[str, Any]] = []
        self.taken_in = 0  # the round in which the runner last took notes
        self.peer = -1
        self.rank = -1
        self.dead: set[str] = set()
        self.thread: threading.Thread | None = None
        self.over = threading.Event()
        self.steps_done = 0
        self.connected: dict[str, Any] = {}

    def fileno(self) -> int:
        return self.near.fileno()

    def log(self, kind: str, t: int | None = None, **fields: Any) -> None:
        with self.lock:
            if not self.log_file.closed:
                self.log_file.write(json.dumps({"t": t or time.monotonic_ns(), "kind": kind, "host": self.host, **fields}) + "\n")

    def notify(self, **note: Any) -> None:
        with self.lock:
            self.notes.append(note)
        self.far.send(b"x")

    def notifications(self) -> list[dict[str, Any]]:
        try:
            self.near.recv(4096)
        except BlockingIOError:
            return []
        with self.lock:
            out, self.notes = self.notes, []
            self.taken_in = self.cluster.clock.rounds
        return out

    def call(self, op: str, **args: Any) -> Any:
        return getattr(self, f"op_{op}")(**args)

    def op_setup(
        self, collective: str, ranks: list[int], rank: int, qps: int, slices: int, flows: list[dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        self.rank, self.peer = rank, ranks[(rank + 1) % len(ranks)]
        around = {(rank + 1) % len(ranks), (rank - 1) % len(ranks)}
        assert (collective == "flows") == bool(flows)
        if flows:
            around = {f["src"] + f["dst"] - rank for f in flows if rank in (f["src"], f["dst"])}
            self.peer = ranks[min(around, default=self.peer)]
        made = {str(p): [{"qpn": 100 * rank + p, "from": rank, "for": p}] * qps for p in around}
        return {"qps": made, "connected": False}

    def op_connect(self, remotes: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
        for peer, made in remotes.items():
            assert all(m["from"] == int(peer) and m["for"] == self.rank for m in made)
        self.connected = remotes
        return {}

    def op_paths(self) -> list[dict[str, Any]]:
        evs = path_evs(self.cluster.fabric, self.host, self.peer)
        mine = evs if self.transport == "mrc" else evs[-1:]
        return [{"peer": self.peer, "plane": ev >> 16, "uplink": ev & 0xFFFF, "ev": ev, "state": "GOOD"} for ev in mine]

    def op_reroute(self, dead_links: list[str]) -> dict[str, Any]:
        assert self.transport != "mrc"
        self.dead = set(dead_links)
        return {}

    def op_prepare(self, **what: Any) -> dict[str, Any]:
        self.prepared = what
        return {}

    def op_start(
        self, collective: str, message_bytes: int, seed: int, dtype: str = "", steps: int = 0, warmup: int = 0,
        flows: list[dict[str, Any]] | None = None, outstanding: int = 0, at: int = 0,
    ) -> dict[str, Any]:  # fmt: skip
        if flows:
            assert at > time.monotonic_ns() - 1_000_000_000 and outstanding > 0  # a busy machine may be late
            self.thread = threading.Thread(target=self.flows, args=(message_bytes, flows, at), daemon=True)
            self.thread.start()
            return {}
        self.thread = threading.Thread(target=self.ring, args=(message_bytes, steps, warmup), daemon=True)
        self.thread.start()
        return {}

    def stalled(self) -> bool:
        if self.transport == "mrc":
            return False
        ev = self.op_paths()[0]["ev"]
        return any(ev in evs_over(self.cluster.fabric, self.host, self.peer, link) for link in self.cluster.down - self.dead)

    def flows(self, message_bytes: int, flows: list[dict[str, Any]], at: int) -> None:
        fabric = self.cluster.fabric
        bin_ns = max(2 * fabric.base_rtt_ns, 20 * MS)
        half = int(fabric.host_rate * fabric.payload_share / 2 * bin_ns / 8e9)
        while time.monotonic_ns() < at + max(f["start_ns"] + (f["for_ns"] or 0) for f in flows) and not self.over.is_set():
            time.sleep(0.003)
        if self.over.is_set():
            return
        for number, flow in enumerate(flows):
            begin = at + flow["start_ns"]
            if flow["dst"] == self.rank and flow["for_ns"] is not None:
                for t in range(begin, begin + flow["for_ns"], bin_ns):
                    self.log("flow", t=t, flow=number, bin_ns=bin_ns, rx=half)
            if flow["src"] == self.rank:
                end = time.monotonic_ns()
                for k in range(flow["messages"] or 1):
                    self.log("message", t=end, flow=number, number=k, bytes=message_bytes, start_ns=begin, end_ns=end)
                wrong = int(self.cluster.wrong_at == number)
                self.notify(event="flow", flow=number, rank=self.rank, messages=1, bytes=0, wrong=wrong, start_ns=begin, end_ns=end)
        self.notify(event="done", rank=self.rank, wrong=0)

    def heard(self) -> bool:
        """Whether the runner has acted on all that this agent told it: a fault that is due begins before the next step, however late."""
        with self.lock:
            return not self.notes and self.cluster.clock.rounds > self.taken_in

    def ahead(self, step: int) -> bool:
        """Whether a rank has to wait before it ends this step: in a ring none ends one that another has not begun."""
        return any(a.steps_done < step for a in self.cluster.agents if a.rank >= 0 and (a.thread is None or a.thread.is_alive()))

    def ring(self, message_bytes: int, steps: int, warmup: int) -> None:
        known: set[str] = set()
        for step in range(steps + warmup):
            while not (self.heard() or self.over.is_set()):
                time.sleep(0.001)
            now = start = time.monotonic_ns()
            stalled_ns = ticks = 0
            while ticks < 10 and not self.over.is_set():
                time.sleep(TICK_NS / 1e9)
                before, now = now, time.monotonic_ns()
                if self.stalled():
                    stalled_ns += now - before
                    continue
                ticks += 1
                share = message_bytes * 2 // 10 // self.cluster.fabric.planes
                self.log("goodput", bin_ns=10 * MS, t=now, tx=[share] * self.cluster.fabric.planes, rx=[share] * self.cluster.fabric.planes)
                if self.transport == "mrc":
                    down = set(self.cluster.down)
                    for link in down ^ known:
                        for ev in evs_over(self.cluster.fabric, self.host, self.peer, link):
                            if link in down:
                                self.log("loss", peer=self.peer, ev=ev, psn=7, rule="time", sent_ns=now - 4 * MS)
                                self.log(
                                    "ev",
                                    t=now,
                                    peer=self.peer,
                                    ev=ev,
                                    **{"from": "GOOD", "to": "ASSUMED_BAD"},
                                    cause="loss",
                                    last_data_ns=now - 3 * MS,
                                )
                            else:
                                self.log(
                                    "ev",
                                    t=now,
                                    peer=self.peer,
                                    ev=ev,
                                    **{"from": "ASSUMED_BAD", "to": "GOOD"},
                                    cause="probed",
                                    last_data_ns=0,
                                )
                    known = down
            while self.ahead(step) and not self.over.is_set():
                time.sleep(0.001)
            if self.over.is_set():
                return
            if step == self.cluster.break_at and self.rank == 1:
                self.notify(event="failed", rank=self.rank, peer_rank=2, reason="retries exhausted")
                return
            end = start + 10 * TICK_NS + stalled_ns  # what a busy machine adds to each tick is no figure of a run
            ok = not (self.cluster.wrong_at == step and self.rank == 0)
            self.log("step", rank=self.rank, step=step, start_ns=start, end_ns=end, ok=ok)
            self.steps_done = step + 1
            self.notify(event="step", rank=self.rank, step=step, start_ns=start, end_ns=end, ok=ok)
            if step == self.cluster.interrupt_at and self.rank == 0:
                self.cluster.interrupted = True
        self.notify(event="done", rank=self.rank, wrong=int(self.cluster.wrong_at >= 0 and self.rank == 0))

    def op_quiesce(self) -> None:
        self.quiesced = True

    def op_counters(self) -> dict[str, Any]:
        assert self.quiesced
        return {
            "tx_packets": 100,
            "rx_packets": 99 - (self.cluster.vanished if self.host == 0 else 0),
            "retransmitted": 1,
            "tx_refused": 0,
            "rx_ring_drops": 0,
            "rx_bad_rkey": 0,
        }

    def op_stop(self) -> dict[str, Any]:
        self.over.set()
        if self.thread is not None:
            self.thread.join(2)
        self.log("loop", lag_max_ns=2 * MS, lag_p99_ns=MS)
        self.log_file.close()
        return {}


class FakeCluster:
    """``break_at``, ``wrong_at``, ``interrupt_at``: at the end of that step a rank fails, has a wrong sum, or the user presses Ctrl-C."""

    def __init__(
        self, fabric: Fabric, *, break_at: int = -1, wrong_at: int = -1, interrupt_at: int = -1, vanished: int = 0, die: bool = False
    ) -> None:
        self.fabric, self.break_at, self.wrong_at, self.interrupt_at, self.vanished, self.die = (
            fabric,
            break_at,
            wrong_at,
            interrupt_at,
            vanished,
            die,
        )
        self.clock = FakeClock()
        self.agents: list[FakeAgent] = []
        self.captures: list[Any] = []
        self.controller_lost = False
        self.name = "emulated"
        self.down: set[str] = set()
        self.injected: list[Injected] = []
        self.there: dict[int, Injected] = {}
        self.events: list[FaultEvent] = []
        self.calls: list[tuple[Any, ...]] = []
        self.alone: list[bool] = []  # of every start of agents: whether each had to have a process of its own
        self.lost = 0
        self.interrupted = False

    def start(self) -> None:
        self.calls.append(("start",))

    def stop(self) -> None:
        self.calls.append(("stop",))
        for agent in self.agents:
            agent.op_stop()

    def start_agents(
        self, transport: str, options: dict[str, Any], log_dir: Path, seed: int, policy: str = "none", alone: bool = True
    ) -> None:  # fmt: skip
        self.calls.append(("agents", transport, dict(options), seed, *([policy] if policy != "none" else [])))
        self.alone.append(alone)
        self.agents = [FakeAgent(self, host, transport, log_dir / f"h{host}.jsonl") for host in range(self.fabric.host_count)]

    def stop_agents(self) -> None:
        for agent in self.agents:
            agent.op_stop()

    def reroute(self, dead_links: Any) -> None:
        self.calls.append(("reroute", *dead_links))

    def controller_journal(self, since_ns: int) -> list[dict[str, Any]]:
        return [{"t_ns": time.monotonic_ns(), "event": "link-down", "link": name} for name in sorted(self.down)]

    def inject(self, kind: str, on: str, *, run_seed: int = 0, **keys: Any) -> Injected:
        target = resolve(self.fabric, kind, on, keys, run_seed)
        made = Injected(len(self.injected) + 1, target, time.monotonic_ns())
        self.injected.append(made)
        self.calls.append(("inject", kind, on))
        if kind == "kill" and target.host >= 0:
            self.die = True
        self.there[made.number] = made
        self.settle()
        self.events.append(FaultEvent(made.told_ns, made.number, "begin", target.links))
        return made

    def clear(self, number: int) -> int:
        made, told = self.there.pop(number), time.monotonic_ns()
        self.settle()
        self.events.append(FaultEvent(told, number, "heal", made.target.links))
        return told

    def settle(self) -> None:
        down = {link for made in self.there.values() if KINDS[made.target.kind].takes for link in made.target.links}
        self.calls += [("link", link, link not in down) for link in sorted(down ^ self.down)]
        self.down = down

    def faults(self) -> list[Injected]:
        return list(self.there.values())

    def fault_events(self) -> list[FaultEvent]:
        told, self.events = self.events, []
        return told

    def link_states(self) -> dict[str, bool]:
        return {link.name: link.name not in self.down for link in self.fabric.links}

    def deny(self, entry: str, reason: str = "", by: str = "operator") -> bool:
        self.calls.append(("deny", entry, by))
        return True

    def allow(self, entry: str, by: str | None = None) -> bool:
        self.calls.append(("allow", entry, by))
        return True

    def heal(self) -> None:
        for number in list(self.there):
            self.clear(number)

    def counters(self) -> list[dict[str, Any]]:
        flushed = self.lost
        self.lost += self.fabric.host_count  # one packet a host, between two readings
        return [
            {
                "port": p.name,
                "node": p.node,
                "peer": "",
                "link": "",
                "plane": p.plane,
                "kind": "nic",
                "admitted_packets": 100,
                "flushed_packets": flushed if p.number == 1 else 0,
                "backlog_bytes": 0,
            }
            for p in self.fabric.ports
        ]

    def processes(self) -> dict[str, int]:
        return {"runner": os.getpid()}

    def run_watch(self, interval_s: float) -> None:
        """It is all here."""

    def port_watch(self) -> None:
        return None

    def backlog(self, port: str) -> int:
        return 100 * [p.name for p in self.fabric.ports].index(port)

    def loads(self) -> NDArray[np.int64]:
        return np.zeros((len(self.fabric.ports), 5), dtype=np.int64)

    def quiesce(self, timeout: float) -> bool:
        return True

    def check(self) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        if self.die:
            raise RuntimeError("agent of h3 died")
