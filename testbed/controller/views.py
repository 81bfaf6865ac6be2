"""Makes the answers of the REST view, as plain data. No Ryu, no socket."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from testbed.controller.links import FailedLinks
from testbed.controller.southbound.base import Counts, Tables
from topologies import Fabric, Link
from topologies.addressing import ev_fields, sid_list, switch_usid, text
from topologies.addressing import outer_address as address_of
from topologies.denylist import denied
from topologies.paths import path_evs, path_links, path_nodes

Answer = tuple[int, Any]

PAGES = {
    "/v1/fabric": "the fabric's description and sizes",
    "/v1/switches": "every switch, its uSID and ports",
    "/v1/tables": "every switch's uN table as the switch holds it now",
    "/v1/tables/{switch}": "one switch's",
    "/v1/links": "every link, its state and since when",
    "/v1/failed-links": "the failed-link map",
    "/v1/paths/{src}/{dst}": "every path between two hosts",
    "/v1/events": "journal of link changes",
    "/v1/journal": "journal of everything, ?since=T_PS for what came after",
    "/v1/stream": (
        "the journal as it grows, a JSON object per line; ?since=T_PS replays first. Also /events"
    ),
    "/v1/denylist": "what is denied, by whom and why; POST and DELETE change it",
    "/v1/agents": "the agents that get lists, and the policy",
}


class NotFound(Exception):
    def __init__(self, kind: str, name: str, existing: Iterable[str]) -> None:
        names = list(existing)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names[:3]
        super().__init__(kind, name)
        self.payload = {"error": f"no {kind} {name!r}", "near": near}


def paths_over(fabric: Fabric, link: Link) -> int:
    under, others = fabric.hosts_per_t0, fabric.host_count - fabric.hosts_per_t0
    # to and from one host: one path to each neighbour, one per T1 to all others
    if link.kind == "nic":
        return 2 * (under - 1 + others * fabric.t1_per_plane)
    if link.kind == "haul":  # between each pair of hosts of different sites, over one T1
        return 2 * (fabric.host_count // 2) ** 2
    return 2 * under * others  # to and from one T0's hosts, over one T1


class Views:
    def __init__(
        self,
        fabric: Fabric,
        expected: Tables,
        read: Callable[[], Tables],
        links: FailedLinks,
        denied: Callable[[], list[str]] = list,
        counts: Callable[[], dict[str, Counts] | None] = lambda: None,
    ) -> None:
        self._counts = counts
        self._pages: dict[str, Callable[[], object]] = {
            "fabric": self.fabric,
            "switches": self.switches,
            "tables": self.tables,
            "links": self.links,
            "failed-links": lambda: {
                name: asdict(failure) for name, failure in sorted(links.failed.items())
            },
            "events": lambda: list(links.journal),
        }
        self._fabric, self._expected, self._read, self._links, self._denied = (
            fabric,
            expected,
            read,
            links,
            denied,
        )

    def answer(self, path: str) -> Answer:
        parts = [part for part in path.split("/") if part]
        try:
            match parts:
                case [] | ["v1"]:
                    return 200, {"pages": PAGES}
                case ["v1", page] if page in self._pages:
                    return 200, self._pages[page]()
                case ["v1", "tables", switch]:
                    return 200, self.table(switch)
                case ["v1", "paths", src, dst]:
                    if src == dst and src in self._fabric.hosts:
                        return 400, {"error": f"{src} needs no path to itself: name two hosts"}
                    return 200, self.paths(src, dst)
        except NotFound as error:
            return 404, error.payload
        return 404, NotFound("page", "/" + "/".join(parts), PAGES).payload

    def fabric(self) -> dict[str, object]:
        f = self._fabric
        return {
            **f.to_dict(),
            "hosts": f.host_count,
            "switches": len(f.switches),
            "links": len(f.links),
            "paths_per_pair": f.paths_per_pair,
            "base_rtt_ps": f.base_rtt_ps,
            "buffer_bytes": f.buffer_bytes,
        }

    def switches(self) -> list[dict[str, object]]:
        ports: dict[str, list[str]] = {name: [] for name in self._fabric.switches}
        for port in self._fabric.ports:
            if port.node in ports:
                ports[port.node].append(port.name)
        return [
            {
                "switch": name,
                "number": number,
                "usid": f"{switch_usid(name):04x}",
                "ports": ports[name],
            }
            for number, name in enumerate(self._fabric.switches)
        ]

    def tables(self) -> dict[str, object]:
        actual, counts = self._read(), self._counts()
        return {name: self._switch_table(name, actual, counts) for name in self._fabric.switches}

    def table(self, switch: str) -> dict[str, object]:
        if switch not in self._expected:
            raise NotFound("switch", switch, self._fabric.switches)
        return self._switch_table(switch, self._read(), self._counts())

    def _switch_table(
        self, switch: str, actual: Tables, counts: dict[str, Counts] | None
    ) -> dict[str, object]:
        table = dict(actual.get(switch, {}))
        row: dict[str, object] = {
            "usid": f"{switch_usid(switch):04x}",
            "as_computed": table == dict(self._expected[switch]),
            "entries": {f"{usid:04x}": port for usid, port in sorted(table.items())},
        }
        if counts is None:
            return row
        forwarded = {
            f"{usid:04x}": {"packets": packets, "bytes": size}
            for usid, (packets, size) in sorted(counts[switch].routes.items())
        }
        return {**row, "forwarded": forwarded, "dropped_packets": counts[switch].drops}

    def links(self) -> list[dict[str, object]]:
        rows = []
        entries = self._denied()
        for link in self._fabric.links:
            up, since = self._links.state(link.name)
            rows.append(
                {
                    "link": link.name,
                    "kind": link.kind,
                    "plane": link.plane,
                    "rate": link.rate,
                    "ports": [link.a.name, link.b.name],
                    "state": "up" if up else "failed",
                    "since_ps": since,
                    "denied": [
                        e
                        for e in entries
                        if e in (link.name, link.a.node, link.b.node, f"p{link.plane}")
                    ],
                    "paths": paths_over(self._fabric, link),
                }
            )
        return rows

    def paths(self, src: str, dst: str) -> list[dict[str, object]]:
        for name in (src, dst):
            if name not in self._fabric.hosts:
                raise NotFound("host", name, self._fabric.hosts)
        a, b = self._fabric.host_number(src), self._fabric.host_number(dst)
        rows = []
        denied_by = {entry: denied(self._fabric, [entry], a, b) for entry in self._denied()}
        for value in path_evs(self._fabric, a, b):
            plane, uplink = ev_fields(value)
            sids = sid_list(self._fabric, a, b, value)
            links = [link.name for link in path_links(self._fabric, a, b, value)]
            nodes = list(path_nodes(self._fabric, a, b, value))
            alive = not any(name in self._links.failed for name in links)
            denials = [entry for entry, evs in denied_by.items() if value in evs]
            rows.append(
                {
                    "ev": value,
                    "plane": plane,
                    "uplink": uplink,
                    "usids": [f"{sid:04x}" for sid in sids],
                    "address": text(address_of(sids)),
                    "nodes": nodes,
                    "switches": nodes[1:-1],
                    "links": links,
                    "alive": alive,
                    "state": "denied" if denials else "up" if alive else "down",
                    "denied_by": denials,
                }
            )
        return rows
