"""The prompt of ``mrcbed up``: Mininet's own, with commands for links, paths, EV states and collectives added.

Everything of Mininet's keeps working (``h0 ping h5``, ``iperf h0 h7``, ``link h0 p0-t0-0 down``, ``xterm``, ``py``...). A command
never raises: what is wrong is one line.
"""

from __future__ import annotations

import difflib
import shlex
import time
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table

from agents.collectives.steer import connect_ring, wait_for_all
from agents.control import AgentError
from testbed.cluster import Cluster, ClusterDied
from testbed.emulated.prompt import Prompt as FabricPrompt
from testbed.errors import UserError
from testbed.prompt.trace import trace
from topologies import FabricError
from topologies.addressing import ev, ev_fields, path_address, sid_list, text, usid_fields
from topologies.paths import path_evs, path_links, path_nodes
from topologies.theory import place_ranks, ring_allreduce_bus_bandwidth

_STYLES = {"GOOD": "green", "SKIP": "yellow", "ASSUMED_BAD": "red", "DENIED": "magenta"}


def sid_text(sid: int) -> str:
    """A uSID as people read it."""
    plane, tier, index = usid_fields(sid)
    return f"{sid:04x}={'d' if tier == 3 else f'p{plane}-t{tier - 1}-'}{index}"


def parse_ev(fabric: Any, src: int, dst: int, word: str) -> int:
    """``plane:uplink``, ``plane`` alone, or the number. Raises :class:`FabricError`."""
    try:
        if ":" in word:
            plane, uplink = map(int, word.split(":"))
            if not (0 <= plane <= 0xFFFF and 0 <= uplink <= 0xFFFF):
                raise ValueError
            value = ev(plane, uplink)
        else:
            number = int(word, 0)
            value = ev(number, 0) if number < fabric.planes and number < 16 else number
    except ValueError:
        raise FabricError(f"EV {word!r}: write it as plane:uplink, like 1:2") from None
    sid_list(fabric, src, dst, value)
    return value


