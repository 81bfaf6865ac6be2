"""Sizes and layouts of fabric.bpf.c and its maps, mirrored by hand from the C structs."""

from __future__ import annotations

from typing import Final

from topologies.clos import DATA_HEADERS
from topologies.units import BYTE, NS

PORT_BASE: Final = 1000
"""A port's interface index is this plus its number. A veth pair whose ends had the same index would
hear of its carrier late."""
MAX_PORTS: Final = 4096
MAX_SWITCHES: Final = 2048
MAX_ROUTES: Final = 65536
MAX_PATH_FAULTS: Final = 65536
MAX_HELD: Final = 65536
TRIM_BYTES: Final = DATA_HEADERS + 4
"""Bytes left of a trimmed frame: all headers of a WRITE with immediate [ours]."""

KIND_HOST: Final = 1
KIND_SWITCH: Final = 2
KIND_BRIDGE: Final = 3
KIND_TAPPED: Final = 4
"""Kinds of a port's owner: a host, an eBPF switch, an Open vSwitch bridge in the kernel, or one in
user space."""
HANDED_OVER: Final = 0x6D726300
DATA: Final = 0
HIGH: Final = 1
MARKS: Final = 1
TRIMS: Final = 2
LAST_HOP: Final = 4
LAST_HOP_MARKS: Final = 8
LOSSLESS: Final = 16
FROM_SWITCH: Final = 32
DELAYED: Final = 64
"""Bits of a port's flags. The last three: RoCE's data is under PFC; the cable's other end is a
switch's; a host's frames go to its TUN."""
DELAY_TUN: Final = PORT_BASE - 1
TRUNK: Final = PORT_BASE - 2
# u64 each
TRUNK_WORDS: Final = (
    "sent_packets",
    "sent_bytes",
    "received_packets",
    "received_bytes",
    "merged",
    "remarked",
)
HIGH_BURST: Final = 160 * NS
LEAST_HIGH_BURST: Final = 1600
"""The high class's bucket beyond its half of the rate: this time at the port's rate, but at least
so many bytes [ours]."""
SWITCH_WORKS: Final = 0
SWITCH_DEAD: Final = 1
SWITCH_SILENT: Final = 2

SWITCH_DROPS: Final = (
    "drop_no_route",
    "drop_not_mine",
    "drop_malformed",
    "drop_spoofed",
    "drop_hop_limit",
    "drop_switch_down",
    "drop_silent",
    "drop_fault_loss",
    "drop_fault_path",
)
CONFIG_WORDS: Final = (  # u32 each
    "kind",
    "far",
    "switch_number",
    "usid",
    "limit_data",
    "limit_high",
    "ecn_low",
    "ecn_high",
    "ecn_pmax",
    "trim_at",
    "flags",
    "seed",
    "xoff",
    "xon",
    "hold_limit",
    "source",
)
STATS_WORDS: Final = (  # u64 each; those of two classes: data, high
    "admitted_bytes_data",
    "admitted_bytes_high",
    "admitted_packets_data",
    "admitted_packets_high",
    "arrived_bytes_data",
    "arrived_bytes_high",
    "arrived_packets_data",
    "arrived_packets_high",
    "drop_tail_packets_data",
    "drop_tail_packets_high",
    "drop_tail_bytes_data",
    "drop_tail_bytes_high",
    "peak_bytes_data",
    "peak_bytes_high",
    "drop_trim_failed",
    "drop_link_down",
    *SWITCH_DROPS,
    "corrupted",
    "marked",
    "trimmed",
    "met_bytes",
    "met_packets",
)
FLUSHED_WORDS: Final = ("bytes_data", "bytes_high", "packets_data", "packets_high")  # u64 each
BACKGROUND_WORDS: Final = (  # u64 each
    "left",
    "arrived",
    "drop_tail",
    "drop_link_down",
    *SWITCH_DROPS,
    "corrupted",
)
# u64 each; of map held the first two
HELD_WORDS: Final = ("taken_bytes", "released_bytes", "over_ns", "under_ns")
PAUSE_WORDS: Final = (  # u64 each
    "lost_bytes",
    "since_ns",
    "pauses",
    "paused_ns",
    "longest_ns",
    "reaction_ns",
    "longest_reaction_ns",
)
FAULT_LOSS: Final = 1
FAULT_CORRUPT: Final = 2
FAULT_PATH: Final = 4
# u64 each
FAULT_WORDS: Final = (
    "flags",
    "loss",
    "loss_seed",
    "loss_draws",
    "corrupt",
    "corrupt_seed",
    "corrupt_draws",
)
PATH_FAULT_WORDS: Final = ("loss", "seed", "draws")  # u64 each
ECN_CERTAIN: Final = 1 << 31
CERTAIN: Final = 1 << 32


def high_burst_bytes(rate: int) -> int:
    return max(LEAST_HIGH_BURST, rate * HIGH_BURST // BYTE)
