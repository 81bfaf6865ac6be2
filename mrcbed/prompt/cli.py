"""The prompt of ``mrcbed up``: Mininet's own, with commands for links, paths, EV states and
collectives.

Mininet's words keep working (``h0 ping h5``, ``link h0 p0-t0-0 down``, ``py``...) but for those
that cannot (testbed/emulated/prompt.py). A command never raises: what is wrong is one line.
"""

from __future__ import annotations

import difflib
import re
import shlex
from functools import partial
from typing import Any

from rich.console import Console
from rich.text import Text

from agents.collectives.registry import collectives
from mrcbed.perf.options import parse_line
from mrcbed.perf.run import perf
from mrcbed.prompt.collective import kind_of, run
from mrcbed.prompt.fault_commands import FaultCommands
from mrcbed.prompt.help import HelpCommands
from mrcbed.prompt.iperf import IperfCommands
from mrcbed.prompt.mapper import MapperCommands
from mrcbed.prompt.verbs import VerbsCommands
from testbed import terminal
from testbed.emulated.cluster import Cluster
from testbed.emulated.prompt import Prompt as FabricPrompt
from testbed.emulated.prompt import words_of
from testbed.emulated.trace import Hop, trace
from testbed.errors import UserError
from topologies import FabricError
from topologies.addressing import (
    ev,
    ev_fields,
    inner_address,
    path_address,
    sid_list,
    text,
    usid_fields,
)
from topologies.paths import path_evs, path_links, path_nodes
from topologies.units import NS

_STYLES = {"GOOD": "green", "SKIP": "yellow", "ASSUMED_BAD": "red", "DENIED": "magenta"}
_FIRST = "start a collective first, with allreduce"


def sid_text(sid: int) -> str:
    plane, tier, index = usid_fields(sid)
    return f"{sid:04x}={'d' if tier == 3 else f'p{plane}-t{tier - 1}-'}{index}"


def parse_ev(fabric: Any, src: int, dst: int, word: str) -> int:
    """Parse ``plane:uplink``, a plane, or a number. Raises :class:`FabricError`."""
    try:
        if not re.fullmatch(r"[0-9]{1,5}:[0-9]{1,5}|[0-9]{1,10}|0x[0-9a-fA-F]{1,8}", word):
            raise ValueError
        if ":" in word:
            plane, uplink = map(int, word.split(":"))
            if max(plane, uplink) > 0xFFFF:
                raise ValueError
            value = ev(plane, uplink)
        else:
            number = int(word, 0)
            value = ev(number, 0) if number < fabric.planes and number < 16 else number
    except ValueError:
        raise FabricError(f"EV {word!r}: write it as plane:uplink, like 1:2") from None
    sid_list(fabric, src, dst, value)
    return value


