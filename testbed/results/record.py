"""``run.json``: what a run was, and what was counted. ``begun.json`` is the same while the run goes
on, without what comes at the end.

Times are whole ps of the network; a property that ends in ``_ns`` gives one in ns.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from testbed.results.log import Value
from testbed.results.reading import AGAIN, ResultsError, read
from testbed.results.values import (
    FAR,
    Amount,
    Count,
    Digits,
    Index,
    Name,
    Number,
    Row,
    Setting,
    Whole,
    ns,
)
from topologies.clos import Fabric, FabricError
from topologies.files import FileError
from topologies.structs import Doc
from topologies.units import NS

PortCounters = dict[str, Whole | str]
"""What was counted at a port, and the names of the port and its cable."""
NAMES = ("port", "node", "peer", "link", "kind")
"""The names in it; all else are numbers."""


class Counted(Row, kw_only=True):
    """What the books of a run are made of."""

    kind: Annotated[str, Doc("kind of the transport")] = ""
    outcome: Annotated[str, Doc("done, or how the run ended")] = ""
    counters_before: Annotated[list[PortCounters], Doc("the ports' counters before the run")] = []
    counters_after: Annotated[
        list[PortCounters], Doc("the ports' counters when all packets had arrived")
    ] = []
    agent_counters: Annotated[
        dict[Digits, dict[str, Count]] | None, Doc("the engines' counters then, by host")
    ] = None


class Flow(Row, kw_only=True):
    """A flow between ranks, as resolved."""

    name: Annotated[str, Doc("its name")]
    group: Annotated[str, Doc("whose figures are added up")] = ""
    src: Annotated[Index, Doc("rank that sends")]
    dst: Annotated[Index, Doc("rank that receives")]
    start_ps: Annotated[Count, Doc("its begin after `t0`", unit="ps")]
    for_ps: Annotated[
        Count | None, Doc("how long it sends; null: it sends a number of messages", unit="ps")
    ] = None
    messages: Annotated[Count | None, Doc("how many messages it sends")] = None
    evs: Annotated[Count | None, Doc("EVs per plane that it may use; 0: all")] = 0

    @property
    def start_ns(self) -> float:
        return self.start_ps / NS

    @property
    def for_ns(self) -> float | None:
        return ns(self.for_ps)


class FlowNote(Row, kw_only=True):
    """What a flow's sender reports at its end."""

    flow: Annotated[Index | None, Doc("number of the flow")] = None
    rank: Annotated[Index | None, Doc("its sender")] = None
    messages: Annotated[Count | None, Doc("messages sent")] = None
    bytes: Annotated[Count | None, Doc("their bytes")] = None
    wrong: Annotated[Count, Doc("bytes that arrived wrong")] = 0
    start_ps: Annotated[Whole | None, Doc("when the first was posted", unit="ps")] = None
    end_ps: Annotated[Whole | None, Doc("when the last was complete", unit="ps")] = None
    peak_bytes: Annotated[Count | None, Doc("bytes of the messages of `peak_ps`")] = None
    peak_ps: Annotated[Whole | None, Doc("the time between them", unit="ps")] = None


class Job(Row, kw_only=True):
    """A job."""

    name: Annotated[Name, Doc("its name")]
    ranks: Annotated[list[Index], Doc("its ranks")]
    compute_ps: Annotated[Count, Doc("computing of a rank in a step", unit="ps")]
    estimate_ps: Annotated[Count, Doc("estimate of a step", unit="ps")] = 0

    @property
    def compute_ns(self) -> float:
        return self.compute_ps / NS

    @property
    def estimate_ns(self) -> float:
        return self.estimate_ps / NS


