"""The lines of a run's logs: ``h<i>.jsonl`` of the agents, ``runner.jsonl``, ``ports.jsonl``,
``queues.jsonl``.

A line is a JSON object with its time ``t`` and its ``kind``. Times are whole ps of the network; a
property that ends in ``_ns`` gives one in ns. Kinds and keys that are not declared here are left
out when a line is read. Within a format both are added, never renamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import attrgetter, or_
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta

from testbed.results.values import FAR, Amount, Count, Index, Number, Perhaps, Row, Whole, ns
from topologies.clos import Fabric
from topologies.files import FileError, damaged
from topologies.structs import Doc
from topologies.units import NS

Value: TypeAlias = str | int | float | bool | list[str] | None
"""A parameter of a fault, or an option."""
NO_HOST = -1
Qpn = Annotated[Count | None, Doc("its queue pair")]
Psn = Annotated[Count | None, Doc("sequence number of the packet, 24 bits")]
Ev = Annotated[Annotated[int, Meta(ge=-1, le=FAR)], Doc("EV of the path")]
Reason = Annotated[str | None, Doc("why")]
Phase = Annotated[str, Doc("begin, down, up, heal, or end: with the run")]
Bin = Annotated[
    Annotated[int, Meta(ge=1, le=FAR)], Doc("length of the bin, which begins at `t`", unit="ps")
]


class Line(Row, kw_only=True, gc=False):
    """What every line has."""

    t: Annotated[Whole, Doc("when, ps of the network")]
    host: Annotated[
        Annotated[int, Meta(ge=NO_HOST, le=1 << 20)], Doc("the agent's host; none: the runner")
    ] = NO_HOST

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag or "")

    @property
    def t_ns(self) -> float:
        return self.t / NS


class Unknown(Line, kw_only=True):
    """A line of a kind that nobody reads."""

    word: Annotated[str, Doc("its kind")] = msgspec.field(default="", name="kind")


class _Event(Line, kw_only=True, tag_field="kind", tag=str.lower):
    """A line whose class says its kind."""


class _OfPeer(_Event, kw_only=True):
    """A line about a pair of hosts."""

    peer: Annotated[Index, Doc("the other host")]

    @property
    def pair(self) -> tuple[int, int]:
        return self.host, self.peer


class _OfTime(_Event, kw_only=True):
    start_ps: Annotated[Whole, Doc("begin", unit="ps")]
    end_ps: Annotated[Whole, Doc("end", unit="ps")]

    @property
    def start_ns(self) -> float:
        return self.start_ps / NS

    @property
    def end_ns(self) -> float:
        return self.end_ps / NS


class _OfBin(_Event, kw_only=True):
    bin_ps: Bin

    @property
    def bin_ns(self) -> float:
        return self.bin_ps / NS


# --- of the runner --------------------------------------------------------------------------------


class Start(_Event, kw_only=True):
    """The workload begins."""

    key: Annotated[str, Doc("name of the run")] = ""


class End(_Event, kw_only=True):
    """The run has ended."""

    outcome: Annotated[str, Doc("done, failed, timeout, died or interrupted")]
    reason: Annotated[str | None, Doc("why it ended so")] = None


class Fault(_Event, kw_only=True):
    """A fault begins, changes or ends."""

    name: Annotated[str, Doc("its name in the scenario")]
    on: Annotated[str, Doc("what it is on")]
    phase: Phase
    fault: Annotated[str, Doc("kind of fault")]
    links: Annotated[list[str], Doc("the cables that it hits now")]
    keys: Annotated[dict[str, Value], Doc("its parameters")]

    @property
    def to(self) -> str:
        return str(self.keys.get("to", ""))

    @property
    def probability(self) -> float:
        value = self.keys.get("probability", 1.0)
        return float(value) if isinstance(value, (int, float)) else -1.0

    @property
    def direction(self) -> str:
        return str(self.keys.get("direction", "both"))


class Resolved(_Event, kw_only=True):
    """The target of a fault on a path in use is known."""

    name: Annotated[str, Doc("the fault's name")]
    on: Annotated[str, Doc("its target")]
    how: Annotated[str, Doc("where that is from")]


class Reconverged(_Event, kw_only=True):
    """The network has re-routed."""

    dead_links: Annotated[list[str], Doc("the cables that it routes around")]


class Failed(_Event, kw_only=True):
    """A rank's workload has failed."""

    rank: Annotated[Index | None, Doc("the rank")] = None
    peer_rank: Annotated[Whole | None, Doc("the rank that it lost")] = None
    reason: Reason = None