def words_of(line: str) -> list[str]:
    """A line cut as a shell does. Raises :class:`UserError`."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UserError(f"{line}: {str(error).lower()}") from None


class Prompt(FabricPrompt):
    """Runs until ``exit``, end of input, SIGTERM, or the cluster dies."""

    prompt = "mrcbed> "

    def __init__(self, cluster: Cluster, console: Console, **kwargs: Any) -> None:
        self.cluster = cluster
        self.fabric = cluster.fabric
        self.console = console
        super().__init__(cluster.net, **kwargs)

    def onecmd(self, line: str) -> Any:
        """Run a line; bad input is one line of answer."""
        try:
            self.cluster.check()
            return super().onecmd(line)
        except ClusterDied:
            return True  # who made this prompt asks the cluster again, and says so
        except (UserError, FabricError, AgentError) as error:
            self.console.print(f"[red]{error}[/red]", highlight=False)
        return None

    def emptyline(self) -> None:
        """Nothing."""

    def _hosts(self, line: str, usage: str, count: int) -> tuple[list[int], list[str]]:
        words = words_of(line)
        if len(words) < count:
            raise UserError(f"usage: {usage}")
        return [self.fabric.host_number(w) for w in words[:count]], words[count:]

    # --- breaking and mending --------------------------------------------------------------------------------

    def do_break(self, line: str) -> None:
        """break LINK|SWITCH...: pull a cable (like p0-t0-0:p0-t1-2 or h3:p1-t0-0) or take a switch down."""
        self._set(line, False)

    def do_mend(self, line: str) -> None:
        """mend LINK|SWITCH...|all: put it back."""
        if line.strip() == "all":
            self.cluster.heal()
            return
        self._set(line, True)

    def _set(self, line: str, up: bool) -> None:
        words = words_of(line)
        if not words:
            raise UserError(f"usage: {'mend' if up else 'break'} LINK or SWITCH, like p0-t0-0:p0-t1-2 or p0-t1-2")
        for word in words:
            if word in self.fabric.switches:
                self.cluster.set_switch(word, up)
            elif ":" not in word:
                near = difflib.get_close_matches(word, self.fabric.switches, n=3, cutoff=0.0)
                raise UserError(f"fabric {self.fabric.name!r} has no switch {word!r}; near it: {', '.join(near)}")
            else:
                self.cluster.set_link(self.fabric.link(word).name, up)

    def do_broken(self, line: str) -> None:
        """broken: links that are down."""
        down = [name for name, up in self.cluster.link_states().items() if not up]
        self.console.print("\n".join(down) if down else "every link is up", highlight=False)

    # --- looking ---------------------------------------------------------------------------------------------

    def do_paths(self, line: str) -> None:
        """paths HOST HOST: every EV between two hosts, its uSIDs, address, hops, and whether its cables are up."""
        (src, dst), _ = self._hosts(line, "paths HOST HOST", 2)
        if src == dst:
            raise UserError("paths needs two different hosts")
        states = self.cluster.link_states()
        table = Table("EV", Column("outer address", no_wrap=True), Column("switches", no_wrap=True), "cables", box=box.SIMPLE)
        for value in path_evs(self.fabric, src, dst):
            plane, uplink = ev_fields(value)
            down = [li.name for li in path_links(self.fabric, src, dst, value) if not states[li.name]]
            table.add_row(
                f"{plane}:{uplink}",
                text(path_address(self.fabric, src, dst, value)),
                " ".join(path_nodes(self.fabric, src, dst, value)[1:-1]),
                f"[red]down: {', '.join(down)}[/red]" if down else "[green]up[/green]",
            )  # fmt: skip
        self.console.print(table)
        one = path_evs(self.fabric, src, dst)[-1]
        sids = " ".join(map(sid_text, sid_list(self.fabric, src, dst, one)))
        self.console.print(
            f"After the block fcbb:bb00 come the uSIDs, here of the last line: {sids} (d: downlink of the last T0)", highlight=False
        )

    def do_evs(self, line: str) -> None:
        """evs HOST [HOST]: what a host's queue pairs think of their EVs (towards one peer)."""
        words = words_of(line)
        (src,), rest = self._hosts(line, "evs HOST [HOST]", 1)
        peer = self.fabric.host_number(rest[0]) if rest else None
        rows = [r for r in self.cluster.agents[src].call("paths") if peer is None or r["peer"] == peer]
        if not rows:
            raise UserError(
                f"{words[0]} has no queue pair{f' to h{peer}' if peer is not None else ''} yet: start a collective first, with allreduce"
            )
        table = Table("QP", "peer", "EV", "state", "in use", "data packets", "lost", "flaps", box=box.SIMPLE)
        for r in rows:
            style = _STYLES.get(r["state"], "")
            table.add_row(
                str(r["qpn"]), f"h{r['peer']}", f"{r['plane']}:{r['uplink']}", f"[{style}]{r['state']}[/{style}]",
                "yes" if r.get("active", True) else "no",
                str(r.get("data_tx", "")), str(r.get("losses", "")), str(r.get("flaps", "")),
            )  # fmt: skip
        self.console.print(table)

    def do_trace(self, line: str) -> None:
        """trace HOST HOST EV: send one packet on an EV (plane:uplink) and show every port it passes."""
        (src, dst), rest = self._hosts(line, "trace HOST HOST EV, like trace h0 h5 1:2", 2)
        if not rest or src == dst:
            raise UserError("usage: trace HOST HOST EV, like trace h0 h5 1:2")
        value = parse_ev(self.fabric, src, dst, rest[0])
        hops = trace(self.fabric, lambda node: self.cluster.net.namespaces[node], src, dst, value)
        table = Table("us", "port", "", Column("outer destination", no_wrap=True), "hop limit", box=box.SIMPLE)
        for hop in hops:
            table.add_row(f"{hop.at_us:.0f}", hop.port, "out" if hop.leaving else "in", hop.address, str(hop.hop_limit))
        self.console.print(table)
        if hops[-1].node != f"h{dst}":
            where = hops[-1]
            self.console.print(
                f"[red]lost after {where.port}[/red]: seen {'leaving' if where.leaving else 'arriving at'} {where.node}, then no more"
            )

    def do_ports(self, line: str) -> None:
        """ports [NODE]: counters of every port that saw traffic."""
        want = line.strip()
        nodes = [*self.fabric.hosts, *self.fabric.switches]
        if want and want not in nodes:
            near = difflib.get_close_matches(want, nodes, n=3, cutoff=0.0)
            raise UserError(f"fabric {self.fabric.name!r} has no node {want!r}; near it: {', '.join(near)}")
        table = Table("port", "sent", "arrived", "dropped (tail)", "dropped (link down)", "backlog", "peak", box=box.SIMPLE)
        for r in self.cluster.counters():
            if (want and r["node"] != want) or not (r["admitted_packets"] or r["arrived_packets"] or r["drop_tail_packets"]):
                continue
            table.add_row(
                r["port"], str(r["admitted_packets"]), str(r["arrived_packets"]), str(r["drop_tail_packets"]),
                str(r["drop_link_down_packets"] + r["flushed_packets"]), str(r["backlog_bytes"]), str(r["backlog_peak_bytes"]),
            )  # fmt: skip
        self.console.print(table)

    def do_status(self, line: str) -> None:
        """status: the fabric, its agents and its controller."""
        f = self.fabric
        self.console.print(
            f"{f.name}: {f.host_count} hosts, {f.planes} planes of {f.t0_per_plane} T0 and {f.t1_per_plane} T1, "
            f"{f.paths_per_pair} paths across\n"
            f"ports {f.nic_rate / 1e6:g} Mb/s (1/{f.time_scale:,.0f} of 100 Gb/s), base RTT {f.base_rtt_ns / 1e6:.1f} ms, "
            f"plane BDP {f.plane_bdp} B, "
            f"buffer {f.buffer_bytes} B\n"
            f"controller: {self.cluster.rest_url if self.cluster.controller_alive else 'not running (forwarding does not need it)'}\n"
            f"down: {', '.join(n for n, up in self.cluster.link_states().items() if not up) or 'nothing'}",
            highlight=False,
        )

    # --- doing -----------------------------------------------------------------------------------------------

    def do_allreduce(self, line: str) -> None:
        """allreduce [steps=10] [bytes=1048576] [placement=packed|interleaved] [dtype=int32|float32] [qps=1] [slices=4]

        Ring all-reduce over all hosts, every sum checked.
        """
        options: dict[str, str] = {"steps": "10", "bytes": str(1 << 20), "placement": "packed", "dtype": "int32", "qps": "1", "slices": "4"}
        for word in words_of(line):
            key, _, value = word.partition("=")
            if key not in options or not value:
                raise UserError(f"allreduce: {word!r} is not one of {' '.join(f'{k}=' for k in options)}")
            options[key] = value
        try:
            steps, size, qps, slices = (int(options[k]) for k in ("steps", "bytes", "qps", "slices"))
            if min(steps, size, qps, slices) < 1:
                raise ValueError
        except ValueError:
            raise UserError("allreduce: steps, bytes, qps and slices are whole numbers above 0") from None
        hosts = place_ranks(self.fabric, options["placement"])
        agents = [self.cluster.agents[h] for h in hosts]
        unit = len(hosts) * slices * 4
        size = -(-size // unit) * unit
        connect_ring(agents, hosts, qps, slices)
        spans: dict[int, list[int]] = {}
        wrong = 0
        failure = ""
        ended = False
        seed = int(time.time())
        with Progress(console=self.console, transient=True, disable=not self.console.is_terminal) as bar:
            task = bar.add_task("ring all-reduce", total=steps * len(hosts))

            def heard(rank: int, note: dict[str, Any]) -> None:
                nonlocal wrong, failure
                if note["event"] == "step":
                    spans.setdefault(note["step"], []).append(note["end_ns"] - note["start_ns"])
                    bar.advance(task)
                elif note["event"] == "done":
                    wrong += note["wrong"]
                else:
                    failure = f"rank {note['rank']} (h{hosts[note['rank']]}) lost rank {note['peer_rank']}: {note['reason']}"

            for agent in agents:
                agent.call(
                    "start",
                    collective="ring-allreduce",
                    message_bytes=size,
                    dtype=options["dtype"],
                    steps=steps,
                    warmup=1,
                    seed=seed,
                )
            try:
                ended = wait_for_all(agents, heard, self.cluster.check, timeout=60 + steps * 60)
            except KeyboardInterrupt:
                failure = "stopped"
        if failure or not ended:
            for agent in agents:
                agent.call("abort")
                agent.notifications()
        if failure or not ended:
            raise UserError(failure or "allreduce: no end within its time; `evs HOST` and `broken` may say why")
        times = sorted(max(s) for s in spans.values())
        n = len(hosts)
        middle = times[len(times) // 2]
        bus = size * 8 / (middle / 1e9) * 2 * (n - 1) / n
        ideal = ring_allreduce_bus_bandwidth(
            self.fabric, options["placement"], [k for k, up in self.cluster.link_states().items() if not up]
        )
        self.console.print(
            f"{steps} steps of {size} B over {n} ranks: median {middle / 1e6:.1f} ms, slowest {times[-1] / 1e6:.1f} ms, "
            f"bus bandwidth {bus / 1e6:.2f} Mb/s ({100 * bus / ideal:.1f} % of what the links that are up allow), "
            + (f"[red]{wrong} wrong elements[/red]" if wrong else "every sum right"),
            highlight=False,
        )