class PathRow(Row, kw_only=True, gc=False):
    """A path of a queue pair before the workload began."""

    peer: Annotated[Index, Doc("the other host")]
    qpn: Annotated[Count | None, Doc("the queue pair")] = None
    qp_state: Annotated[str | None, Doc("its state")] = None
    plane: Annotated[Whole | None, Doc("plane of the path")] = None
    uplink: Annotated[Whole | None, Doc("uplink of the path")] = None
    ev: Annotated[
        Annotated[int, Meta(ge=-1, le=FAR)] | None, Doc("EV of the path; -1: not known")
    ] = None
    state: Annotated[str | None, Doc("state of the EV")] = None
    active: Annotated[bool, Doc("whether data may take it; else it is a backup")] = True
    dead: Annotated[bool | None, Doc("whether it is known to be dead")] = None
    plane_state: Annotated[str | None, Doc("state of the plane")] = None
    in_flight: Annotated[Count | None, Doc("packets in flight on it")] = None
    data_tx: Annotated[Count | None, Doc("data packets sent on it")] = None
    losses: Annotated[Count | None, Doc("packets found lost on it")] = None
    flaps: Annotated[Count | None, Doc("how often it was given up")] = None
    tx_packets: Annotated[Count | None, Doc("frames that the queue pair sent")] = None
    rx_packets: Annotated[Count | None, Doc("frames that it got")] = None
    retransmitted: Annotated[Count | None, Doc("packets that it sent again")] = None
    outstanding: Annotated[Count | None, Doc("its requests that are not complete")] = None
    rto_firing: Annotated[
        Count | None, Doc("how often in a row its retransmission timer fired")
    ] = None
    last_data_ps: Annotated[Whole | None, Doc("when it sent data last", unit="ps")] = None


class Background(Row, kw_only=True):
    """A flow of background traffic."""

    name: Annotated[str, Doc("its name")]
    tool: Annotated[str, Doc("what made it")] = "iperf3"
    protocol: Annotated[str, Doc("udp or tcp")]
    src: Annotated[Index, Doc("host that sends")]
    dst: Annotated[Index, Doc("host that receives")]
    path: Annotated[str, Doc("the path that it takes")]
    ev: Annotated[Index, Doc("EV of that path")]
    rate_bps: Annotated[Amount | None, Doc("rate of its payload; null: as much as it can")]
    parallel: Annotated[Count | None, Doc("connections")] = None
    congestion: Annotated[str | None, Doc("TCP's congestion control")] = None
    wire_bps: Annotated[Amount | None, Doc("rate on the wire")]
    began_ps: Annotated[Whole | None, Doc("its begin; null: it never began", unit="ps")] = None
    ended_ps: Annotated[Whole | None, Doc("its end", unit="ps")] = None
    cut: Annotated[bool, Doc("whether the end of the run cut it short")] = False


class WatchedPort(Row, kw_only=True):
    """Whether a port kept its rate."""

    port: Annotated[str, Doc("its name")]
    link: Annotated[str, Doc("its cable")]
    rate_bps: Annotated[Amount, Doc("its rate")]
    bytes: Annotated[Count, Doc("bytes carried")] = 0
    excess_bytes: Annotated[Whole, Doc("most that it sent beyond its rate in any stretch")]
    allowed_bytes: Annotated[Whole, Doc("what is allowed of that")]
    busy_ps: Annotated[Count, Doc("time in which it always had something to send", unit="ps")] = 0
    busy_bytes: Annotated[Count, Doc("bytes carried in that time")] = 0
    busy_share: Annotated[
        Number | None, Doc("least share of its rate that it carried in such a stretch")
    ]
    compared: Annotated[Count, Doc("samples of its queue compared with the kernel's")]
    equal: Annotated[Count, Doc("samples that agree to the byte")]
    off_bytes: Annotated[Whole, Doc("largest difference beyond the bytes that may be on the cable")]


class PortsWatched(Row, kw_only=True):
    """The watch on ports."""

    looks: Annotated[Count, Doc("samples taken")] = 0
    frame_bytes: Annotated[Count, Doc("bytes of a full frame")] = 0
    ports: Annotated[list[WatchedPort], Doc("ports that carried anything")] = []


class Process(Row, kw_only=True):
    """What a process used of the machine in the measured part."""

    name: Annotated[str, Doc("its name")]
    wall_cpu_ns: Annotated[Count, Doc("CPU time", unit="ns")]
    wall_delay_ns: Annotated[Count, Doc("time that it waited for a core", unit="ns")]
    turns: Annotated[Count, Doc("how often it got a core")]


class ClockWatched(Row, kw_only=True):
    """The machine's clock."""

    wall_step_ns: Annotated[Number, Doc("largest step", unit="ns")] = 0
    wall_slept_ns: Annotated[Number, Doc("the machine's sleep", unit="ns")] = 0
    drift_ppm: Annotated[Number, Doc("against the hardware's clock", unit="ppm")] = 0
    strangers: Annotated[list[str], Doc("processes in another time namespace")] = []


class Quota(Row, kw_only=True):
    """CPU quotas."""

    cores: Annotated[Number, Doc("cores that they leave")]
    times: Annotated[Count, Doc("how often they stopped the run")]
    wall_ns: Annotated[Count, Doc("for how long in all, wall time", unit="ns")]