class Cutoff(_Event, kw_only=True, tag="cut-off"):
    """Ranks have no path to each other."""

    reason: Reason = None


class Controller(_Event, kw_only=True):
    """The controller is gone."""

    phase: Annotated[str, Doc("gone")] = ""


class Background(_Event, kw_only=True):
    """A flow of background traffic begins or ends."""

    name: Annotated[str, Doc("its name")]
    on: Annotated[str, Doc("its path")]
    phase: Annotated[str, Doc("begin or end")]


class Unhealed(_Event, kw_only=True):
    """Faults could not be taken back."""

    reason: Reason = None


class Uncounted(_Event, kw_only=True):
    """Counters could not be read."""

    reason: Reason = None


class Mapper(_Event, kw_only=True):
    """A verdict of Clustermapper's: the runner's on a link or switch, or an agent's on a link; or
    its start."""

    on: Annotated[str | None, Doc("the link or switch")] = None
    phase: Annotated[str | None, Doc("start")] = None
    options: Annotated[dict[str, Value] | None, Doc("Clustermapper's options")] = None
    link: Annotated[str | None, Doc("the agent's link")] = None
    state: Annotated[str | None, Doc("the verdict: clear, lossy, dead, and so on")] = None
    links: Annotated[list[str], Doc("the link, or those of the switch")] = []
    rate: Annotated[Number | None, Doc("estimated share of probes lost")] = None
    sent: Annotated[Count | None, Doc("probes sent")] = None
    lost: Annotated[Count | None, Doc("probes lost")] = None
    since: Annotated[Whole | None, Doc("time of the first probe that counts", unit="ps")] = None
    carrier: Annotated[bool | None, Doc("whether a port reported the loss of its carrier")] = None


class _Entry(_Event, kw_only=True):
    on: Annotated[str, Doc("the entry")] = ""
    by: Annotated[str | None, Doc("who")] = None
    reason: Reason = None
    refused: Annotated[str | None, Doc("why it could not be done")] = None


class Allow(_Entry, kw_only=True):
    """Clustermapper takes an entry off the denylist."""


class Kept(_Entry, kw_only=True):
    """Clustermapper keeps an entry although its link is clear."""


class Deny(_Entry, kw_only=True):
    """Clustermapper denies a link or switch; of an agent: the whole denylist that it was given."""

    entries: Annotated[list[str] | None, Doc("the agent's denylist")] = None


# --- of agents: what queue pairs and paths did ----------------------------------------------------


class PathChange(_OfPeer, kw_only=True, tag="ev", rename={"from_": "from"}):
    """An EV's state changes."""

    qpn: Qpn = None
    ev: Ev
    from_: Annotated[str | None, Doc("its state before")] = None
    to: Annotated[str, Doc("its state now: GOOD, SKIP, ASSUMED_BAD, DENIED")]
    cause: Reason = None
    last_data_ps: Annotated[
        Perhaps[Whole], Doc("when data was sent on it last; null: never", unit="ps")
    ] = UNSET
    srtt_ps: Annotated[Count | None, Doc("smoothed RTT", unit="ps")] = None
    evs: Annotated[Count | None, Doc("EVs in use")] = None
    window: Annotated[Count | None, Doc("congestion window, bytes")] = None

    @property
    def last_data_ns(self) -> float | None:
        return ns(self.last_data_ps)

    @property
    def srtt_ns(self) -> float | None:
        return ns(self.srtt_ps)


