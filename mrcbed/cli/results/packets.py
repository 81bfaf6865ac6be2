"""``mrcbed results packets FILE``: the packets of a capture."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import click

from testbed.options import argument, option


@click.command(name="packets")
@argument("file", type=click.Path(path_type=Path))
@option(
    "--summary",
    is_flag=True,
    help="Print how many packets of each type there are instead, and their bytes.",
)
@option(
    "--headers",
    metavar="N",
    type=click.IntRange(1),
    help="Print every field of packet number N instead.",
)
@option("--json", "as_json", is_flag=True, help="Print a JSON object per packet instead.")
def command(file: Path, summary: bool, headers: int | None, as_json: bool) -> None:
    """List the packets of FILE, a capture that mrcbed run --pcap wrote.

    Times are µs since the first packet. Needs no root and no Wireshark; docs/how/wireshark.md reads
    more out of a capture.
    """
    from testbed.errors import UserError
    from testbed.wireshark.packets import read, row

    packets = read(file)
    if headers is not None:
        packet = next((p for number, p in enumerate(packets, 1) if number == headers), None)
        if packet is None:
            raise UserError(
                f"{file} has no packet {headers}: drop --headers to see how many it has"
            )
        for name, value in (packet.fields or {"type": "not MRC", "bytes": packet.frame}).items():
            spelled = value.hex(":", 2) if isinstance(value, bytes) else value
            click.echo(f"{name:<16} {f'{len(value)} bytes' if name == 'payload' else spelled}")
        return
    if summary:
        rows = [row(packet) for packet in packets]
        count: Counter[str] = Counter(r["type"] for r in rows)
        sizes: Counter[str] = Counter()
        for r in rows:
            sizes[r["type"]] += r["bytes"]
        click.echo(f"{'packets':>9}  {'bytes':>12}  type")
        for name, number in count.most_common():
            click.echo(f"{number:>9}  {sizes[name]:>12}  {name}")
        click.echo(f"{len(rows):>9}  {sum(sizes.values()):>12}  all")
        return
    first = 0
    for number, packet in enumerate(packets, 1):
        r = row(packet)
        if number == 1:
            first = packet.at
            if not as_json:
                click.echo(
                    f"{'number':>7} {'µs':>12}  {'from':>4} > {'to':<4}  {'EV':>5}  {'PSN':>9}  "
                    f"{'bytes':>5}  type"
                )
        if as_json:
            click.echo(json.dumps(r))
            continue
        psn = "" if r["psn"] is None else r["psn"]
        ends = f"{r['src'] or '?':>4} > {r['dst'] or '?':<4}"
        text = (
            f"{number:>7} {(packet.at - first) / 1e3:>12.3f}  {ends}  {r['ev'] or '':>5}  "
            f"{psn:>9}  {r['bytes']:>5}  {r['type']}"
        )
        click.echo(f"{text}, {r['notes']}" if r["notes"] else text)