class Shares(Row, kw_only=True):
    """Shares of all cores."""

    busy: Annotated[Number, Doc("not idle")]
    own: Annotated[Number, Doc("by this run's processes")]
    others: Annotated[Number, Doc("by other processes")]
    interrupts: Annotated[Number, Doc("by interrupts")]
    steal: Annotated[Number, Doc("stolen by the hypervisor")]


class Clocks(Row, kw_only=True):
    """Clocks of several machines."""

    unsure_ps: Annotated[
        Number, Doc("how sure the machines are of each other's clocks", unit="ps")
    ] = 0
    wall_by_machine_ns: Annotated[
        dict[str, Number], Doc("the same by machine, wall time", unit="ns")
    ] = {}
    wall_moved_ns: Annotated[
        list[Number], Doc("offsets of their clocks at the end, wall time", unit="ns")
    ] = []


class Trunk(Row, kw_only=True):
    """The network between machines."""

    sent_packets: Annotated[Count, Doc("frames sent to other machines")] = 0
    received_packets: Annotated[Count, Doc("frames that arrived from them")] = 0
    merged: Annotated[Count, Doc("frames that arrived merged with others")] = 0
    strays: Annotated[Count, Doc("packets that arrived and were not ours")] = 0


class Machine(Row, kw_only=True):
    """A machine of several."""

    name: Annotated[str, Doc("its name")]
    address: Annotated[str, Doc("its address")] = ""
    kernel: Annotated[str | None, Doc("its kernel")] = None
    cores: Annotated[Count | None, Doc("its cores")] = None


class Watch(Row, kw_only=True):
    """The report of the fidelity watch: scenarios/run/watch.py takes it,
    scenarios/figures/fidelity.py judges it."""

    clock: Annotated[ClockWatched, Doc("the machine's clock")] = msgspec.field(
        default_factory=ClockWatched
    )
    gaps: Annotated[
        list[tuple[Whole, Whole, Whole]],
        Doc("when the runner was stopped: begin and end in ps, and ns of wall time"),
    ] = []
    cores: Annotated[Count, Doc("cores that the run may use")] = 0
    quota: Annotated[Quota | None, Doc("CPU quotas")] = None
    failure: Annotated[str, Doc("why the watch ended early")] = ""
    shaper_late: Annotated[
        Count | None,
        Doc("how often the kernel's log said `htb: too many events!`; null: it cannot be read"),
    ] = None
    ports: Annotated[PortsWatched, Doc("whether ports kept their rate")] = msgspec.field(
        default_factory=PortsWatched
    )
    wall_window_ns: Annotated[
        Count | None, Doc("length of the measured part, wall time", unit="ns")
    ] = None
    pressure: Annotated[Number | None, Doc("the kernel's CPU pressure (PSI) in it")] = None
    processes: Annotated[list[Process], Doc("what processes used in it")] = []
    cpu_shares: Annotated[Shares | None, Doc("what all cores did in it")] = None
    clocks: Annotated[Clocks, Doc("of several machines")] = msgspec.field(default_factory=Clocks)
    trunk: Annotated[Trunk, Doc("of several machines")] = msgspec.field(default_factory=Trunk)
    machines: Annotated[list[Machine], Doc("of several machines: which they are")] = []


class Options(Row, kw_only=True):
    """The options of a transport, as far as figures depend on them."""

    active_evs: Annotated[Count, Doc("EVs that a queue pair uses at most")] = 128