class PlaneChange(_OfPeer, kw_only=True, tag="plane", rename={"from_": "from"}):
    """A plane's state changes."""

    plane: Annotated[Index, Doc("the plane")]
    from_: Annotated[str | None, Doc("its state before")] = None
    to: Annotated[str, Doc("its state now: USED, DOWN, PROVING, SUSPECT")]
    cause: Reason = None


class Loss(_OfPeer, kw_only=True):
    """A packet is found lost."""

    qpn: Qpn = None
    ev: Ev
    psn: Psn = None
    rule: Annotated[str | None, Doc("by which rule")] = None
    sent_ps: Annotated[Count | None, Doc("when it was sent", unit="ps")] = None

    @property
    def sent_ns(self) -> float:
        return (self.sent_ps or 0) / NS


class Rtx(_OfPeer, kw_only=True):
    """A packet is sent again; of the kernel's transports, ``count`` packets."""

    qpn: Qpn = None
    ev: Annotated[Ev | None, Doc("EV of the path")] = None
    psn: Psn = None
    count: Annotated[Count | None, Doc("which transmission of it this is")] = None


class Redelivered(_OfPeer, kw_only=True):
    """A packet that was found lost, and sent again, has arrived."""

    qpn: Qpn = None
    psn: Psn = None


class Spurious(_OfPeer, kw_only=True):
    """A packet that was found lost had arrived."""

    ev: Ev
    psn: Psn = None


class Rto(_OfPeer, kw_only=True):
    """A retransmission timer fired; of the kernel's transports, ``count`` times."""

    qpn: Qpn = None
    psn: Psn = None
    firing: Annotated[Count | None, Doc("how often in a row")] = None
    count: Annotated[Count | None, Doc("how often since the last sample")] = None


class Reroute(_Event, kw_only=True):
    """The network takes another path; of the kernel's transports, the host's routes change."""

    peer: Annotated[Index | None, Doc("the other host")] = None
    ev: Annotated[Ev | None, Doc("EV of the path now")] = None
    old: Annotated[Whole | None, Doc("EV of the path before")] = None
    last_data_ps: Annotated[
        Perhaps[Whole], Doc("when data was sent there last; null: never", unit="ps")
    ] = UNSET
    dead_links: Annotated[list[str] | None, Doc("the cables that routes avoid")] = None

    @property
    def last_data_ns(self) -> float | None:
        return ns(self.last_data_ps)


class Qp(_OfPeer, kw_only=True):
    """A queue pair's state changes."""

    qpn: Qpn = None
    state: Annotated[str, Doc("its state now, such as RTS or ERROR")]
    cause: Reason = None


class Endpoint(_OfPeer, kw_only=True):
    """A sender concludes that the other endpoint is at fault, not paths."""

    planes: Annotated[Count | list[Index] | None, Doc("planes that lose at once")] = None
    cause: Reason = None


class Subflow(_OfPeer, kw_only=True):
    """A subflow of MPTCP begins or ends."""

    phase: Annotated[str, Doc("begin or end")]
    qpn: Qpn = None
    plane: Annotated[Annotated[int, Meta(ge=-1, le=1 << 31)], Doc("its plane; -1: not known")]


class QuickAdapt(_OfPeer, kw_only=True, tag="quick_adapt"):
    """NSCC cuts a window to what arrived."""

    qpn: Qpn = None
    before: Annotated[Count, Doc("window before, bytes")]
    window: Annotated[Count, Doc("window now, bytes")]
    in_flight: Annotated[Count, Doc("bytes in flight")]
    trimmed: Annotated[Count, Doc("bytes trimmed in the last RTT")]


class Port(_Event, kw_only=True):
    """A NIC port of the host goes down or comes back."""

    port: Annotated[Count, Doc("its plane")]
    up: Annotated[bool, Doc("whether it is up")]


