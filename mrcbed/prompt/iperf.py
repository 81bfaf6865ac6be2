"""The prompt's ``iperf3``, on the kernel's usual path or on a chosen one, in place of Mininet's
``iperf``."""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console

from testbed.emulated.bringup import spread
from testbed.emulated.cluster import Cluster
from testbed.emulated.iperf_flows import MAX_STREAMS, wire_rate
from testbed.emulated.iperf_report import complaint, flow_figures
from testbed.errors import UserError
from testbed.options import argument, option
from testbed.world import Stream
from topologies import FabricError
from topologies.addressing import ev, ev_fields
from topologies.paths import path_evs
from topologies.units import parse_rate

USAGE = "iperf3 [HOST HOST] [-u] [-b RATE] [-t SECONDS] [-P STREAMS] [--path p0/3]"
NUMBER = 0xFFFF  # flow number of the prompt: one at a time, and no scenario has so many


@click.command(add_help_option=False)
@argument("hosts", nargs=-1)
@option("-u", "udp", is_flag=True)
@option("-b", "rate")
@option("-t", "seconds", type=click.IntRange(1, 3600), default=5)
@option("-P", "parallel", type=click.IntRange(1, MAX_STREAMS), default=1)
@option("--path", "path")
def _arguments(**_values: object) -> None:
    """The options of the prompt's iperf3."""


class IperfCommands:
    """Part of the prompt; needs its ``cluster`` and ``console``."""

    cluster: Cluster
    console: Console

    def do_iperf(self, line: str) -> None:
        """iperf [HOST HOST] [OPTIONS]: the same as iperf3"""
        self.do_iperf3(line)

    def do_iperf3(self, line: str) -> None:
        """iperf3 [HOST HOST] [OPTIONS]: bandwidth of TCP, or UDP, on one path

        Options: [-u] [-b RATE] [-t SECONDS] [-P STREAMS] [--path p0/3]. -u is UDP, and needs a
        rate; 5 s of wall time unless -t differs. Between the first and the last host if none are
        named; on the kernel's usual path, or with --path on plane 0 and uplink 3. Ctrl-C ends it.
        """
        stream = self._stream(line)
        with tempfile.TemporaryDirectory(prefix="iperf3-") as directory:
            stem = Path(directory) / "iperf3"
            flow = self.cluster.background(stream, stem)
            try:
                flow.prepare()
                flow.begin()
                while not flow.over:
                    time.sleep(0.02)
                    self.cluster.check()
            except KeyboardInterrupt:
                self.console.print("ended early")
            finally:
                flow.end()
            if problem := complaint(stem, flow.cut):
                raise UserError(f"iperf3: {problem}")
            figures = flow_figures(stem)
        path = "p{}/{}".format(*ev_fields(stream.ev))
        parts = [
            f"sent {figures['sent_bps'] / 1e9:.2f} Gb/s",
            f"arrived {figures['received_bps'] / 1e9:.2f} Gb/s",
        ]
        if stream.protocol == "udp":
            parts += [
                f"lost {figures['lost_percent']:.1f} %",
                f"jitter {figures['jitter_ms']:.2f} ms of wall time",
            ]
        else:
            parts.append(f"{figures['retransmits']} retransmits")
        head = (
            f"h{stream.src} to h{stream.dst} over {path}, {stream.protocol}, "
            f"{figures['seconds']:.1f} s of wall time"
        )
        self.console.print(f"{head}: {', '.join(parts)}")

    def _stream(self, line: str) -> Stream:
        """Raises :class:`UserError` and FabricError."""
        fabric = self.cluster.fabric
        try:
            options = _arguments.make_context("iperf3", line.split()).params
        except click.UsageError as error:
            raise UserError(
                f"iperf3: {error.format_message().lower().rstrip('.')}; usage: {USAGE}"
            ) from None
        hosts = options["hosts"] or (fabric.hosts[0], fabric.hosts[-1])
        if len(hosts) != 2:
            raise UserError(f"usage: {USAGE}")
        src, dst = (fabric.host_number(name) for name in hosts)
        if src == dst:
            raise UserError("iperf3 needs two different hosts")
        try:
            rate = None if options["rate"] is None else parse_rate(options["rate"])
        except ValueError as error:
            raise UserError(f"iperf3: -b = {options['rate']!r} {error}") from None
        if options["udp"] and not rate:
            raise UserError("iperf3: UDP sends at a rate: say which, like -b 20Gbit")
        if rate and wire_rate(fabric, rate) > fabric.nic_rate:
            raise UserError(
                f"iperf3: {options['rate']} with headers is more than a port carries "
                f"({fabric.nic_rate / 1e9:g} Gbit/s)"
            )
        value = spread(fabric, src, dst)
        if options["path"] is not None:
            match = re.fullmatch(r"p([0-9]{1,4})/([0-9]{1,4})", options["path"])
            value = ev(int(match[1]), int(match[2])) if match else -1
            if value not in path_evs(fabric, src, dst):
                examples = ", ".join(
                    "p{}/{}".format(*ev_fields(e)) for e in path_evs(fabric, src, dst)[:4]
                )
                raise FabricError(
                    f"there is no path {options['path']!r} from h{src} to h{dst}: the first are "
                    f"{examples}"
                )
        length = self.cluster.clock.patience(options["seconds"])
        return Stream(
            NUMBER,
            src,
            dst,
            "udp" if options["udp"] else "tcp",
            rate,
            length,
            value,
            options["parallel"],
        )
