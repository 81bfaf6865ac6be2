"""The contract between a host process and the transport engine it runs.

An engine is sans-IO: frames and times in, frames and deadlines out. It owns no socket, clock,
thread or file. Connection parameters travel out of band, as dictionaries (the MRC paper has no
RDMA-CM).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypedDict

from mypy_extensions import mypyc_attr

NEVER: Final = 1 << 61
"""The time that never comes, ps: no deadline, or not begun yet."""
LONG_AGO: Final = -NEVER
"""When something last happened that has not happened yet, ps: further back than any span that is
asked about.

Times are ps of the network since the run began: 0 is a time like any other, and -1 is recent while
the clock is young. So a missing time is NEVER, LONG_AGO or None [ours]. Comparisons with the first
two need no test, and sums with them fit a machine word. They stay inside the engine: logs and
tables have None for "not yet".
"""

WRITE = 0
RECEIVE = 1

OK = 0
FLUSHED = 1
"""The QP went to ERROR before this request was done."""
REMOTE_INVALID = 2
REMOTE_ACCESS = 3
REMOTE_OPERATION = 4
RETRY_EXCEEDED = 5
PEER_UNKNOWN = 6
"""The peer answered that it does not know the QP (UNEXP_EVENT)."""
LOCAL_PROTECTION = 7
"""The memory of a request could not be read (:class:`Foreign`)."""
STATUS_NAMES = (
    "ok",
    "flushed",
    "remote invalid request",
    "remote access error",
    "remote operation error",
    "retries exhausted",
    "peer does not know the queue pair",
    "local protection error",
)


class Completion(NamedTuple):
    """One finished request. ``kind`` is WRITE (a posted write is done) or RECEIVE (an immediate
    arrived)."""

    qpn: int
    wr_id: int
    kind: int
    status: int
    imm: int  # -1 without
    length: int  # bytes


class Remote(TypedDict, total=False):
    """What one end of a queue pair tells the other: a transport's own keys, and the regions of a
    group."""

    transport: str
    host: int
    qpn: int
    psn: int
    mpr: int
    sport: int
    mtu: int
    port: int
    token: int
    plane: int
    arena: list[int]
    memory: list[int]


class PathRow(TypedDict, total=False):
    """A path of a queue pair, as each transport knows it; ``ev``, ``plane``, ``uplink``, ``peer``
    and ``state`` are in every row."""

    qpn: int
    qp_state: str
    peer: int
    ev: int
    plane: int
    uplink: int
    state: str
    plane_state: str
    active: bool
    dead: bool
    in_flight: int
    data_tx: int
    losses: int
    flaps: int
    tx_packets: int
    rx_packets: int
    retransmitted: int
    outstanding: int
    rto_firing: int
    last_data_ps: int | None


SentByPath = tuple[int, int, list[int], list[int]]
"""A queue pair's number, its peer, its EVs, and the packets so far on each: data packets, as far as
a transport tells them apart."""


class Note(TypedDict, total=False):
    """What an agent reports unasked; ``event`` says which keys there are. A lost peer has
    ``peer_rank`` and ``reason``."""

    event: str
    rank: int
    peer_rank: int
    reason: str
    step: int
    start_ps: int
    end_ps: int
    ok: object | None  # whether the step's result is right; in an answer what was asked for
    wrong: int
    flow: int
    messages: int
    bytes: int
    peak_bytes: int
    peak_ps: int | None
    peers: list[int]
    entries: list[str]
    host: int
    t_ps: int
    note: dict[str, Any]  # whatever a program tells
    group: str
    calls: list[int]
    links: list[dict[str, str | int | float | bool]]
    bucket: int
    sent: list[int]
    lost: list[int]
    carrier: list[bool]


class Region(NamedTuple):
    """Registered memory: ``va`` is the address peers use, ``rkey`` their capability, ``length`` in
    bytes."""

    va: int
    rkey: int
    length: int


@mypyc_attr(allow_interpreted_subclasses=True)
class Foreign:
    """Memory of another process, reached by calls; ``length`` in bytes. Either call raises OSError
    where the memory is no longer there."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self, at: int, end: int) -> memoryview:
        """Return the bytes ``[at, end)`` of the memory; they stay as they are until a packet with
        them has left."""
        raise NotImplementedError

    def write(self, at: int, data: memoryview) -> None:
        """Put ``data`` at ``at``; it is the caller's and changes after the call."""
        raise NotImplementedError


class Domain:
    """A protection domain: a queue pair of it places data into the regions of this domain alone."""

    def register(self, memory: bytearray | memoryview | Foreign, va: int = -1) -> Region:
        """Let peers write into ``memory`` (writable, contiguous bytes; kept alive by the engine) at
        the address ``va``, or one of ours."""
        raise NotImplementedError

    def deregister(self, rkey: int) -> None:
        """Forget a region: what still comes for it is refused. Raises ValueError on an rkey that is
        not this domain's."""
        raise NotImplementedError