class PeerPorts(_OfPeer, kw_only=True, tag="peer_ports"):
    """A peer tells which of its ports are up."""

    mask: Annotated[Count, Doc("a bit per plane")]
    serial: Annotated[Count, Doc("number of the message")]


class Hint(_Event, kw_only=True):
    """The controller's hint arrives."""

    links: Annotated[list[str], Doc("all links that are down")]


# --- of agents: what a workload did ---------------------------------------------------------------


class Step(_OfTime, kw_only=True):
    """A rank ends a step of a collective."""

    rank: Annotated[Index, Doc("the rank")]
    step: Annotated[Index, Doc("number of the step, those to warm up included")]
    ok: Annotated[bool, Doc("whether the result is right")]


class Transfers(_Event, kw_only=True):
    """The slices that a rank sent and got in a step, as a list of four numbers each: peer, stage,
    slice, time after `start_ps`."""

    rank: Annotated[Index, Doc("the rank")]
    step: Annotated[Index, Doc("number of the step, those to warm up included")]
    start_ps: Annotated[Whole, Doc("begin of the step", unit="ps")]
    posted: Annotated[list[Whole], Doc("slices that it sent, when each was posted")]
    arrived: Annotated[list[Whole], Doc("slices that it got, when each was complete")]


class Message(_OfTime, kw_only=True):
    """A message of a flow is complete."""

    flow: Annotated[Index, Doc("number of the flow")]
    number: Annotated[Whole, Doc("number of the message")]
    bytes: Annotated[Count, Doc("its size")]


class Note(Row, kw_only=True, gc=False):
    """What a rank of a job tells of itself; other programs may tell what they like."""

    step: Annotated[
        tuple[Whole, Whole, Number, Number, Number, Whole] | None,
        Doc(
            "of a step: phase, number, begin and end and how late the rank was in seconds, wrong "
            "results so far"
        ),
    ] = None
    loss: Annotated[Number | None, Doc("of a job that trains: the loss")] = None
    digest: Annotated[
        str | None, Doc("of a job that trains: SHA-256 of its parameters at the end")
    ] = None


class Told(_Event, kw_only=True):
    """A program reports something."""

    note: Annotated[Note, Doc("the report")] = msgspec.field(default_factory=Note)


# --- of agents: bins, and the end -----------------------------------------------------------------


class Goodput(_OfBin, kw_only=True):
    """Payload of a host in a bin, by plane; no line for an empty bin."""

    tx: Annotated[list[Count], Doc("bytes sent for the first time")]
    rx: Annotated[list[Count], Doc("bytes placed")]


class Evs(_OfBin, kw_only=True):
    """Data packets that a sender sent to a peer in a bin."""

    peer: Annotated[Index, Doc("the other host")]
    tx: Annotated[dict[Index, Count], Doc("by EV")]


class Flow(_OfBin, kw_only=True):
    """Payload of a flow that was placed in a bin."""

    flow: Annotated[Index | None, Doc("number of the flow")] = None
    rx: Annotated[Count, Doc("bytes placed")]


class Verbs(_OfBin, kw_only=True):
    """What a queue pair of an RDMA program did in a bin."""

    pid: Annotated[Count, Doc("process of the program")] = 0
    qpn: Qpn = None
    peer: Annotated[Index, Doc("the other host")]
    messages: Annotated[Count, Doc("messages sent")] = 0
    bytes: Annotated[Count, Doc("bytes sent")] = 0
    immediates: Annotated[Count, Doc("immediates received")] = 0


class VerbsFault(_Event, kw_only=True, tag="verbs-fault"):
    """A fault of RDMA verbs begins or ends at a host."""

    number: Annotated[Count, Doc("number of the fault")]
    phase: Annotated[str, Doc("begin or heal")]
    what: Annotated[str | None, Doc("what it does")] = None
    value: Annotated[Whole | None, Doc("status, delay in ps, or errno")] = None
    of: Annotated[str | None, Doc("side of a queue pair, or the call")] = None
    program: Annotated[str | None, Doc("pid or command that it is for")] = None
    after: Annotated[Count | None, Doc("how many are spared first")] = None
    count: Annotated[Whole | None, Doc("how many are hit then")] = None
    hits: Annotated[Count | None, Doc("how many were hit")] = None


