"""What all traffic of the fluid world has in common: how its senders meet dead paths, and what its hosts log of it.

A subclass says how fast its edges (sender, receiver) send, and what a loss does to them: :mod:`testbed.fluid.ring`,
:mod:`testbed.fluid.flows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from agents.process.agent import BIN_RTTS
from testbed.fluid.cluster import Numbers, State
from testbed.fluid.hosts import QPN, FluidHost
from testbed.fluid.network import Cable, Network
from testbed.fluid.rates import live_planes
from testbed.fluid.senders import Loss
from testbed.fluid.tally import Tally
from topologies.addressing import ev

BIN_NS, HOSTS_PER_BIN = 20_000_000, 64
"""Shortest bin of goodput, as the agents have it; above so many hosts it is as much wider, so that logs stay small [ours]."""


class Traffic:
    """``hosts`` in rank order; ``senders`` and ``receivers``: host numbers of each edge."""

    def __init__(self, network: Network, hosts: Sequence[FluidHost], senders: Numbers, receivers: Numbers) -> None:
        self.network, self.hosts = network, hosts
        self.cluster, fabric = network.cluster, network.fabric
        self.senders, self.receivers = senders, receivers
        by_number = {host.number: host for host in hosts}
        self.edge_hosts = [by_number[number] for number in senders.tolist()]
        self.a, self.b = self.cluster.t0_of(senders), self.cluster.t0_of(receivers)
        self.at = network.time
        self.tally = Tally(self.cluster)
        self.bin_ns = max(BIN_RTTS * fabric.base_rtt_ns, BIN_NS) * ceil(len(hosts) / HOSTS_PER_BIN)
        self._accounted = np.zeros((2, self.cluster.planes, self.cluster.hosts), dtype=np.int64)
        self._losses: dict[Cable, Loss] = {}
        self._hit_at: dict[Cable, int] = {}
        self._missing: dict[tuple[int, int, int], Cable] = {}  # (edge, plane, uplink) -> the cable that its packets are lost on
        self._bad: set[tuple[int, int, int]] = set()  # given up by an edge

    # --- what a kind of traffic says of itself -----------------------------------------------------------------

    def settle(self) -> None:
        """Account for the time until now."""
        raise NotImplementedError

    def changed(self) -> None:
        """Rates are others from now on."""
        raise NotImplementedError

    def pace(self, edge: int) -> float:
        """Bits/s on the wire that an edge sends; 0 where it is cut off."""
        raise NotImplementedError

    @property
    def slack_ns(self) -> float:
        """For how long senders go on although a loss holds up what they send."""
        raise NotImplementedError

    def sends(self, edge: int) -> bool:
        """Whether an edge has anything to send."""
        return True

    def stall(self, missing_ns: int) -> None:
        """Packets come so much later than they should."""

    def log_more(self, host: FluidHost, began: int) -> None:
        """Log what else a host counts, of the bin that began then."""

    # --- its life ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """It begins now."""
        self.network.user = self
        self.changed()
        self.network.meet()
        self.changed()
        self._next_bin()

    def finish(self) -> None:
        """Nothing is sent any more."""
        self.network.user = None
        self._log_bin(self.network.time)

    @property
    def state(self) -> State:
        """What works and is used."""
        return self.network.used.both(self.network.works)

    # --- what breaks -----------------------------------------------------------------------------------------

    def _over_cable(self, cable: Cable) -> list[int]:
        """The edges that send over a cable: its path is used at both ends, and so are the ports."""
        port = self.network.used.port[cable[0]] & self.network.works.port[cable[0]]
        return [edge for edge in self._believers(cable) if port[self.senders[edge]] and port[self.receivers[edge]] and self.sends(edge)]

    def _believers(self, cable: Cable) -> list[int]:
        """The edges with a path over a cable that is used at both ends."""
        plane, t0, uplink = cable
        up = self.network.used.up[plane, :, uplink]
        return np.flatnonzero((self.a != self.b) & ((self.a == t0) | (self.b == t0)) & up[self.a] & up[self.b]).tolist()

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
        loss = self.network.senders.loss(self.pace(edges[0]) or float(self.network.fabric.host_rate), self._evs(edges[0]), self.slack_ns)
        self._losses[cable], self._hit_at[cable] = loss, now
        plane, _, uplink = cable
        lost = [edge for edge in edges if self._missing.setdefault((edge, plane, uplink), cable) == cable]
        self.network.at(now + loss.known_ns, lambda: self._log_losses(lost, ev(plane, uplink), loss, now))
        self.stall(loss.there_ns)
        return loss

    def _log_losses(self, edges: Sequence[int], value: int, loss: Loss, died: int) -> None:
        now = self.network.time
        for edge in edges:
            sent = [died + number * loss.last_ns // max(1, loss.packets - 1) for number in range(loss.packets)]
            self._lose(edge, [value] * loss.packets, "time", sent, now + self.network.senders.rtt)

    def _lose(self, edge: int, evs: Sequence[int], rule: str, sent: Sequence[int], known_ns: int) -> None:
        """Log packets of an edge as lost now, sent again, and known to have arrived at ``known_ns``."""
        host, peer, now = self.edge_hosts[edge], int(self.receivers[edge]), self.network.time
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
        self.edge_hosts[edge].write(
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
            self.edge_hosts[edge].write(now, "plane", peer=peer, plane=plane, **{"from": before, "to": after}, cause=cause)
            if not up:
                planes = int(live_planes(self.network.used, self.senders[edge : edge + 1], self.receivers[edge : edge + 1])[0].sum())
                flying = round(self.pace(edge) / max(1, planes) * rules.told_ns / 8e9 / fabric.frame_bytes)
                values = [ev(plane, uplink % max(1, fabric.t1_per_plane)) for uplink in range(flying)]
                self._lose(edge, values, "port", [now - rules.told_ns] * flying, now + rules.rtt)
        if not up:
            self.stall(rules.rtt // 2)

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
            self.log_more(host, began)
            host.flush()
