"""A collective round a ring, in steps: how far it is, how fast it goes on, what it loses when something breaks, and what its hosts log.

All ranks go on together: a step has a share that is done, which grows with one over the time that a whole step would take in the present
state of the network (piecewise constant). While senders do not yet know that a path is dead, the ring stands still as soon as it has
nothing left to send (:meth:`testbed.fluid.calibration.Calibration.slack_ns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

from agents.process.agent import BIN_RTTS
from testbed.fluid.calibration import ROUNDS, Calibration, Shape
from testbed.fluid.cluster import Numbers
from testbed.fluid.hosts import QPN, FluidHost
from testbed.fluid.network import Cable, Network
from testbed.fluid.rates import flow_rates, live_planes, port_rates
from testbed.fluid.senders import Loss
from testbed.fluid.tally import Tally
from topologies.addressing import ev

BIN_NS, HOSTS_PER_BIN = 20_000_000, 64
"""Shortest bin of goodput, as the agents have it; above so many hosts it is as much wider, so that logs stay small [ours]."""


class RingJob:
    """``hosts`` in rank order, ``request`` as agents get it: collective, message_bytes, slices, steps, warmup."""

    def __init__(
        self, network: Network, hosts: Sequence[FluidHost], request: dict[str, Any], calibration: Calibration
    ) -> None:  # fmt: skip
        self.network, self.hosts, self.calibration = network, hosts, calibration
        self.cluster, fabric = network.cluster, network.fabric
        self.senders: Numbers = np.array([host.number for host in hosts], dtype=np.int64)
        self.receivers: Numbers = np.roll(self.senders, -1)
        self.a, self.b = self.cluster.t0_of(self.senders), self.cluster.t0_of(self.receivers)
        rounds, size = ROUNDS[request["collective"]], int(request["message_bytes"])
        self.shape = Shape(fabric, len(hosts), size, int(request["slices"]), rounds, float((self.a != self.b).mean()))
        self.moved = rounds * (len(hosts) - 1) / len(hosts) * size  # bytes of payload that each rank sends in a step
        self.steps, self.step, self.share = int(request["warmup"]) + int(request["steps"]), 0, 0.0
        self.tally = Tally(self.cluster)
        self._accounted = np.zeros((2, self.cluster.planes, self.cluster.hosts), dtype=np.int64)
        self.bin_ns = max(BIN_RTTS * fabric.base_rtt_ns, BIN_NS) * ceil(len(hosts) / HOSTS_PER_BIN)
        self.at = self.began = self.stalled_until = network.time
        self.rate = self.port_rate = 0.0
        self.step_ns = float("inf")
        self._plan = 0
        self._losses: dict[Cable, Loss] = {}
        self._hit_at: dict[Cable, int] = {}
        self._missing: dict[tuple[int, int, int], Cable] = {}  # (edge, plane, uplink) -> the cable that its packets are lost on
        self._bad: set[tuple[int, int, int]] = set()  # given up by an edge

    def begin(self) -> None:
        """All ranks begin the first step now."""
        self.network.user = self
        self.changed()
        self.network.meet()
        self._replan()
        self._next_bin()

    # --- progress --------------------------------------------------------------------------------------------

    def settle(self) -> None:
        now = self.network.time
        moving = now - max(self.at, min(self.stalled_until, now))
        self.at = now
        if moving > 0 and np.isfinite(self.step_ns):
            self._advance(min(1 - self.share, moving / self.step_ns))

    def _advance(self, share: float) -> None:
        self.share += share
        state = self.network.used.both(self.network.works)
        self.tally.add(state, self.senders, self.receivers, np.full(len(self.hosts), share * self.moved))

    def changed(self) -> None:
        state = self.network.used.both(self.network.works)
        self.rate = float(flow_rates(state, self.senders, self.receivers).min())
        self.port_rate = float(port_rates(state, self.senders, self.receivers).min())
        self.step_ns = self.calibration.step_ns(self.shape, self.rate, self.port_rate)
        self._replan()

    def _replan(self) -> None:
        self._plan += 1
        plan = self._plan
        if np.isfinite(self.step_ns):
            end = max(self.at, self.stalled_until) + ceil((1 - self.share) * self.step_ns)
            self.network.at(end, lambda: self._end_step(plan))

    def _end_step(self, plan: int) -> None:
        if plan != self._plan:
            return
        self.settle()
        self._advance(1 - self.share)  # what rounding to whole ns has left
        now = self.network.time
        for rank, host in enumerate(self.hosts):
            record = {"rank": rank, "step": self.step, "start_ns": self.began, "end_ns": now, "ok": True}
            host.write(now, "step", **record)
            host.notes.append({"event": "step", **record})
        self.step, self.share, self.began = self.step + 1, 0.0, now
        self.network.halted = True
        if self.step < self.steps:
            self._replan()
        else:
            self._finish()

    def _finish(self) -> None:
        self._plan += 1
        self.network.user = None
        self._log_bin(self.network.time)
        for rank, host in enumerate(self.hosts):
            host.notes.append({"event": "done", "rank": rank, "wrong": 0})

    # --- what breaks -----------------------------------------------------------------------------------------

    def _over_cable(self, cable: Cable) -> list[int]:
        """The edges that send over a cable: its path is used at both ends, and so are the ports."""
        port = self.network.used.port[cable[0]] & self.network.works.port[cable[0]]
        return [edge for edge in self._believers(cable) if port[self.senders[edge]] and port[self.receivers[edge]]]

    def _believers(self, cable: Cable) -> list[int]:
        """The edges with a path over a cable that is used at both ends."""
        plane, t0, uplink = cable
        up = self.network.used.up[plane, :, uplink]
        return np.flatnonzero((self.a != self.b) & ((self.a == t0) | (self.b == t0)) & up[self.a] & up[self.b]).tolist()

    @property
    def slack_ns(self) -> float:
        return self.calibration.slack_ns(self.shape, self.rate, self.port_rate) if self.rate > 0 and self.port_rate > 0 else 0.0

    @property
    def _pace(self) -> float:
        """What each rank sends on average, bits/s on the wire; 0 where the job is cut off."""
        return self.moved * 8e9 / self.step_ns / self.network.fabric.payload_share

    def _evs(self, edge: int) -> int:
        """EVs that the edge's queue pair uses."""
        live, paths, pair_of = live_planes(self.network.used, self.senders[edge : edge + 1], self.receivers[edge : edge + 1])
        rules = self.network.senders
        return sum(rules.evs(int(paths[plane, pair_of[0]])) for plane in np.flatnonzero(live[:, 0])) or 1

    def hit(self, cable: Cable) -> Loss | None:
        edges = self._over_cable(cable)
        if not edges:
            return None
        now = self.network.time
        loss = self.network.senders.loss(self._pace or float(self.network.fabric.host_rate), self._evs(edges[0]), self.slack_ns)
        self._losses[cable], self._hit_at[cable] = loss, now
        plane, _, uplink = cable
        lost = [edge for edge in edges if self._missing.setdefault((edge, plane, uplink), cable) == cable]
        self.network.at(now + loss.known_ns, lambda: self._log_losses(lost, ev(plane, uplink), loss, now))
        self._stall(loss.there_ns)
        return loss

    def _stall(self, missing_ns: int) -> None:
        """Slices come so much later: the ring stands still once it has nothing left to send."""
        self.stalled_until = max(self.stalled_until, self.network.time + max(0, round(missing_ns - self.slack_ns)))

    def _log_losses(self, edges: Sequence[int], value: int, loss: Loss, died: int) -> None:
        now = self.network.time
        for edge in edges:
            sent = [died + number * loss.last_ns // max(1, loss.packets - 1) for number in range(loss.packets)]
            self._lose(edge, [value] * loss.packets, "time", sent, now + self.network.senders.rtt)

    def _lose(self, edge: int, evs: Sequence[int], rule: str, sent: Sequence[int], known_ns: int) -> None:
        """Log packets of an edge as lost now, sent again, and known to have arrived at ``known_ns``."""
        host, peer, now = self.hosts[edge], int(self.receivers[edge]), self.network.time
        for value, sent_ns in zip(evs, sent, strict=True):
            host.psn += 1
            who = {"peer": peer, "qpn": QPN}
            host.write(now, "loss", **who, ev=value, psn=host.psn, rule=rule, sent_ns=sent_ns)
            host.write(known_ns, "redelivered", **who, psn=host.psn)
        host.counters["lost_on_dead_paths"] += len(evs)
        host.counters["retransmitted"] += len(evs)

    def left(self, cable: Cable) -> None:
        plane, _, uplink = cable
        loss, died = self._losses.pop(cable), self._hit_at.pop(cable)
        self._missing = {path: lost_on for path, lost_on in self._missing.items() if lost_on != cable}
        for edge in self._over_cable(cable):
            self._bad.add((edge, plane, uplink))
            self._log_ev(edge, ev(plane, uplink), ("GOOD", "ASSUMED_BAD", "time"), died + loss.last_ns)

    def returned(self, cable: Cable) -> None:
        plane, _, uplink = cable
        for edge in self._believers(cable):
            if (edge, plane, uplink) in self._bad:  # those whose port was down have not given it up
                self._bad.remove((edge, plane, uplink))
                self._log_ev(edge, ev(plane, uplink), ("ASSUMED_BAD", "GOOD", "probed"), None)

    def _log_ev(self, edge: int, value: int, change: tuple[str, str, str], last_data_ns: int | None) -> None:
        before, after, cause = change
        self.hosts[edge].write(
            self.network.time, "ev", peer=int(self.receivers[edge]), qpn=QPN, ev=value, **{"from": before, "to": after}, cause=cause,
            last_data_ns=last_data_ns, srtt_ns=self.network.senders.busy_rtt, evs=self._evs(edge),
        )  # fmt: skip

    def port(self, plane: int, host: int, up: bool) -> None:
        now, rules, fabric = self.network.time, self.network.senders, self.network.fabric
        before, after = ("PROVING", "USED") if up else ("USED", "DOWN")
        for edge in np.flatnonzero((self.senders == host) | (self.receivers == host)).tolist():
            own = int(self.senders[edge]) == host
            cause = "probed" if up else "port down" if own else "peer's port down"
            peer = int(self.receivers[edge])
            self.hosts[edge].write(now, "plane", peer=peer, plane=plane, **{"from": before, "to": after}, cause=cause)
            if not up:
                planes = int(live_planes(self.network.used, self.senders[edge : edge + 1], self.receivers[edge : edge + 1])[0].sum())
                flying = round(self._pace / max(1, planes) * rules.told_ns / 8e9 / fabric.frame_bytes)
                values = [ev(plane, uplink % max(1, fabric.t1_per_plane)) for uplink in range(flying)]
                self._lose(edge, values, "port", [now - rules.told_ns] * flying, now + rules.rtt)
        if not up:
            self._stall(rules.rtt // 2)

    # --- bins ------------------------------------------------------------------------------------------------

    def _next_bin(self) -> None:
        end = (self.network.time // self.bin_ns + 1) * self.bin_ns
        self.network.at(end, self._bin)

    def _bin(self) -> None:
        if self.network.user is self:
            self.settle()
            self._log_bin(self.network.time)
            self._next_bin()

    def _log_bin(self, now: int) -> None:
        """Payload since the last line, by host and plane, under the time at which its bin began."""
        totals = np.stack([self.tally.sent, self.tally.received]).round().astype(np.int64)
        since, self._accounted = totals - self._accounted, totals
        began = (now - 1) // self.bin_ns * self.bin_ns
        mtu = self.network.fabric.mtu
        for host in self.hosts:
            sent, received = since[0, :, host.number].tolist(), since[1, :, host.number].tolist()
            if any(sent) or any(received):
                host.write(began, "goodput", bin_ns=self.bin_ns, tx=sent, rx=received)
            lost = host.counters["lost_on_dead_paths"]
            host.counters["tx_packets"] = -(-int(totals[0, :, host.number].sum()) // mtu) + lost
            host.counters["rx_packets"] = -(-int(totals[1, :, host.number].sum()) // mtu)
            host.flush()