class Cwnd(_OfPeer, kw_only=True):
    """The window of a sending queue pair at the end of a bin."""

    bin_ps: Annotated[Bin | None, Doc("length of the bin, where a collective runs", unit="ps")] = (
        None
    )
    flow: Annotated[Index | None, Doc("number of the flow")] = None
    qpn: Annotated[Count, Doc("its queue pair")]
    cwnd: Annotated[Count, Doc("window, bytes")]
    in_flight: Annotated[Count, Doc("bytes in flight")]
    srtt_ps: Annotated[Count, Doc("smoothed RTT; 0: not known", unit="ps")]
    rate_bps: Annotated[
        Amount | None, Doc("rate, of queue pairs with one; 0: only the port limits it")
    ] = None

    @property
    def srtt_ns(self) -> float:
        return self.srtt_ps / NS

    @property
    def bytes(self) -> int:
        return self.cwnd


class Srtt(_OfPeer, kw_only=True):
    """RTT and window of a sending queue pair of MRC, every few RTTs."""

    qpn: Qpn = None
    srtt_ps: Annotated[Count | None, Doc("smoothed RTT", unit="ps")] = None
    window: Annotated[Count | None, Doc("window, bytes")] = None

    @property
    def srtt_ns(self) -> float | None:
        return ns(self.srtt_ps)

    @property
    def bytes(self) -> int | None:
        return self.window


class Rotation(_Event, kw_only=True):
    """How strictly planes took turns."""

    sent: Annotated[list[Count], Doc("packets sent for the first time, by plane")]
    due: Annotated[list[Count], Doc("how many strict turns put there")]
    first: Annotated[list[Count], Doc("queue pairs that began there")]
    passed: Annotated[Count, Doc("turns of planes that could not take a packet")]
    unsure: Annotated[
        Count, Doc("queue pairs whose first packet met such a plane, or that sent nothing")
    ]
    repeats: Annotated[Count, Doc("packets that left by the plane of the one before")]


class Counters(_Event, kw_only=True):
    """The engine's counters at the end, each under its name."""


class Loop(_Event, kw_only=True):
    """How late an agent's process got to frames and timers."""

    lag_max_ps: Annotated[Count | None, Doc("most", unit="ps")] = None
    lag_p99_ps: Annotated[Count | None, Doc("99th percentile", unit="ps")] = None
    timers: Annotated[Count | None, Doc("timers that were late")] = None
    lag_mean_ps: Annotated[Count | None, Doc("expected lateness over the run", unit="ps")] = None
    lag_window_ps: Annotated[Count | None, Doc("the same in the worst window", unit="ps")] = None
    wakeups: Annotated[Count | None, Doc("how often the process woke up")] = None
    cpu_ns: Annotated[Count | None, Doc("CPU time of the process", unit="ns")] = None

    @property
    def mean_ns(self) -> float:
        return (self.lag_mean_ps or 0) / NS

    @property
    def window_ns(self) -> float:
        return (self.lag_window_ps or 0) / NS

    @property
    def p99_ns(self) -> float:
        return (self.lag_p99_ps or 0) / NS

    @property
    def max_ns(self) -> float:
        return (self.lag_max_ps or 0) / NS


class Ports(_Event, kw_only=True):
    """Changes of ports since the line before (``ports.jsonl``)."""

    span_ps: Annotated[Count, Doc("how long that is", unit="ps")]
    rows: Annotated[
        list[Annotated[list[Whole], Meta(min_length=1)]],
        Doc(
            "number of a port, bytes it sent, backlog now, packets marked, trimmed, dropped; "
            "ports without change are left out"
        ),
    ]


class Queue(Line, kw_only=True):
    """A sample of a watched port's queue (``queues.jsonl``, whose lines have no kind)."""

    port: Annotated[str, Doc("name of the port")]
    bytes: Annotated[Count, Doc("backlog of the data class")]