class Record(Counted, kw_only=True, dict=True):
    """The file."""

    key: Annotated[str, Doc("name of the run")] = ""
    world: Annotated[str, Doc("emulated or simulated")] = "emulated"
    transport: Annotated[Name, Doc("name of the transport")]
    options: Annotated[Options, Doc("its options")] = msgspec.field(default_factory=Options)
    qps: Annotated[Count, Doc("queue pairs per pair of ranks")] = 1
    fabric: Annotated[Fabric, Doc("the fabric")]
    placement: Annotated[str, Doc("placement of the ranks")]
    ranks: Annotated[list[Index], Doc("the ranks' hosts")]
    seed: Annotated[Whole, Doc("seed")]
    settings: Annotated[
        dict[str, Setting], Doc("values that the scenario's sweep or `setting` set")
    ] = {}
    workload: Annotated[str, Doc("kind of the workload")]
    message_bytes: Annotated[Count, Doc("size of a message, as nccl-tests counts it")] = 0
    dtype: Annotated[str, Doc("type of its elements")] = ""
    steps: Annotated[Index, Doc("steps to measure")] = 0
    warmup_steps: Annotated[Index, Doc("steps before them")]
    window: Annotated[tuple[Whole, Whole], Doc("begin and end of the workload", unit="ps")]
    t0: Annotated[
        Whole | None, Doc("of flows: the time from which they are planned", unit="ps")
    ] = None
    settle_ps: Annotated[
        Count, Doc("of flows: how long they settle before they are measured", unit="ps")
    ] = 0
    reconvergence_ps: Annotated[
        Count | None, Doc("time after which the network re-routes; null: never", unit="ps")
    ] = None
    controller: Annotated[str, Doc("what the controller does at failures")] = "none"
    clustermapper: Annotated[
        dict[str, Value] | None, Doc("Clustermapper's options; null: without it")
    ] = None
    paths: Annotated[
        dict[Digits, list[PathRow]],
        Doc("paths of each host's queue pairs before the workload began"),
    ] = {}
    flows: Annotated[list[Flow], Doc("the flows")] = []
    flow_notes: Annotated[list[FlowNote], Doc("what their senders report")] = []
    queue_ports: Annotated[
        dict[str, str], Doc("watched ports, and the group of flows of each")
    ] = {}
    jobs: Annotated[list[Job], Doc("the jobs")] = []
    background: Annotated[list[Background], Doc("background flows")] = []
    wrong: Annotated[dict[Digits, Count], Doc("sums or bytes that are wrong, by rank")] = {}
    reason: Annotated[str, Doc("why the run ended so")] = ""
    fault_links: Annotated[list[str], Doc("all cables that faults hit")] = []
    faults_missed: Annotated[list[str], Doc("faults that did not happen, in words")] = []
    dead_at_end: Annotated[list[str], Doc("cables that were down at the end")] = []
    acts_late_ps: Annotated[
        Count, Doc("most that a fault, or a network's reaction, was late", unit="ps")
    ] = 0
    notes: Annotated[list[str], Doc("what else a reader should know")] = []
    cpu: Annotated[
        list[tuple[Whole, Number]], Doc("time in ps, and the share of the cores that was busy")
    ] = []
    wall_wake_delay_max_ns: Annotated[
        Count | None, Doc("latest wake-up of the watch, wall time", unit="ns")
    ] = None
    watch: Annotated[
        Watch | None, Doc("report of the fidelity watch; null in the simulated world")
    ] = None
    machine: Annotated[dict[str, Value] | None, Doc("another machine that carried the run out")] = (
        None
    )

    @property
    def window_ns(self) -> tuple[float, float]:
        return self.window[0] / NS, self.window[1] / NS

    @property
    def t0_ns(self) -> float | None:
        return ns(self.t0)

    @property
    def reconvergence_ns(self) -> float | None:
        return ns(self.reconvergence_ps)

    @cached_property
    def host_paths(self) -> dict[int, list[PathRow]]:
        return {int(host): rows for host, rows in self.paths.items()}


def read_record(path: Path, fix: str = AGAIN) -> Record:
    """Read ``run.json``, whose hosts its fabric must have. Raises :class:`ResultsError`."""
    record = read(path, Record, fix)
    try:
        _check(record, path)
    except (FileError, FabricError) as error:
        raise ResultsError(f"{error}: {fix}") from None
    return record


def _check(record: Record, path: Path) -> None:
    ranks = record.ranks
    hosts = [
        *ranks,
        *record.host_paths,
        *(row.peer for rows in record.paths.values() for row in rows),
    ]
    for key, numbers, most in (
        ("ranks", hosts, record.fabric.host_count),
        ("flows", [end for flow in record.flows for end in (flow.src, flow.dst)], len(ranks)),
        ("jobs", [rank for job in record.jobs for rank in job.ranks], len(ranks)),
    ):
        if max(numbers, default=0) >= most:
            raise FileError(f"damaged: {key} in {path}: there is no {max(numbers)} of {most}")
    for key, rows in (
        ("counters_before", record.counters_before),
        ("counters_after", record.counters_after),
    ):
        for row in rows:
            for name, value in row.items():
                if isinstance(value, str) is not (name in NAMES):
                    raise FileError(f"damaged: {key} in {path}: {name}")
            if "port" not in row:
                raise FileError(f"damaged: {key} in {path}: port is missing")
    if len(set(ranks)) < len(ranks) or not ranks or record.window[0] > record.window[1]:
        raise FileError(f"damaged: {'window' if ranks else 'ranks'} in {path}")
