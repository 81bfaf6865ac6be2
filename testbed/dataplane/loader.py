"""Loads the data plane's programs, pins them and describes a fabric to them. Must never pin outside
/sys/fs/bpf/mrcbed, in the sandbox's own bpffs."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

from testbed.dataplane import build, layout
from testbed.dataplane.maps import BpfMap
from testbed.errors import UserError
from topologies.addressing import inner_number, switch_usid
from topologies.clos import UDP_PORT, Fabric
from topologies.paths import static_tables

PINS = Path("/sys/fs/bpf/mrcbed")
INGRESS = PINS / "progs" / "fabric_ingress"
EGRESS = PINS / "progs" / "fabric_egress"
HIGH_CLASS_SHARE = 4
"""The high class may queue this part of the buffer [ours]: by default 2 BDP, over a hundred
SACKs."""
MAX_BUFFER = 1 << 31
_NEVER = (1 << 32) - 1


def load(scratch: Path, udp_port: int = UDP_PORT) -> None:
    tool = shutil.which(
        "bpftool", path="/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin"
    )
    if tool is None:
        raise UserError("bpftool is missing: install it with apt-get install bpftool")
    program = build.fresh_object(scratch, udp_port)
    unload()
    PINS.mkdir()
    done = subprocess.run(
        [
            tool,
            "prog",
            "loadall",
            str(program),
            str(INGRESS.parent),
            "type",
            "tc",
            "pinmaps",
            str(PINS),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        unload()
        reason = next(
            (line for line in done.stderr.splitlines() if "rror" in line), done.stderr.strip()[:200]
        )
        raise UserError(
            f"the kernel refused the data plane ({reason}): it needs Linux 6.1 or later with BPF "
            "and BTF; see mrcbed doctor"
        )


def unload() -> None:
    shutil.rmtree(PINS, ignore_errors=True)


def describe(
    fabric: Fabric, seed: int = 0, switch_kind: int = layout.KIND_SWITCH, delayed: bool = False
) -> None:
    """``seed`` (32 bits) is for random marking, ``switch_kind`` is layout.KIND_*, ``delayed``: each
    host has its TUN. Another call on a running fabric changes thresholds or the seed. Raises
    :class:`UserError` on a fabric that is too large for the programs."""
    if len(fabric.ports) > layout.MAX_PORTS or len(fabric.switches) > layout.MAX_SWITCHES:
        raise UserError(
            f"fabric {fabric.name!r} has {len(fabric.ports)} ports and {len(fabric.switches)} "
            f"switches; the emulation takes {layout.MAX_PORTS} and {layout.MAX_SWITCHES}: use "
            "fewer planes, switches or hosts"
        )
    if setting := fabric.simulated_only:
        raise UserError(
            f"fabric {fabric.name!r}: {setting} is the simulated world's: add --world simulated, "
            "or drop it"
        )
    if fabric.buffer_bytes > MAX_BUFFER:
        raise UserError(
            f"fabric {fabric.name!r} has buffers of {fabric.buffer_bytes} bytes; the emulation "
            f"takes {MAX_BUFFER}: use a smaller buffer_bdp, rate or delay"
        )
    if fabric.pfc and switch_kind != layout.KIND_SWITCH:
        raise UserError(
            f"fabric {fabric.name!r}: pfc = true is for eBPF switches and simulated ones: drop "
            "it, or --switch ovs"
        )
    if most_held(fabric) > MAX_BUFFER:
        raise UserError(
            f"fabric {fabric.name!r} has switches that may hold {most_held(fabric)} bytes; the "
            f"emulation takes {MAX_BUFFER}: use a smaller pfc_xoff_bdp, rate or delay"
        )
    numbers = {name: i for i, name in enumerate(fabric.switches)}
    ends = {
        end.number: (other, link.rate)
        for link in fabric.links
        for end, other in ((link.a, link.b), (link.b, link.a))
    }
    sources = {
        link.b.number: inner_number(fabric.host_number(link.a.node))
        for link in fabric.links
        if link.kind == "nic"
    }
    config_map = BpfMap(PINS / "port_config")
    for port in fabric.ports:
        is_switch = port.node in numbers
        far, rate = ends[port.number]
        last_hop = port.number in sources
        config_map.update(
            struct.pack("=I", port.number),
            struct.pack(
                f"={len(layout.CONFIG_WORDS)}I",
                switch_kind if is_switch else layout.KIND_HOST,
                far.number,
                numbers.get(port.node, 0),
                switch_usid(port.node) if is_switch else 0,
                fabric.buffer_bytes,
                high_limit(fabric),
                *(min(size, _NEVER) for size in fabric.ecn_bytes),
                round(fabric.ecn_pmax * layout.ECN_CERTAIN),
                min(fabric.trim_bytes(last_hop), _NEVER),
                (flags(fabric, last_hop) if is_switch else layout.DELAYED if delayed else 0)
                | pfc_flags(fabric, far.node in numbers),
                seed & _NEVER,
                *(
                    min(size, _NEVER)
                    for size in (*fabric.pfc_bytes, fabric.pfc_bytes[0] + fabric.pfc_headroom(rate))
                ),
                sources.get(port.number, 0),
            ),
        )
    config_map.close()


def end_delay(fabric: Fabric, host: int) -> None:
    """Let a host's frames go to its kernel at once. The agent that held them is gone, and the
    kernel must be able to say so."""
    config_map = BpfMap(PINS / "port_config")
    for port in fabric.ports:
        if port.node == fabric.hosts[host]:
            key = struct.pack("=I", port.number)
            words = list(
                struct.unpack(f"={len(layout.CONFIG_WORDS)}I", config_map.lookup(key) or b"")
            )
            words[layout.CONFIG_WORDS.index("flags")] &= ~layout.DELAYED
            config_map.update(key, struct.pack(f"={len(words)}I", *words))
    config_map.close()


def flags(fabric: Fabric, last_hop: bool) -> int:
    return (
        (layout.MARKS if fabric.ecn else 0)
        | (layout.TRIMS if fabric.trimming else 0)
        | (layout.LAST_HOP if last_hop else 0)
        | (layout.LAST_HOP_MARKS if fabric.last_hop_ecn else 0)
    )


def pfc_flags(fabric: Fabric, from_switch: bool) -> int:
    return (layout.LOSSLESS | (layout.FROM_SWITCH if from_switch else 0)) if fabric.pfc else 0


def most_held(fabric: Fabric) -> int:
    if not fabric.pfc:
        return 0
    rate = max(fabric.nic_rate, fabric.fabric_rate)
    ports = max(fabric.hosts_per_t0 + fabric.t1_per_plane, fabric.t0_per_plane)
    return ports * (fabric.pfc_bytes[0] + fabric.pfc_headroom(rate))


def high_limit(fabric: Fabric) -> int:
    return max(4096, fabric.buffer_bytes // HIGH_CLASS_SHARE)


def program_fabric(fabric: Fabric) -> None:
    index = {port.name: layout.PORT_BASE + port.number for port in fabric.ports}
    routes = BpfMap(PINS / "routes")
    tables = static_tables(fabric)
    for number, switch in enumerate(fabric.switches):
        for usid, name in tables[switch].items():
            routes.update(struct.pack("=I", number << 16 | usid), struct.pack("=I", index[name]))
    routes.close()