def _kinds(kind: type[Line]) -> list[type[Line]]:
    below = [found for child in kind.__subclasses__() for found in _kinds(child)]
    return below if kind.__name__.startswith("_") else [kind, *below]


KINDS = {str(kind.__struct_config__.tag): kind for kind in _kinds(_Event)}
"""Kind of a line -> its Struct."""
_OWN_RULES = {kind for kind in KINDS.values() if issubclass(kind, (Goodput, _OfTime, Fault))}
L = TypeVar("L", bound=Line)
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(reduce(or_, KINDS.values()))
_queue_decoder = msgspec.json.Decoder(Queue)
_unknown_decoder = msgspec.json.Decoder(Unknown)


class Lines:
    """Reads lines, and checks that the run has the hosts, ranks and flows that they name."""

    def __init__(self, fabric: Fabric, ranks: int, flows: int | None = None) -> None:
        most = {
            "host": fabric.host_count,
            "peer": fabric.host_count,
            "rank": ranks,
            "plane": fabric.planes,
        }
        most |= {} if flows is None else {"flow": flows}
        kinds: list[type[Line]] = [*KINDS.values(), Queue, Unknown]
        self._most = {
            kind: [(name, most[name]) for name in kind.__struct_fields__ if name in most]
            for kind in kinds
        }
        self._planes = fabric.planes

    def read(self, data: bytes, path: Path, number: int = 0, queues: bool = False) -> Line:
        """Read line ``number`` of a log; of ``queues.jsonl`` if ``queues``. Raises
        :class:`FileError`."""
        try:
            line = self._typed(data, _queue_decoder if queues else _decoder)
        except msgspec.ValidationError as error:
            raise damaged(error, _where(path, number)) from None
        except (ValueError, RecursionError) as error:
            raise FileError(
                f"damaged: {_where(path, number)} ({error}): take it from a copy, or run the "
                "scenario again"
            ) from None
        if problem := self._problem(line):
            key, words = problem
            raise FileError(f"damaged: {key} in {_where(path, number)}: {words}")
        return line

    def read_all(self, lines: Sequence[bytes], queues: bool = False) -> list[Line] | None:
        """Read lines at once; None if something may be wrong with one, of which :meth:`read` says
        what."""
        found: list[Line] = []
        try:
            found += (_queue_decoder if queues else _decoder).decode_lines(b"\n".join(lines))
        except (ValueError, RecursionError):
            return None
        by_kind: dict[type[Line], list[Line]] = {}
        for line in found:
            by_kind.setdefault(type(line), []).append(line)
        for kind, alike in by_kind.items():
            for key, most in self._most[kind]:
                if (
                    max(
                        {value for value in map(attrgetter(key), alike) if value is not None},
                        default=-1,
                    )
                    >= most
                ):
                    return None
            if kind in _OWN_RULES and any(map(self._problem, alike)):
                return None
        return found if len(found) == len(lines) else None

    def _typed(
        self, data: bytes, decoder: msgspec.json.Decoder[Line] | msgspec.json.Decoder[Queue]
    ) -> Line:
        try:
            return decoder.decode(data)
        except msgspec.ValidationError:
            if decoder is _decoder and _unknown_decoder.decode(data).word not in KINDS:
                return _unknown_decoder.decode(data)
            raise

    def _problem(self, line: Line) -> tuple[str, str] | None:
        for key, most in self._most[type(line)]:
            value = getattr(line, key)
            if value is not None and value >= most:
                return key, f"there is no {value} of {most}"
        match line:
            case Goodput() if not len(line.tx) == len(line.rx) == self._planes:
                return "rx", f"the fabric has {self._planes} planes"
            case _OfTime() if line.start_ps > line.end_ps:
                return "end_ps", "it is before start_ps"
            case Fault() if not 0 <= line.probability <= 1:
                return "keys.probability", "expected a number in 0..1"
        return None


def _where(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}, line {number}")
