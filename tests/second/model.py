"""What an endpoint remembers: facts about the fabric, queue pairs, paths, packets. Times are
picoseconds, sequence numbers 24 bits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

KEEP = 4096  # PSNs whose history is kept; older ones are not judged


@dataclass(frozen=True)
class Facts:
    """What both sides know of the fabric (section 1, told out of band)."""

    host: int
    planes: int
    mtu: int  # payload bytes of a full packet
    base_rtt_ps: int
    nic_rate: int  # bits per second and port
    trimming: bool
    udp_port: int
    evs: Callable[[int], list[int]]  # peer host -> EVs
    outer: Callable[[int, int], bytes]  # peer host, EV -> outer destination as it leaves
    window_packets: int


class Completion(NamedTuple):
    qpn: int
    wr_id: int
    kind: str  # "write" or "receive"
    status: str
    imm: int | None
    length: int


def diff(a: int, b: int, bits: int = 24) -> int:
    """a - b as a signed number of `bits` bits (section 1: PSNs compare as signed 24-bit
    differences)."""
    half = 1 << (bits - 1)
    return ((a - b + half) & ((1 << bits) - 1)) - half


def add(psn: int, n: int) -> int:
    return (psn + n) & 0xFFFFFF


def unit_ps(base_rtt_ps: int) -> int:
    """Unit of timestamps: least power of two from 128 ps on with which 16 bits last 256 base RTTs
    (section 4)."""
    unit = 128
    while unit << 16 < 256 * base_rtt_ps:
        unit *= 2
    return unit


class Sent(NamedTuple):
    """One transmission of a packet, a probe or a request."""

    ev: int
    stamp: int
    rtx: int
    at: int


class Trigger(NamedTuple):
    """What a SACK answers: a packet by PSN, or a Reliability Probe by id."""

    ev: int
    psn: int
    stamp: int
    rtx: int
    at: int
    mark: int
    probe: bool = False


@dataclass
class Out:
    """A packet to send; once it has left, `lost` or in flight."""

    psn: int
    values: dict[str, int]
    payload: bytes
    lost: bool = False
    tries: list[Sent] = field(default_factory=list)


class Message(NamedTuple):
    wr_id: int
    last: int  # its last PSN
    length: int
    imm: int | None


@dataclass
class Path:
    """One EV as the sender sees it (section 7): GOOD, SKIP or ASSUMED_BAD."""

    ev: int
    state: str = "GOOD"
    bad_at: int = 0
    probe_at: int = 0
    gap: int = 0
    clean: int = 0
    need: int = 3
    losses: int = 0  # in a row, where congestion loses packets, too
    doubt_at: int | None = None  # a verdict waits for a NACK until then


@dataclass
class Plane:
    """One plane as a queue pair sees it (section 7): USED, DOWN or PROVING."""

    paths: list[Path]
    state: str = "USED"
    at: int = 0  # hold-down's end, then the next probe
    flaps: int = 0
    turn: int = 0


@dataclass
class Record:
    """A data packet as it arrived first, and each copy: rtx, timestamp, EV, arrival."""

    values: dict[str, int]
    length: int
    copies: list[tuple[int, int, int, int]]


@dataclass
class Qp:
    peer: int
    qpn: int
    first: int  # first PSN sent
    mpr: int = 1024
    state: str = "INIT"
    rqpn: int = 0  # the peer's
    rfirst: int = 0
    # requester
    next_psn: int = 0
    posted: int = 0  # messages
    posted_imm: int = 0
    done: int = 0  # messages acknowledged
    last_done: int = 0  # PSN of the last one's end
    messages: deque[Message] = field(default_factory=deque)
    # number of messages -> PSN of the last one's end
    ends: dict[int, int] = field(default_factory=dict)
    fresh: deque[Out] = field(default_factory=deque)
    # sent and not known to have arrived, oldest first
    flight: dict[int, Out] = field(default_factory=dict)
    log: dict[int, list[Sent]] = field(default_factory=dict)
    probes: dict[int, Sent] = field(default_factory=dict)
    waiting: dict[int, Path | None] = field(default_factory=dict)  # probes not answered
    next_probe: int = 0
    last_sent: int = 0
    edge: int = 0  # last PSN in the peer's window
    newest: int | None = None  # count of bytes of the newest SACK
    latest_arrival: int = -1  # when the latest packet known to have arrived was sent
    planes: list[Plane] = field(default_factory=list)
    # plane of the next new packet, of the next retransmission
    turns: list[int] = field(default_factory=lambda: [0, 0])
    rtts: deque[int] = field(default_factory=lambda: deque(maxlen=64))
    srtt: int = 0
    rto_at: int | None = None
    firings: int = 0
    silent_at: int | None = None
    silent_gap: int = 0
    # responder
    cum: int = 0
    records: dict[int, Record] = field(default_factory=dict)
    got: set[int] = field(default_factory=set)  # PSNs above cum
    unreported: set[int] = field(default_factory=set)
    news: bool = True
    cursor: int = 0
    counted: int = 0  # bytes received
    completed: int = 0  # messages
    completed_imm: int = 0
    completed_psn: int = 0
    inside: bool = False
    asked: int | None = None  # PSN of a packet with `a` that came while others were missing
    receives: deque[int] = field(default_factory=deque)
    unsacked: int = 0
    threshold: int = 16384
    trigger: Trigger | None = None
    sack_at: int = 0
    refused_at: int | None = None
    reverse: int = 0  # plane of the next control packet
    heard: dict[int, int] = field(default_factory=dict)  # EV -> when data arrived
    # EV -> when it was known to work towards the peer
    proven: dict[int, int] = field(default_factory=dict)


@dataclass
class Peer:
    """Another host, for the endpoint operations of section 7."""

    host: int
    mask: int = (1 << 32) - 1
    serial: int = 0  # newest applied
    own_serial: int = 0
    asked: dict[int, list[Sent]] = field(default_factory=dict)  # id of a request -> its copies
    rounds: int = 0
    round_at: int | None = None
    next_probe: int = 0
    probe_at: int | None = None
    data_at: int = 0