def check_parameters(remote: Remote, limits: tuple[tuple[str, int, int], ...]) -> None:
    """``limits``: (name, least, most) of a peer's whole numbers. Raises ValueError."""
    for key, low, high in limits:
        value = remote.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(
                f"connection parameters: {key} = {value!r} must be a whole number in {low}..{high}"
            )


def check_target(va: int, rkey: int, length: int, imm: int) -> None:
    """``imm`` is -1 without one. Raises ValueError on what does not fit its field."""
    if not 0 <= va <= (1 << 64) - length or not 0 <= rkey < 1 << 32 or not -1 <= imm < 1 << 32:
        raise ValueError("va, rkey or immediate do not fit their fields (64, 32 and 32 bits)")


def known_ps(t: int) -> int | None:
    """Return a time as shown outside the engine: None if it has not come yet."""
    return None if t == LONG_AGO else t


Event = tuple[int, str, Mapping[str, object]]
"""(time, kind, fields), for a run's log: rare things only, never one per packet.
docs/how/results.md lists the kinds."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Reports:
    """The reports of every transport, however its packets are carried. All times are ps."""

    def reroute(self, now: int, dead_links: list[str]) -> None:
        """Take that the network has converged around ``dead_links`` (a network that re-routes; MRC
        ignores it)."""
        raise NotImplementedError

    def deny(self, now: int, entries: list[str]) -> None:
        """Take the complete denylist (:mod:`topologies.denylist`). No data and no control packet
        takes a path that an entry forbids. A transport that cannot choose paths ignores it."""
        raise NotImplementedError

    def hint(self, now: int, links: list[str]) -> None:
        """Take the complete list of links that the controller knows to be down; a transport may use
        it."""
        raise NotImplementedError

    def quiesce(self) -> None:
        """Send no data and no probe for good, and only answer: packets in flight drain and can be
        counted."""
        raise NotImplementedError

    def completed(self) -> bool:
        """Say whether :meth:`completions` would return any."""
        raise NotImplementedError

    def completions(self) -> list[Completion]:
        """Take the finished requests since the last call."""
        raise NotImplementedError

    def events(self) -> list[Event]:
        """Take the events since the last call."""
        raise NotImplementedError

    def counters(self) -> dict[str, int]:
        """Return cumulative counters by name; every frame in or out is in exactly one of the
        tx_*/rx_* sums (docs/how/results.md)."""
        raise NotImplementedError

    def goodput(self) -> tuple[list[int], list[int]]:
        """Return the payload bytes per plane since the start: (sent for the first time, placed).
        The lists are the caller's to keep."""
        raise NotImplementedError

    def rotation(self) -> dict[str, int | list[int]]:
        """Return the account of a transport that sends over planes in turns
        (agents.mrc.paths.rotation); {} of any other."""
        return {}

    def placed(self) -> dict[int, int]:
        """Return the payload bytes placed since the start, by local QPN; under -1 what destroyed
        queue pairs placed, if there was any."""
        raise NotImplementedError

    def windows(self) -> list[dict[str, int]]:
        """Return, per QP, ``{"qpn", "peer", "cwnd", "in_flight", "srtt_ps"}``: bytes that may be
        and are in flight, smoothed RTT. ``peer`` is a host number; a transport that paces adds
        ``rate_bps``."""
        raise NotImplementedError

    def sent_by_path(self) -> list[SentByPath]:
        """Return the packets of all queue pairs, for a log. A RoCE sender's few other packets are
        in them."""
        sent: dict[int, SentByPath] = {}
        for row in self.paths():
            _, _, evs, packets = sent.setdefault(row["qpn"], (row["qpn"], row["peer"], [], []))
            evs.append(row["ev"])
            packets.append(row.get("data_tx", row.get("tx_packets", 0)))
        return list(sent.values())

    def paths(self) -> list[PathRow]:
        """Return, per QP and EV: peer host, plane, uplink, state, counters; for people and the
        prompt."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class FrameIO(Reports):
    """A receiver of frames from the ports of a NIC that gives it others: an engine, or a mapper
    beside one. All times ps.

    :meth:`transmit` leaves a frame in ``tx_*``: the headers, Ethernet's included; the payload, a
    view of registered memory, or None; the trailer (iCRC), empty for a packet without payload,
    whose iCRC is among the headers; whether it goes in the high class (control packets).
    """

    def __init__(self) -> None:
        self.tx_frame = b""
        self.tx_payload: memoryview | None = None
        self.tx_trailer = b""
        self.tx_high = False

    def receive(self, now: int, port: int, buffer: Any, start: int, length: int) -> None:
        """Take a frame, Ethernet header included, that arrived on NIC port ``port`` at
        ``buffer[start:start+length]``, bytes or a view of bytes. Never raises on hostile input: it
        counts and drops."""
        raise NotImplementedError

    def spare_sums(self) -> bool:
        """Leave a gap for the checksum in frames from now on, for a network that computes it where
        somebody wants the bytes. False: this transport does not."""
        return False

    def receive_intact(
        self, now: int, port: int, head: bytes, word: int, payload: memoryview | None, length: int
    ) -> None:
        """Take a frame with such a gap, of ``length`` bytes, that nothing on its way has changed:
        what precedes the payload as it was sent, and the first two bytes of the outer header as
        they are now."""
        raise NotImplementedError

    def transmit(self, now: int) -> int:
        """Build the next frame that may go now into ``tx_*`` and return its NIC port, or -1 for
        none."""
        raise NotImplementedError

    def sent(self, now: int, port: int, ok: bool) -> None:
        """Report whether the kernel took the frame; ``ok`` False when it refused (port down)."""
        raise NotImplementedError

    def timer(self, now: int) -> None:
        """Act on what is due. Cheap when nothing is."""
        raise NotImplementedError

    def deadline(self) -> int:
        """Return when to call :meth:`timer` and :meth:`transmit` again at the latest, ps; NEVER for
        nothing."""
        raise NotImplementedError

    def port_state(self, now: int, port: int, up: bool) -> None:
        """Take that a local NIC port lost or found its carrier."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Engine(FrameIO):
    """A transport of ours: reports, frames, and verbs."""

    def port_paused(self, now: int, port: int, paused: bool) -> None:
        """Take that the switch at a local NIC port wants no data of its lossless class for the
        moment, or wants it again (PFC). A transport without data in such a class is never asked."""

    def register(self, memory: bytearray | memoryview | Foreign) -> Region:
        """Let peers write into ``memory``, as :meth:`Domain.register` of the engine's own
        domain."""
        raise NotImplementedError

    def domain(self) -> Domain:
        """Make a protection domain. No rkey is in two of them at the same time."""
        raise NotImplementedError

    def reserve_qp(self) -> int:
        """Take a queue-pair number for a :meth:`create_qp` later on."""
        raise NotImplementedError

    def create_qp(
        self, peer: int, evs: int = 0, qpn: int = -1, domain: Domain | None = None
    ) -> Remote:
        """Make a queue pair in INIT for host number ``peer``; returns what the peer's
        :meth:`connect_qp` needs, with key ``qpn``. ``evs``: how many of each plane's paths it may
        use, 0 for all; ignored where it has one path anyway. ``qpn``: its number, reserved or free.
        ``domain``: where it may place data, the engine's own if None. Raises ValueError on a wrong
        peer, number or domain."""
        raise NotImplementedError

    def remote_of(self, host: int, qpn: int, psn: int) -> Remote:
        """Return what ``create_qp(qpn=qpn)`` gave ``host`` for us, as far as users of verbs
        exchange it. ``psn`` is the first it sends. The host has our own configuration."""
        raise NotImplementedError

    def connect_qp(self, now: int, qpn: int, remote: Remote) -> None:
        """Move a QP to RTS, with the dictionary the peer's :meth:`create_qp` returned. Raises
        ValueError on another one, or a QP not in INIT."""
        raise NotImplementedError

    def start_qp(self, now: int, qpn: int, psn: int, timeout_ps: int, retries: int) -> None:
        """Set the first PSN that this side sends, and when it gives up: after 1 + ``retries``
        timeouts without progress, each of ``timeout_ps`` (0: never). Losses are sent again by the
        engine's own timer, if that is sooner. Raises ValueError on a QP not in RTS, or one that was
        posted to."""
        raise NotImplementedError

    def fail_qp(self, now: int, qpn: int) -> None:
        """Move a QP to ERROR because its user wants that: every outstanding request is flushed, in
        order."""
        raise NotImplementedError

    def destroy_qp(self, now: int, qpn: int) -> None:
        """Forget a QP in any state, or a reserved number. Completions that were not taken are
        dropped, memory is not touched again. Sums over all queue pairs keep its part. The number is
        free again."""
        raise NotImplementedError

    def post_recv(self, qpn: int, wr_id: int) -> None:
        """Offer one receive request, which the next immediate consumes."""
        raise NotImplementedError

    def post_write(
        self, qpn: int, wr_id: int, memory: memoryview | Foreign, va: int, rkey: int, imm: int
    ) -> None:
        """Post an RDMA WRITE of ``memory`` to the peer's ``va``; with immediate if ``imm`` >= 0.
        Raises ValueError on a QP not in RTS."""
        raise NotImplementedError
