"""eBPF switches: tables live in one pinned map, ports are interfaces of the switches' namespace."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from testbed.controller.config import Config
from testbed.controller.southbound.base import PortReport, Tables
from testbed.controller.southbound.netlink import LinkWatcher
from testbed.dataplane.maps import BpfMap
from testbed.errors import UserError

WORD = struct.Struct("=I")
"""A key is switch number << 16 | next uSID, a value the egress ifindex: u32 in the host's byte
order (fabric.bpf.c)."""


class EbpfSouthbound:
    def __init__(self, config: Config, routes: BpfMap, links: int) -> None:
        self._numbers = {name: number for number, name in enumerate(config.fabric.switches)}
        self._names = config.fabric.switches
        self._ports = config.ports
        self._port_of = {number: name for name, number in config.ports.items()}
        self._map = routes
        self._watcher = LinkWatcher(links, self._port_of, config.clock.clock().now)

    def program(self, tables: Tables) -> None:
        entries = {
            WORD.pack(self._numbers[switch] << 16 | usid): WORD.pack(self._ports[port])
            for switch, table in tables.items()
            for usid, port in table.items()
        }
        try:
            for key in [key for key, _ in self._map.items() if key not in entries]:
                self._map.delete(key)
            for key, value in entries.items():
                self._map.update(key, value)
        except OSError as error:
            raise UserError(
                f"controller: cannot write the routes map, {len(entries)} entries wanted: "
                f"{error.strerror}"
            ) from None

    def read(self) -> dict[str, dict[int, str]]:
        tables: dict[str, dict[int, str]] = {}
        try:
            for key, value in self._map.items():
                number, usid = divmod(WORD.unpack(key)[0], 1 << 16)
                ifindex = WORD.unpack(value)[0]
                switch = (
                    self._names[number] if number < len(self._names) else f"switch number {number}"
                )
                tables.setdefault(switch, {})[usid] = self._port_of.get(
                    ifindex, f"interface {ifindex}"
                )
        except OSError as error:
            raise UserError(f"controller: cannot read the routes map ({error.strerror})") from None
        return tables

    def counts(self) -> None:
        """Return None: the programs count per port (testbed/dataplane/counters.py), not per
        route."""

    def port_states(self) -> dict[str, bool]:
        return {report.port: report.up for report in self._watcher.snapshot()}

    def port_reports(self) -> Iterator[PortReport]:
        while True:
            yield from self._watcher.wait()
