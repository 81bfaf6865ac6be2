"""A cluster without a network: agents that pretend to run a ring, or flows, on a virtual clock, and
log as the real ones do.

Every flow gets half of its host's line, and one that counts messages has sent them all at once. In
a ring MRC leaves a cut path half a us after its loss and goes on; RoCE stalls from the cut until
``reroute`` without its cable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.clock import WallClock
from testbed.faults.kinds import KINDS, resolve
from testbed.faults.targets import FaultEvent, Injected, Target
from topologies import Fabric
from topologies.paths import evs_over, path_evs
from topologies.units import BYTE, NS

BEAT = 100 * NS
TICK = 3 * BEAT
"""A fake step is ten of these long, and as long as a dead path stalls it."""


class FakeClock(WallClock):
    """Time passes where somebody waits, and agents act meanwhile; for the runner it is a machine's,
    so it is watched."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(dilation=10_000)
        self.cluster, self.time = cluster, 100_000 * BEAT

    def now(self) -> int:
        return self.time

    def sleep(self, time: int) -> None:
        self.pass_until(self.time + time, lambda: False)

    @contextmanager
    def waiter(self, agents: Sequence[Any]) -> Iterator[Callable[[int], Iterable[int]]]:
        def wait(time: int) -> Iterable[int]:
            self.pass_until(self.time + time, lambda: any(agent.notes for agent in agents))
            return range(len(agents))

        yield wait

    def pass_until(self, end: int, told: Callable[[], bool]) -> None:
        while not told():
            busy = [agent for agent in self.cluster.agents if agent.play is not None]
            due = min([agent.due for agent in busy], default=end)
            self.time = max(self.time, min(due, end))
            if due > end or not busy:
                return
            for agent in busy:
                agent.act()