class Prompt(
    HelpCommands, FaultCommands, IperfCommands, MapperCommands, VerbsCommands, FabricPrompt
):
    """Runs until ``exit``, end of input, SIGTERM, or the cluster dies. ``console``: of
    testbed.terminal."""

    prompt = "mrcbed> "

    def __init__(
        self, cluster: Cluster, console: Console, transport: str = "mrc", **kwargs: Any
    ) -> None:
        self.cluster = cluster
        self.transport = transport
        self.fabric = cluster.fabric
        super().__init__(cluster.net, console, **kwargs)

    def run_command(self, line: str) -> Any:
        self.cluster.check()
        return super().run_command(line)

    def _hosts(self, line: str, usage: str, count: int) -> tuple[list[int], list[str]]:
        arguments = words_of(line)
        if len(arguments) < count:
            raise UserError(f"usage: {usage}")
        return [self.fabric.host_number(w) for w in arguments[:count]], arguments[count:]

    # --- breaking and mending ---------------------------------------------------------------------

    def do_link(self, line: str) -> None:
        """link NODE NODE up|down: mend or break a cable"""
        match words_of(line):
            case [one, other, "up" | "down" as way]:
                self.cluster.set_link(self.fabric.link(f"{one}:{other}").name, way == "up")
            case _:
                raise UserError("usage: link NODE NODE up|down, like link h0 p0-t0-0 down")

    def do_switch(self, line: str) -> None:
        """switch NAME start|stop: mend or break a switch"""
        match words_of(line):
            case [name, "start" | "stop" as way] if ":" not in name:
                self._set(shlex.quote(name), way == "start")
            case _:
                raise UserError("usage: switch NAME start|stop, like switch p0-t1-0 stop")

    def do_broken(self, line: str) -> None:
        """broken: show the links that are down"""
        down = [name for name, up in self.cluster.link_states().items() if not up]
        self.console.print("\n".join(down) if down else "every link is up")

    def do_deny(self, line: str) -> None:
        """deny ENTRY [REASON...]: forbid a link, switch, plane or path to all hosts

        Like p0-t0-0:p0-t1-0, p0-t1-0, p0 or h0>h3@p0/1. The cable stays up; MRC puts no data there
        until it is allowed again.
        """
        words = words_of(line)
        if not words:
            raise UserError("usage: deny ENTRY, like p0-t0-0:p0-t1-2, p0-t1-2, p0 or h0>h5@p0/3")
        if not self.cluster.deny(words[0], " ".join(words[1:])):
            self.console.print(f"{words[0]} was denied already")

    def do_allow(self, line: str) -> None:
        """allow ENTRY: remove it from the denylist, whoever denied it

        Its paths carry probes first, and data once those came back.
        """
        words = words_of(line)
        if len(words) != 1:
            raise UserError("usage: allow ENTRY, one that `denied` shows")
        if not self.cluster.allow(words[0]):
            raise UserError(f"{words[0]} is not denied: `denied` shows what is")

    def complete_allow(self, word: str, *_: Any) -> list[str]:
        return [d["entry"] for d in self.cluster.denied() if d["entry"].startswith(word)]

    def do_denied(self, line: str) -> None:
        """denied: show the denylist and who denied what"""
        rows = [[d["entry"], d["by"], d["reason"]] for d in self.cluster.denied()]
        heads = ("entry", "by", "reason")
        self.console.print(
            terminal.table(heads, rows, names=("by",), words=("reason",))
            if rows
            else "nothing is denied"
        )

    # --- looking ----------------------------------------------------------------------------------

    def do_paths(self, line: str) -> None:
        """paths HOST HOST: show every path (EV) between two hosts

        Its EV as plane:uplink, the outer address that selects it, the switches it visits, and
        whether its cables are up.
        """
        (src, dst), _ = self._hosts(line, "paths HOST HOST", 2)
        if src == dst:
            raise UserError("paths needs two different hosts")
        states = self.cluster.link_states()
        rows: list[list[terminal.Cell]] = []
        for value in path_evs(self.fabric, src, dst):
            plane, uplink = ev_fields(value)
            down = [
                li.name for li in path_links(self.fabric, src, dst, value) if not states[li.name]
            ]
            rows.append([
                f"{plane}:{uplink}",
                text(path_address(self.fabric, src, dst, value)),
                " ".join(path_nodes(self.fabric, src, dst, value)[1:-1]),
                Text(f"down: {', '.join(down)}", "red") if down else Text("up", "green"),
            ])  # fmt: skip
        heads = ("EV", "outer address", "switches", "cables")
        self.console.print(
            terminal.table(heads, rows, names=("outer address", "switches"), words=("cables",))
        )
        last = path_evs(self.fabric, src, dst)[-1]
        sids = " ".join(map(sid_text, sid_list(self.fabric, src, dst, last)))
        self.console.print(
            f"After the block fcbb:bb00 come the uSIDs, here of the last line: {sids} (d: "
            "downlink of the last T0)"
        )

    def do_evs(self, line: str) -> None:
        """evs [HOST [PEER]]: show the EV states of a host's queue pairs; alone, which hosts have
        any

        One row for each EV of each queue pair, or of those to one peer. Queue pairs exist once a
        collective has run.
        """
        words = words_of(line)
        if not words:
            peers = {host: self._peers(self._paths(host)) for host in self.fabric.hosts}
            having = [
                f"{host} has queue pairs to {names}" for host, names in peers.items() if names
            ]
            self.console.print("\n".join(having) or f"no host has a queue pair yet: {_FIRST}")
            return
        every = self._paths(words[0])
        rows = [r for r in every if not words[1:] or f"h{r['peer']}" == words[1]]
        if not every:
            raise UserError(f"{words[0]} has no queue pair yet: {_FIRST}")
        if not rows:
            raise UserError(
                f"{words[0]} has no queue pair to {words[1]!r}: it has them to {self._peers(every)}"
            )
        cells = [
            [
                str(r["qpn"]),
                f"h{r['peer']}",
                f"{r['plane']}:{r['uplink']}",
                Text(r["state"], _STYLES.get(r["state"], "")),
                "yes" if r.get("active", True) else "no",
                str(r.get("data_tx", "")),
                str(r.get("losses", "")),
                str(r.get("flaps", "")),
            ]
            for r in rows
        ]
        heads = ("QP", "peer", "EV", "state", "in use", "data packets", "packets lost", "flaps")
        self.console.print(terminal.table(heads, cells, names=("peer", "EV", "state", "in use")))

    def _paths(self, host: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.cluster.agents[self.fabric.host_number(host)].call(
            "paths"
        )
        return rows

    @staticmethod
    def _peers(rows: list[dict[str, Any]]) -> str:
        return " ".join(f"h{peer}" for peer in sorted({r["peer"] for r in rows}))

    def do_trace(self, line: str) -> None:
        """trace HOST HOST EV: send one packet on an EV and show every port that sees it

        EV: plane:uplink, like 1:0.
        """
        (src, dst), arguments = self._hosts(line, "trace HOST HOST EV, like trace h0 h5 1:2", 2)
        if not arguments or src == dst:
            raise UserError("usage: trace HOST HOST EV, like trace h0 h5 1:2")
        value = parse_ev(self.fabric, src, dst, arguments[0])
        hops = self._trace(src, dst, value)
        rows = [
            [
                f"{hop.at_us:.0f}",
                hop.port,
                "out" if hop.leaving else "in",
                hop.address,
                str(hop.hop_limit),
            ]
            for hop in hops
        ]
        heads = ("wall us", "port", "way", "outer destination", "hop limit")
        self.console.print(terminal.table(heads, rows, names=("port", "way", "outer destination")))
        if hops[-1].node != f"h{dst}":
            last_hop = hops[-1]
            detail = (
                f"seen {'leaving' if last_hop.leaving else 'arriving at'} {last_hop.node}, then "
                "no more"
            )
            self.console.print(Text.assemble((f"lost after {last_hop.port}", "red"), f": {detail}"))

    def _trace(self, src: int, dst: int, value: int) -> list[Hop]:
        net = self.cluster.net
        return trace(self.fabric, net.namespaces, src, dst, value, come_twice=net.come_twice)

    def do_ports(self, line: str) -> None:
        """ports [NODE]: show the counters of every port that saw traffic"""
        want = line.strip()
        nodes = [*self.fabric.hosts, *self.fabric.switches]
        if want and want not in nodes:
            near = difflib.get_close_matches(want, nodes, n=3, cutoff=0.0)
            raise UserError(
                f"fabric {self.fabric.name!r} has no node {want!r}; near it: {', '.join(near)}"
            )
        rows = []
        for r in self.cluster.counters():
            if (want and r["node"] != want) or not (
                r["admitted_packets"] or r["arrived_packets"] or r["drop_tail_packets"]
            ):
                continue
            rows.append(
                [
                    r["port"],
                    str(r["admitted_packets"]),
                    str(r["arrived_packets"]),
                    str(r["drop_tail_packets"]),
                    str(r["drop_link_down_packets"] + r["flushed_packets"]),
                    str(r["backlog_bytes"]),
                    str(r["backlog_peak_bytes"]),
                ]
            )
        heads = (
            "port",
            "packets\nsent",
            "\narrived",
            "dropped\n(buffer full)",
            "dropped\n(link down)",
            "queue\nbytes",
            "peak\nbytes",
        )
        self.console.print(terminal.table(heads, rows))

    def do_status(self, line: str) -> None:
        """status: show the fabric, its dilation, its controller, and what is down"""
        f, clock = self.fabric, self.cluster.clock
        hop = "on every hop" if f.last_hop_ecn else "not on the last hop"
        marking = f"from {f.ecn_bytes[0]} to {f.ecn_bytes[1]} B, {hop}" if f.ecn else "off"
        trimming = (
            f"above {f.trim_bytes(False)} B, on the last hop {f.trim_bytes(True)} B"
            if f.trimming
            else "off"
        )
        alive = self.cluster.controller_alive
        controller = self.cluster.rest_url if alive else "not running (forwarding does not need it)"
        self.console.print(
            f"{f.name}: {f.host_count} hosts, {f.planes} planes of {f.t0_per_plane} T0 and "
            f"{f.t1_count} T1, {f.paths_per_pair} paths across\n"
            f"ports {f.nic_rate / 1e9:g} Gb/s, base RTT {terminal.duration(f.base_rtt_ps / NS)}, "
            f"plane BDP {f.plane_bdp} B, buffer {f.buffer_bytes} B\n"
            f"dilation {clock.dilation:,.0f}: a second of this machine is "
            f"{terminal.duration(clock.patience(1.0) / NS)} of the network\n"
            f"marking {marking}, trimming {trimming}\nswitches: {self.cluster.net.switches_are}\n"
            f"controller: {controller}\n"
            "down: "
            f"{', '.join(n for n, up in self.cluster.link_states().items() if not up) or 'nothing'}"
        )

    # --- doing ------------------------------------------------------------------------------------

    def do_collective(self, line: str) -> None:
        """collective NAME [KEY=VALUE...]: run a collective; without a name, list them

        Over all hosts, every element of every result checked. Keys and their defaults:
        [steps=10] [bytes=1048576] [placement=packed|interleaved] [dtype=int32|float32] [qps=1]
        [slices=4]
        """
        words = words_of(line)
        if not words:
            raise UserError(f"usage: collective NAME; there are {', '.join(collectives())}")
        run(self.cluster, self.console, "collective", kind_of(words[0]), words[1:], self.transport)

    def complete_collective(self, word: str, *_: Any) -> list[str]:
        return [name for name in collectives() if name.startswith(word)]

    def do_allreduce(self, line: str) -> None:
        """allreduce [KEY=VALUE...]: run a ring all-reduce over all hosts and check every sum

        Short for collective ring-allreduce. Keys and their defaults:
        [steps=10] [bytes=1048576] [placement=packed|interleaved] [dtype=int32|float32] [qps=1]
        [slices=4]
        """
        run(
            self.cluster,
            self.console,
            "allreduce",
            kind_of("ring-allreduce"),
            words_of(line),
            self.transport,
        )

    def do_perf(self, line: str) -> None:
        """perf OPERATION [OPTIONS]: measure in nccl-tests' or perftest's table, like perf
        all_reduce -b 8K -e 1M

        all_reduce, reduce_scatter, all_gather, all_to_all, send_recv: options -b -e -f -i -n -w -c
        -d as nccl-tests has them. write_bw, write_lat: -s SIZE -n N --pair h0:h5, as perftest.
        Faults that are there stay.
        """
        request = parse_line(words_of(line))
        out = partial(self.console.print, markup=False, highlight=False, soft_wrap=True)
        figures = perf(self.cluster, request, self.transport, out, out)
        if figures["wrong"]:
            raise UserError(f"perf: {figures['wrong']} wrong elements")

    def do_ping(self, line: str) -> None:
        """ping HOST HOST [OPTIONS]: send four echo requests over the kernel's path

        Options are those of the program ping, like -c 10 or -i 0.2. It has no part of the fabric's
        delay, and its times are wall time.
        """
        (src, dst), options = self._hosts(
            line, "ping HOST HOST [OPTIONS], like ping h0 h3 -c 10", 2
        )
        self.default(
            shlex.join(
                [self.fabric.hosts[src], "ping", "-c", "4", text(inner_address(dst)), *options]
            )
        )
