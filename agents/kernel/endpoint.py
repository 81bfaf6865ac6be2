"""The figures of a host's kernel connections, as the other transports' engines give theirs.

What the kernel counts between two looks is one event: an ``rto`` or ``rtx`` line says how many, not
when.
"""

from __future__ import annotations

from collections.abc import Mapping

from agents.clock import WallClock
from agents.kernel.connection import ERROR, OPEN, STATES, Connection
from agents.kernel.framing import Memory
from agents.kernel.info import TcpInfo, fell_back, subflows
from agents.kernel.options import MPTCP, Options
from agents.kernel.ports import PortBytes, bad_checksums, split
from agents.kernel.routes import Flow, Routes
from agents.transport import LONG_AGO, Completion, Event, PathRow, Reports
from topologies.addressing import ev as make_ev
from topologies.addressing import ev_fields
from topologies.clos import Fabric

FRESH_S = 0.005
"""One bin's figures come from one sample, valid for so much wall time [ours]."""


class Observed:
    def __init__(self) -> None:
        self.infos: dict[Flow, TcpInfo] = {}
        self.evs: dict[Flow, int] = {}
        self.alive: list[Flow] = []
        self.expected: Flow | None = None  # for TCP, until the connection is established

    def total(self, field: str) -> int:
        return sum(max(0, int(getattr(info, field))) for info in self.infos.values())


