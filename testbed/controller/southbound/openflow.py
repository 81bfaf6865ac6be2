"""Open vSwitch bridges: one OpenFlow session per switch, two tables each
(testbed/controller/ryu_openflow.py)."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.controller.config import Config
from testbed.controller.ryu_openflow import DROP, SHIFT, Bridges, Flow
from testbed.controller.southbound.base import Counts, PortReport, Tables
from testbed.errors import UserError
from topologies.addressing import BLOCK, switch_usid


def prefix_of(usid: int) -> bytes:
    return BLOCK + usid.to_bytes(2, "big")


class OpenFlowSouthbound:
    def __init__(self, config: Config) -> None:
        self._switches = config.fabric.switches
        self._port_numbers = config.ports
        sockets = {switch: config.bridges / f"{switch}.mgmt" for switch in self._switches}
        self._bridges = Bridges(sockets, config.clock.clock().now)
        self._names: dict[str, dict[int, str]] = {}  # switch -> OpenFlow number -> port

    def program(self, tables: Tables) -> None:
        """Correct flows stay, so that traffic is not disturbed."""
        self._bridges.connect()
        self._names = self._bridges.each(
            lambda s: {number: port for port, (number, _) in self._bridges.ports(s).items()}
        )
        lacking = sorted(
            set(self._port_numbers)
            - {port for names in self._names.values() for port in names.values()}
        )
        if lacking:
            raise UserError(
                f"controller: the switches have no port {lacking[0]!r} ({len(lacking)} such): "
                "Open vSwitch did not take it"
            )

        def write(switch: str) -> None:
            numbers = {port: number for number, port in self._names[switch].items()}
            flows = {
                *self._fixed(switch),
                *(
                    Flow(1, prefix_of(u), numbers[port])
                    for u, port in tables.get(switch, {}).items()
                ),
            }
            installed = set(self._bridges.read(switch))
            if installed - flows:
                self._bridges.write(switch, flows, afresh=True)
            elif flows - installed:
                self._bridges.write(switch, flows - installed, afresh=False)

        self._bridges.each(write)

    @staticmethod
    def _fixed(switch: str) -> tuple[Flow, ...]:
        return (
            Flow(0, prefix_of(switch_usid(switch)), SHIFT),
            Flow(0, b"", DROP),
            Flow(1, b"", DROP),
        )

    def read(self) -> dict[str, dict[int, str]]:
        """What forwarding does not need appears as uSID 0."""
        tables: dict[str, dict[int, str]] = {}
        for switch, switch_flows in self._bridges.each(self._bridges.read).items():
            table: dict[int, str] = {}
            flows = set(switch_flows)
            for fixed in self._fixed(switch):
                if fixed not in flows:
                    table[0] = f"table {fixed.table} lacks the flow that must {fixed.action}"
            for flow in flows - set(self._fixed(switch)):
                if (
                    flow.table == 1
                    and flow.prefix.startswith(BLOCK)
                    and isinstance(flow.action, int)
                ):
                    table[int.from_bytes(flow.prefix[4:], "big")] = self._names[switch].get(
                        flow.action, f"port {flow.action}"
                    )
                else:
                    table[0] = f"table {flow.table} has a strange flow ({flow.action})"
            if table:
                tables[switch] = table
        return tables

    def counts(self) -> dict[str, Counts]:
        counters = {}
        for switch, flows in self._bridges.each(self._bridges.read).items():
            own, foreign, unrouted = (
                flows[flow].packets if flow in flows else 0 for flow in self._fixed(switch)
            )
            routes = {
                int.from_bytes(f.prefix[4:], "big"): (n.packets, n.size)
                for f, n in flows.items()
                if f.table == 1 and f.prefix
            }
            # reached table 0's flow and no further
            expired = max(0, own - unrouted - sum(packets for packets, _ in routes.values()))
            counters[switch] = Counts(
                routes, {"not_mine": foreign, "no_route": unrouted, "hop_limit": expired}
            )
        return counters

    def port_states(self) -> dict[str, bool]:
        states = self._bridges.each(self._bridges.ports)
        return {
            port: up
            for ports in states.values()
            for port, (_, up) in ports.items()
            if port in self._port_numbers
        }

    def port_reports(self) -> Iterator[PortReport]:
        while True:
            report = self._bridges.next_report()
            if report.port in self._port_numbers:
                yield report