class FakeAgent:
    def __init__(self, cluster: FakeCluster, host: int, transport: str, log: Path) -> None:
        self.cluster, self.host, self.transport = cluster, host, transport
        self.log_file = open(log, "w", encoding="utf-8")
        self.notes: list[dict[str, Any]] = []
        self.peer = -1
        self.rank = -1
        self.dead: set[str] = set()
        self.play: Iterator[int] | None = None
        """What it does: gives the times until which it does nothing."""
        self.due = 0
        self.steps_done = 0
        self.connected: dict[str, Any] = {}

    def fileno(self) -> int:
        return -1

    def act(self) -> None:
        """Go on, if it is time."""
        if self.play is not None and self.due <= self.cluster.clock.now():
            self.due = next(self.play, -1)
            if self.due < 0:
                self.play = None

    def log(self, kind: str, t: int | None = None, **fields: Any) -> None:
        self.log_file.write(
            json.dumps(
                {"t": t or self.cluster.clock.now(), "kind": kind, "host": self.host, **fields}
            )
            + "\n"
        )

    def notifications(self) -> list[dict[str, Any]]:
        out, self.notes = self.notes, []
        return out

    def call(self, op: str, **args: Any) -> Any:
        return getattr(self, f"op_{op}")(**args)

    def op_setup(
        self,
        collective: str,
        ranks: list[int],
        rank: int,
        qps: int,
        slices: int,
        flows: list[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        self.rank, self.peer = rank, ranks[(rank + 1) % len(ranks)]
        around = {(rank + 1) % len(ranks), (rank - 1) % len(ranks)}
        assert collective == "flows" or not flows
        self.own = flows or []
        if collective == "flows":
            around = {f["src"] + f["dst"] - rank for f in self.own}
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
        return [
            {"peer": self.peer, "plane": ev >> 16, "uplink": ev & 0xFFFF, "ev": ev, "state": "GOOD"}
            for ev in mine
        ]

    def op_reroute(self, dead_links: list[str]) -> dict[str, Any]:
        assert self.transport != "mrc"
        self.dead = set(dead_links)
        return {}

    def op_prepare(self, **what: Any) -> dict[str, Any]:
        self.prepared = what
        return {}

    def op_start(
        self,
        collective: str,
        message_bytes: int,
        seed: int,
        dtype: str = "",
        steps: int = 0,
        warmup: int = 0,
        outstanding: int = 0,
        at: int = 0,
    ) -> dict[str, Any]:
        flows = collective == "flows"
        assert not flows or (at >= self.cluster.clock.now() and outstanding > 0)
        self.play = (
            self.flows(message_bytes, at) if flows else self.ring(message_bytes, steps, warmup)
        )
        self.due = self.cluster.clock.now()
        return {}

    def stalled(self) -> bool:
        if self.transport == "mrc":
            return False
        ev = self.op_paths()[0]["ev"]
        return any(
            ev in evs_over(self.cluster.fabric, self.host, self.peer, link)
            for link in self.cluster.down - self.dead
        )

    def flows(self, message_bytes: int, at: int) -> Iterator[int]:
        fabric = self.cluster.fabric
        bin_ps = max(2 * fabric.base_rtt_ps, 20 * BEAT)
        half = int(fabric.host_rate * fabric.payload_share / 2 * bin_ps / BYTE)
        yield at + max((f["start_ps"] + (f["for_ps"] or 0) for f in self.own), default=0)
        end = self.cluster.clock.now()
        for flow in self.own:
            number = flow["number"]
            begin = at + flow["start_ps"]
            if flow["dst"] == self.rank and flow["for_ps"] is not None:
                for t in range(begin, begin + flow["for_ps"], bin_ps):
                    self.log("flow", t=t, flow=number, bin_ps=bin_ps, rx=half)
            if flow["src"] == self.rank:
                for k in range(flow["messages"] or 1):
                    self.log(
                        "message",
                        t=end,
                        flow=number,
                        number=k,
                        bytes=message_bytes,
                        start_ps=begin,
                        end_ps=end,
                    )
                said = {
                    "wrong": int(self.cluster.wrong_at == number),
                    "start_ps": begin,
                    "end_ps": end,
                }
                self.notes.append(
                    {
                        "event": "flow",
                        "flow": number,
                        "rank": self.rank,
                        "messages": 1,
                        "bytes": 0,
                        **said,
                    }
                )
        self.notes.append({"event": "done", "rank": self.rank, "wrong": 0})

    def ahead(self, step: int) -> bool:
        """Whether a rank has to wait before it ends this step: in a ring none ends one that another
        has not begun."""
        return any(a.steps_done < step for a in self.cluster.agents if a.play is not None)

    def ring(self, message_bytes: int, steps: int, warmup: int) -> Iterator[int]:
        clock, planes = self.cluster.clock, self.cluster.fabric.planes
        known: set[str] = set()
        for step in range(steps + warmup):
            now = start = clock.now()
            stalled_ps = ticks = 0
            while ticks < 10:
                yield now + TICK
                before, now = now, clock.now()
                if self.stalled():
                    stalled_ps += now - before
                    continue
                ticks += 1
                shares = [message_bytes * 2 // 10 // planes] * planes
                self.log("goodput", bin_ps=10 * BEAT, t=now, tx=shares, rx=shares)
                if self.transport == "mrc":
                    self.leave_and_return(known ^ self.cluster.down, now)
                    known = set(self.cluster.down)
            while self.ahead(step):
                yield clock.now() + BEAT
            if step == self.cluster.break_at and self.rank == 1:
                self.notes.append(
                    {
                        "event": "failed",
                        "rank": self.rank,
                        "peer_rank": 2,
                        "reason": "retries exhausted",
                    }
                )
                return
            ok = not (self.cluster.wrong_at == step and self.rank == 0)
            said = {
                "rank": self.rank,
                "step": step,
                "start_ps": start,
                "end_ps": start + 10 * TICK + stalled_ps,
                "ok": ok,
            }
            self.log("step", **said)
            self.steps_done = step + 1
            self.notes.append({"event": "step", **said})
            if step == self.cluster.interrupt_at and self.rank == 0:
                self.cluster.interrupted = True
        self.notes.append(
            {
                "event": "done",
                "rank": self.rank,
                "wrong": int(self.cluster.wrong_at >= 0 and self.rank == 0),
            }
        )

    def leave_and_return(self, links: set[str], now: int) -> None:
        """What MRC says of cables that went or came back."""
        for link in links:
            for ev in evs_over(self.cluster.fabric, self.host, self.peer, link):
                if link in self.cluster.down:
                    self.log(
                        "loss", peer=self.peer, ev=ev, psn=7, rule="time", sent_ps=now - 4 * BEAT
                    )
                    change = {
                        "from": "GOOD",
                        "to": "ASSUMED_BAD",
                        "cause": "loss",
                        "last_data_ps": now - 3 * BEAT,
                    }
                else:
                    change = {
                        "from": "ASSUMED_BAD",
                        "to": "GOOD",
                        "cause": "probed",
                        "last_data_ps": 0,
                    }
                self.log("ev", t=now, peer=self.peer, ev=ev, **change)

    def op_quiesce(self) -> None:
        self.quiesced = True

    def op_counters(self) -> dict[str, Any]:
        assert self.quiesced
        delivered = 99 - (self.cluster.vanished if self.host == 0 else 0)
        return {
            "tx_packets": 100,
            "rx_packets": delivered,
            "retransmitted": 1,
            "tx_refused": 0,
            "rx_ring_drops": 0,
            "rx_bad_rkey": 0,
        }

    def op_stop(self) -> dict[str, Any]:
        self.play = None
        if not self.log_file.closed:
            self.log("loop", lag_max_ps=2 * BEAT, lag_p99_ps=BEAT)
            self.log_file.close()
        return {}


class FakeCluster:
    """``break_at``, ``wrong_at``, ``interrupt_at``: at the end of that step a rank fails, has a
    wrong sum, or the user presses Ctrl-C."""

    def __init__(
        self,
        fabric: Fabric,
        *,
        break_at: int = -1,
        wrong_at: int = -1,
        interrupt_at: int = -1,
        vanished: int = 0,
        die: bool = False,
    ) -> None:
        self.fabric, self.break_at, self.wrong_at, self.interrupt_at = (
            fabric,
            break_at,
            wrong_at,
            interrupt_at,
        )
        self.vanished, self.die = vanished, die
        self.clock = FakeClock(self)
        self.agents: list[FakeAgent] = []
        self.captures: list[Any] = []
        self.controller_lost = False
        self.name = "emulated"
        self.down: set[str] = set()
        self.injected: list[Injected] = []
        self.there: dict[int, Injected] = {}
        self.events: list[FaultEvent] = []
        self.calls: list[tuple[Any, ...]] = []
        # of every start of agents: whether each had to have a process of its own
        self.alone: list[bool] = []
        self.lost = 0
        self.interrupted = False

    def start(self) -> None:
        self.calls.append(("start",))

    def stop(self) -> None:
        self.calls.append(("stop",))
        for agent in self.agents:
            agent.op_stop()

    def start_agents(
        self,
        transport: str,
        options: dict[str, Any],
        log_dir: Path,
        seed: int,
        policy: str = "none",
        alone: bool = True,
    ) -> None:
        self.calls.append(
            ("agents", transport, dict(options), seed, *([policy] if policy != "none" else []))
        )
        self.alone.append(alone)
        self.agents = [
            FakeAgent(self, host, transport, log_dir / f"h{host}.jsonl")
            for host in range(self.fabric.host_count)
        ]

    def stop_agents(self) -> None:
        for agent in self.agents:
            agent.op_stop()

    def reroute(self, dead_links: Any) -> None:
        self.calls.append(("reroute", *dead_links))

    def controller_journal(self, since_ps: int) -> list[dict[str, Any]]:
        return [
            {"t_ps": self.clock.now(), "event": "link-down", "link": name}
            for name in sorted(self.down)
        ]

    def inject(self, kind: str, on: str, *, run_seed: int = 0, **keys: Any) -> Injected:
        return self.strike(resolve(self.fabric, kind, on, keys, run_seed))

    def strike(self, target: Target) -> Injected:
        made = Injected(len(self.injected) + 1, target, self.clock.now())
        self.injected.append(made)
        self.calls.append(("inject", target.kind, target.on))
        if target.kind == "kill" and target.host >= 0:
            self.die = True
        self.there[made.number] = made
        self.settle()
        self.events.append(FaultEvent(made.told_ps, made.number, "begin", target.links))
        return made

    def clear(self, number: int) -> int:
        made, told = self.there.pop(number), self.clock.now()
        self.settle()
        self.events.append(FaultEvent(told, number, "heal", made.target.links))
        return told

    def settle(self) -> None:
        down = {
            link
            for made in self.there.values()
            if KINDS[made.target.kind].takes
            for link in made.target.links
        }
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
        common = {
            "peer": "",
            "link": "",
            "kind": "nic",
            "admitted_packets": 100,
            "backlog_bytes": 0,
        }
        return [
            {
                **common,
                "port": p.name,
                "node": p.node,
                "plane": p.plane,
                "flushed_packets": flushed if p.number == 1 else 0,
            }
            for p in self.fabric.ports
        ]

    def processes(self) -> dict[str, int]:
        return {"runner": os.getpid()}

    def run_watch(self, interval: int) -> None:
        """It is all here."""

    def port_watch(self) -> None:
        return None

    def backlog(self, port: str) -> int:
        return 100 * [p.name for p in self.fabric.ports].index(port)

    def loads(self) -> NDArray[np.int64]:
        return np.zeros((len(self.fabric.ports), 5), dtype=np.int64)

    def quiesce(self, timeout: int) -> bool:
        return True

    def check(self) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        if self.die:
            raise RuntimeError("agent of h3 died")