class Endpoint(Reports):
    """Raises ValueError on bad options. It opens nothing before :meth:`open`."""

    def __init__(
        self,
        fabric: Fabric,
        host: int,
        clock: WallClock,
        kind: str,
        options: Mapping[str, object],
        seed: int,
    ) -> None:
        self.fabric, self.host, self.kind, self.seed = fabric, host, kind, seed
        self.options = Options(kind, fabric, options)
        self.memory = Memory()
        self.connections: dict[int, Connection] = {}
        self.observed: dict[int, Observed] = {}
        self.finished: list[Completion] = []
        self.strangers = 0
        self._log: list[Event] = []
        self._routes: Routes | None = None
        self._ports: PortBytes | None = None
        self._bad_before = 0
        self._clock = clock
        self._sampled_at = LONG_AGO
        planes = fabric.planes
        self._tx, self._rx = [0] * planes, [0] * planes

    def open(self) -> None:
        """Raises OSError."""
        self._routes = Routes(self.fabric, self.host)
        self._ports = PortBytes([f"h{self.host}-p{plane}" for plane in range(self.fabric.planes)])
        self._bad_before = bad_checksums()

    def close(self) -> None:
        if self._routes is not None:
            self._routes.close()

    def new(self, qpn: int, peer: int, token: int) -> Connection:
        connection = Connection(
            qpn,
            peer,
            token,
            self.memory,
            self._clock.patience(self.options.user_timeout_s(self._clock)),
            self.finished,
            self._log.append,
        )
        self.connections[qpn] = connection
        self.observed[qpn] = Observed()
        return connection

    # --- what the host process asks ---------------------------------------------------------------

    def completed(self) -> bool:
        return bool(self.finished)

    def completions(self) -> list[Completion]:
        completions = self.finished[:]
        self.finished.clear()
        return completions

    def events(self) -> list[Event]:
        self._sample()
        events, self._log[:] = self._log[:], []
        return events

    def reroute(self, now: int, dead_links: list[str]) -> None:
        if self._routes is not None:
            self._routes.forget()
        self._log.append((now, "reroute", {"dead_links": list(dead_links)}))

    def deny(self, now: int, entries: list[str]) -> None:
        """Do nothing: the kernel cannot avoid single paths."""

    def quiesce(self) -> None:
        for connection in self.connections.values():
            connection.quiesced = True

    def hint(self, now: int, links: list[str]) -> None:
        """Do nothing: the kernel does not use hints."""

    def counters(self) -> dict[str, int]:
        self._sample()
        counters = {"connections": len(self.connections), "failed": 0, "rx_foreign": self.strangers}
        for connection in self.connections.values():
            counters["failed"] += connection.state == ERROR
            for name, count in connection.counts.items():
                counters[name] = counters.get(name, 0) + count
        for name, field in (
            ("retransmitted", "total_retrans"),
            ("rto", "total_rto"),
            ("tx_segments", "segs_out"),
        ):
            counters[name] = sum(observed.total(field) for observed in self.observed.values())
        # by the name that frames refused for a checksum have everywhere
        counters["rx_bad_icrc"] = bad_checksums() - self._bad_before
        counters["subflows"] = sum(len(observed.infos) for observed in self.observed.values())
        return counters

    def goodput(self) -> tuple[list[int], list[int]]:
        """The kernel does not say which plane carried bytes: they are split in proportion to the
        growth of the NIC ports' byte counters [ours]."""
        tx = sum(c.payload_sent() for c in self.connections.values()) - sum(self._tx)
        rx = sum(self.placed().values()) - sum(self._rx)
        if self._ports is not None and (tx > 0 or rx > 0):
            sent, received = self._ports.growth()
            for totals, new, weights in ((self._tx, tx, sent), (self._rx, rx, received)):
                for plane, part in enumerate(split(max(0, new), weights)):
                    totals[plane] += part
        return self._tx[:], self._rx[:]

    def placed(self) -> dict[int, int]:
        return {qpn: connection.inbound.placed for qpn, connection in self.connections.items()}

    def windows(self) -> list[dict[str, int]]:
        """Windows are bytes of segments' payload. Of MPTCP it is the sum, with the fastest
        subflow's RTT."""
        self._sample()
        rows = []
        for qpn, observed in self.observed.items():
            alive = [observed.infos[flow] for flow in observed.alive]
            rows.append(
                {
                    "qpn": qpn,
                    "peer": self.connections[qpn].peer,
                    "cwnd": sum(info.cwnd * info.mss for info in alive),
                    "in_flight": sum(info.unacked * info.mss for info in alive),
                    "srtt_ps": min(
                        (self._clock.span(info.rtt_us * 1000) for info in alive if info.rtt_us),
                        default=0,
                    ),
                }
            )
        return rows

    def paths(self) -> list[PathRow]:
        """Return one row per queue pair, of MPTCP one per plane. The routing table is read anew."""
        self._sample(0.0)
        rows = []
        for qpn, observed in self.observed.items():
            connection = self.connections[qpn]
            if self.kind == MPTCP:
                for plane in range(self.fabric.planes):
                    flows = [
                        flow for flow, value in observed.evs.items() if ev_fields(value)[0] == plane
                    ]
                    rows.append(self._row(connection, observed, flows, make_ev(plane, 0)))
            elif observed.evs:
                rows.append(self._row(connection, observed, list(observed.evs), -1))
        return rows

    def _row(
        self, connection: Connection, observed: Observed, flows: list[Flow], otherwise: int
    ) -> PathRow:
        value = observed.evs[flows[-1]] if flows else otherwise
        plane, uplink = ev_fields(value)
        infos = [observed.infos[flow] for flow in flows if flow in observed.infos]
        active = any(flow in observed.alive for flow in flows) or observed.expected in flows
        return {
            "peer": connection.peer,
            "qpn": connection.qpn,
            "qp_state": STATES[connection.state],
            "plane": plane,
            "uplink": uplink,
            "ev": value,
            "state": "GOOD",
            "dead": not active,
            "active": active,
            "data_tx": sum(info.data_segs_out for info in infos),
            "tx_packets": sum(info.segs_out for info in infos),
            "retransmitted": sum(info.total_retrans for info in infos),
            "outstanding": sum(info.unacked for info in infos),
        }

    # --- looking ----------------------------------------------------------------------------------

    def _sample(self, fresh_s: float = FRESH_S) -> None:
        now = self._clock.now()
        if now - self._sampled_at < self._clock.patience(fresh_s):
            return
        self._sampled_at = now
        for qpn, connection in self.connections.items():
            self._look(now, connection, self.observed[qpn])

    def _look(self, now: int, connection: Connection, observed: Observed) -> None:
        before = {
            field: observed.total(field) for field in ("total_retrans", "total_rto", "retransmits")
        }
        flows: list[Flow] = []
        if connection.sock is not None and connection.state == OPEN:
            try:
                for flow, info in (
                    ((*s.local, *s.remote), s.info)
                    for s in subflows(connection.sock, self.kind == MPTCP)
                ):
                    flows.append(flow)
                    observed.infos[flow] = info
                if self.kind == MPTCP and fell_back(connection.sock):
                    connection.fail(
                        now,
                        "MPTCP fell back to TCP: the peer's kernel, or net.mptcp.enabled, "
                        "refuses it",
                    )
            except OSError:
                flows = []  # the connection is ending; its reader gets the error
            observed.expected = None
        if self._routes is not None:
            for flow in [*flows, *([observed.expected] if observed.expected else [])]:
                value = self._routes.ev(flow)
                if value >= 0:
                    observed.evs[flow] = value
        peer = {"peer": connection.peer, "qpn": connection.qpn}
        if self.kind == MPTCP and connection.state == OPEN:
            for flow in sorted(set(flows) ^ set(observed.alive)):
                plane = ev_fields(observed.evs[flow])[0] if flow in observed.evs else -1
                self._log.append(
                    (
                        now,
                        "subflow",
                        {**peer, "plane": plane, "phase": "begin" if flow in flows else "end"},
                    )
                )
        observed.alive = flows
        retransmitted = observed.total("total_retrans") - before["total_retrans"]
        if retransmitted > 0:
            self._log.append((now, "rtx", {**peer, "count": retransmitted}))
        has_total = all(info.total_rto >= 0 for info in observed.infos.values())
        field = "total_rto" if has_total else "retransmits"
        fired = observed.total(field) - before[field]
        if fired > 0:
            self._log.append((now, "rto", {**peer, "count": fired}))
