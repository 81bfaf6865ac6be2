"""``summary.json``: the figures of a scenario's runs, and the checks on them. Within a format keys
are added, never renamed.

Times are of the network, in ns with three decimals; rates in bit/s; sizes in bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from testbed.results.values import (
    UNSET,
    Amount,
    Count,
    HostName,
    Index,
    Name,
    Number,
    Perhaps,
    Positive,
    Row,
    Setting,
    Share,
    Whole,
)  # fmt: skip
from topologies.structs import Doc

Verdict = Literal["ok", "failed", "not trustworthy", "interrupted"]


class Spread(Row, kw_only=True):
    """Nearest-rank percentiles; a percentile q is null below 10 / (1 - q) samples."""

    n: Annotated[Count, Doc("number of samples")]
    p50: Annotated[Number | None, Doc("median")]
    p99: Annotated[Number | None, Doc("99th percentile")]
    p999: Annotated[Number | None, Doc("99.9th percentile")]
    max: Annotated[Number | None, Doc("largest")]


class FabricFigures(Row, kw_only=True):
    """What follows from a fabric, once per fabric of the scenario."""

    nic_rate_bps: Annotated[Positive, Doc("rate of a NIC port")]
    base_rtt_ns: Annotated[
        Positive, Doc("round trip of a full packet across T1 through empty queues")
    ]
    local_rtt_ns: Annotated[Positive, Doc("the same below one T0")]
    haul_rtt_ns: Annotated[Positive | None, Doc("the same between two sites")] = None
    delay_ns: Annotated[Number, Doc("one-way delay that hosts add")]
    plane_bdp_bytes: Annotated[Positive, Doc("bandwidth of a plane times base RTT")]
    buffer_bytes: Annotated[
        Positive, Doc("buffer of a port; of a shared pool as much as one queue alone can reach")
    ]
    pool_bytes: Annotated[
        tuple[Amount, Amount] | None, Doc("bytes that the ports of a T0 share, and those of a T1")
    ] = None
    ecn_bytes: Annotated[
        tuple[Amount, Amount] | None,
        Doc("backlogs from which some, and all packets are marked; null: no ECN"),
    ]
    last_hop_ecn: Annotated[bool, Doc("whether the last hop marks")]
    trim_bytes: Annotated[
        Count | None, Doc("backlog above which packets are trimmed; null: no trimming")
    ]
    trim_last_hop_bytes: Annotated[Count | None, Doc("the same on the last hop")]
    pfc_bytes: Annotated[
        tuple[Amount, Amount] | None,
        Doc("backlogs at which a sender is paused, and goes on; null: no PFC"),
    ]
    payload_share: Annotated[Share, Doc("payload of a full packet over its bytes on the wire")]
    routing: Annotated[str, Doc("who chooses paths: source, ecmp, adaptive")]
    paths_per_pair: Annotated[Count, Doc("paths between two hosts below different T0s")]


class BackgroundPackets(Row, kw_only=True):
    """Frames of background traffic, iperf3's control connection included."""

    sent: Annotated[Whole, Doc("frames that hosts' ports sent")]
    delivered: Annotated[Whole, Doc("frames that hosts' ports received")]
    lost: Annotated[Whole, Doc("sum of `causes`")]
    unexplained: Annotated[Whole, Doc("sent - delivered - lost; a run with any is not trustworthy")]
    causes: Annotated[
        dict[str, Whole],
        Doc(
            "lost frames by cause; those in a flushed queue or a bridge are inferred from what "
            "is missing"
        ),
    ]


class Packets(Row, kw_only=True):
    """The books of a run, in frames; background traffic has an account of its own, but for `marked`
    and `trimmed`."""

    sent: Annotated[
        Count, Doc("frames that agents sent; of `tcp` and `mptcp`, that hosts' ports counted")
    ]
    delivered: Annotated[Whole, Doc("frames that reached an agent, also those that it refused")]
    retransmitted: Annotated[Count, Doc("packets sent again")]
    marked: Annotated[Count | None, Doc("packets that switches marked")]
    trimmed: Annotated[Count | None, Doc("packets that switches trimmed; they arrive")]
    corrupted: Annotated[Whole, Doc("frames that faults changed")]
    lost: Annotated[Whole, Doc("sum of `causes`")]
    on_the_way: Annotated[Whole, Doc("frames in queues or delay lines when the books were closed")]
    unexplained: Annotated[
        Whole | None,
        Doc("sent - delivered - lost - on_the_way; null if counters could not be read"),
    ]
    causes: Annotated[dict[str, Whole], Doc("lost frames by cause")]
    rejected: Annotated[dict[str, Count], Doc("frames that arrived and were refused, by reason")]
    background: Annotated[BackgroundPackets | None, Doc("the account of background traffic")] = None


class Rotation(Row, kw_only=True):
    """How evenly MRC loaded the planes, in packets that were sent for the first time."""

    sent_packets: Annotated[list[Count], Doc("by plane, of all hosts")]
    apart: Annotated[
        Amount | None, Doc("the most less the least of them, as a share of their mean")
    ]
    apart_allowed: Annotated[Amount | None, Doc("what dealing allows of that")]
    host_apart: Annotated[Count, Doc("the most less the least of the worst host, packets")]
    host_allowed: Annotated[Count, Doc("what dealing allows of that")]
    turns_passed: Annotated[Count, Doc("turns of planes that could not take a packet")]
    repeats: Annotated[
        Share | None,
        Doc(
            "share of the packets of hosts with one sending queue pair that left by the plane of "
            "the one before; as many or fewer left by its EV"
        ),
    ] = None


class Hop(Row, kw_only=True):
    """What data packets met at the ports of a hop."""

    marked: Annotated[Count, Doc("packets marked")]
    trimmed: Annotated[Count, Doc("packets trimmed")]
    backlog_mean_bytes: Annotated[Count, Doc("mean backlog that data packets met")]


class Expectations(Row, kw_only=True):
    """What is usual, for a scenario's `expect` with `unusual`."""

    ev_spread: Annotated[
        Amount | None,
        Doc(
            "most less fewest packets over the EVs of a plane, as a share of their mean, largest "
            "of all pairs of hosts and planes with 8 packets per EV"
        ),
    ]
    evs_least: Annotated[
        Count | None, Doc("fewest EVs of a plane that carried packets from one host to another")
    ] = None
    evs_most: Annotated[Count | None, Doc("most of them")] = None
    evs_in_turn: Annotated[
        Share | None,
        Doc(
            "share of these EVs that carried packets in a bin of the log in which the plane sent "
            "1.5 per EV or more, least of all bins: 1 if they take turns"
        ),
    ] = None
    lockstep: Annotated[
        Share | None,
        Doc(
            "share of a host's data packets that left by the plane of the one before, largest of "
            "all hosts with several sending queue pairs: 1 / planes if they are independent"
        ),
    ]
    queue_wait: Annotated[
        dict[str, Amount],
        Doc(
            "in the simulated world, by hop: the backlog that packets met, over what M/D/1 has "
            "at the ports' loads; senders are held back by what they meet, and send in bursts"
        ),
    ]


class Timeouts(Row, kw_only=True):
    """Timers of senders that fired."""

    rto: Annotated[Count, Doc("retransmission timers that fired")]


class Flow(Row, kw_only=True):
    """One flow."""

    group: Annotated[str, Doc("its group")]
    src: Annotated[HostName, Doc("its sender")]
    dst: Annotated[HostName, Doc("its receiver")]
    start_ns: Annotated[Number, Doc("its begin after t0")]
    bytes: Annotated[Count, Doc("payload placed")]
    messages: Annotated[Count, Doc("messages completed")]
    goodput_bps: Annotated[
        Amount | None,
        Doc(
            "payload placed while all flows send; of a number of messages, their bytes over the "
            "time from the begin of the first to the end of the last"
        ),
    ]
    alone_bps: Annotated[
        Amount | None, Doc("goodput while it was the only flow, from 20 base RTTs after its begin")
    ]
    line_bps: Annotated[Amount, Doc("payload that its host's ports can carry with MRC's headers")]
    share: Annotated[Amount | None, Doc("goodput / line")]
    wrong: Annotated[Count, Doc("bytes that arrived wrong")]


class Group(Row, kw_only=True):
    """All flows of a group together, and the last hop that they share, if it was watched."""

    flows: Annotated[Count, Doc("number of flows")]
    goodput_bps: Annotated[
        Amount | None,
        Doc("sum of the flows; of numbers of messages, all bytes from the first to the last"),
    ]
    of_line: Annotated[Amount | None, Doc("that sum per line of a destination")]
    jain: Annotated[Amount | None, Doc("Jain's index of the flows' goodputs")]
    min_share: Annotated[Amount | None, Doc("least share of the flows")]
    max_share: Annotated[Amount | None, Doc("largest share of the flows")]
    kept: Annotated[Amount | None, Doc("least goodput / alone of the flows")]
    message_ns: Annotated[Spread, Doc("times of messages")]
    queue_mean_bytes: Annotated[Perhaps[Amount], Doc("mean queue of the worst plane")] = UNSET
    queue_p99_bytes: Annotated[Perhaps[Count], Doc("99th percentile of the worst plane")] = UNSET
    queue_peak_bytes: Annotated[Perhaps[Count], Doc("peak of the worst plane")] = UNSET
    buffer_bytes: Annotated[Count | None, Doc("buffer of a port")] = None
    trims: Annotated[Count | None, Doc("packets trimmed, all planes")] = None
    marks: Annotated[Count | None, Doc("packets marked, all planes")] = None
    drops: Annotated[Count | None, Doc("packets dropped, all planes")] = None


class Queue(Row, kw_only=True):
    """The data class's backlog at a watched port."""

    group: Annotated[str, Doc("group of flows that it is the last hop of")]
    mean_bytes: Annotated[Amount | None, Doc("mean of the samples while all flows send")]
    p99_bytes: Annotated[Count | None, Doc("their 99th percentile, from 100 samples on")]
    peak_bytes: Annotated[
        Count | None, Doc("largest sample, or the counter's peak if this run raised it higher")
    ]
    buffer_bytes: Annotated[Count, Doc("buffer of the port")]
    trims: Annotated[Count, Doc("packets trimmed")]
    marks: Annotated[Count, Doc("packets marked")]
    drops: Annotated[Count, Doc("packets dropped")]


class Separation(Row, kw_only=True, rename={"from_": "from"}):
    """How a flow left the EVs whose cables a later flow, bound to some EVs, uses. A mark makes a
    sender pass over an EV once, so the share falls to a half at most."""

    flow: Annotated[str, Doc("the earlier flow, which is free to choose")]
    from_: Annotated[str, Doc("the flow that is bound")]
    shared_evs: Annotated[
        list[Index], Doc("EVs of the earlier flow that share a cable between switches")
    ]
    evs: Annotated[Count, Doc("all EVs of the earlier flow")]
    before: Annotated[
        Amount | None, Doc("its packets on those EVs over a fair share, until the bound flow began")
    ]
    after: Annotated[Amount | None, Doc("the same from 40 base RTTs after that")]
    separated_ns: Annotated[
        Number | None,
        Doc("time until that ratio stays below 0.85, over the last 10 base RTTs; null: never"),
    ]
    separated_rtts: Annotated[Number | None, Doc("the same in base RTTs")]


class Job(Row, kw_only=True):
    """One job, in the steps that it made while all jobs ran."""

    ranks: Annotated[Index, Doc("number of ranks")]
    steps: Annotated[Count, Doc("measured steps that all of its ranks finished")]
    step_time_ns: Annotated[Spread, Doc("times of steps, on the slowest rank")]
    typical_step_ns: Annotated[Number | None, Doc("median step")]
    compute_ns: Annotated[Number, Doc("computing in a step")]
    estimate_ns: Annotated[
        Number | None,
        Doc("estimate of a step: each call at theory's rate, and half an RTT for each round"),
    ]
    gpu_lost_ns: Annotated[Number, Doc("the ranks' time in measured steps that was not computing")]
    gpu_lost_share: Annotated[Number | None, Doc("the same as a share of their time")]
    late_ns: Annotated[Number | None, Doc("by how much a rank's own program was late at most")]
    alone_step_ns: Annotated[Number | None, Doc("median step where the job ran alone before")]
    slowdown: Annotated[Amount | None, Doc("typical step over that alone")]
    losses: Annotated[
        list[Number] | None,
        Doc("of a job that trains: the ranks' mean loss by step, from the first to warm up"),
    ] = None
    digests: Annotated[
        list[str] | None,
        Doc("SHA-256 of the ranks' parameters at the end: more than one counts as `wrong`"),
    ] = None


class Tier(Row, kw_only=True):
    """Ports of a tier that a switch behind them may pause."""

    ports: Annotated[Count, Doc("number of ports")]
    paused: Annotated[Count, Doc("ports that were paused")]
    pauses: Annotated[Count, Doc("number of pauses")]
    paused_ns: Annotated[Number, Doc("time paused, over all ports")]


class Reaction(Row, kw_only=True):
    """Time from the frame that crossed XOFF until the port's queue was changed, in ns."""

    mean: Annotated[Number, Doc("mean", unit="ns")]
    longest: Annotated[Number, Doc("longest", unit="ns")]
    effect: Annotated[Number, Doc("when the last frame must have left", unit="ns")]


class Pauses(Row, kw_only=True):
    """Pauses by PFC."""

    pauses: Annotated[Count, Doc("number of pauses of all ports")]
    paused_ns: Annotated[Number, Doc("time paused, over all ports")]
    longest_pause_ns: Annotated[Number, Doc("longest pause")]
    tiers: Annotated[
        dict[str, Tier], Doc("by tier: NIC ports (nic), T0 uplinks (up), T1 downlinks (down)")
    ]
    reaction_ns: Annotated[Reaction | None, Doc("how soon ports stopped; emulated world only")] = (
        None
    )


class Dcqcn(Row, kw_only=True):
    """Whether DCQCN's rates were level: each within 10 % of its mean over two windows of 1 ms."""

    settled_ns: Annotated[
        Number | None,
        Doc(
            "after the first packet, when they first were; null: not within 10 ms, or not in "
            "this run"
        ),
    ]
    waited_ns: Annotated[Number, Doc("after the first packet, when measuring began")]
    level: Annotated[bool, Doc("whether they were level when measuring began")]


class Background(Row, kw_only=True):
    """One background flow, as iperf3 reports it; what it did not report is null, and a note of the
    run says why."""

    name: Annotated[str, Doc("its name")]
    protocol: Annotated[str, Doc("udp or tcp")]
    src: Annotated[str, Doc("its sender")]
    dst: Annotated[str, Doc("its receiver")]
    path: Annotated[str, Doc("the path that it takes")]
    sent_bps: Annotated[
        Amount | None,
        Doc(
            "payload that the client sent, over its seconds; of TCP with what still lay in its "
            "buffer"
        ),
    ]
    received_bps: Annotated[
        Amount | None, Doc("payload that the server received, over the same time")
    ]
    lost_percent: Annotated[Number | None, Doc("of UDP: sent less received")]
    jitter_ms: Annotated[Number | None, Doc("of UDP: jitter, of wall time", unit="ms")]
    retransmits: Annotated[Count | None, Doc("of TCP: segments sent again")]
    seconds: Annotated[Number | None, Doc("wall time that the client sent", unit="s")]
    rate_bps: Annotated[Amount | None, Doc("rate that was asked for; null: as fast as it can")]


class Failover(Row, kw_only=True):
    """One fault, and how senders left the paths that it cut. An *outage* is a stretch of time in
    which something was broken; it *hits* the paths whose packets it drops."""

    fault: Annotated[str, Doc("the fault's name")]
    kind: Annotated[str, Doc("its kind")]
    on: Annotated[str, Doc("what it is on")]
    links: Annotated[list[str], Doc("cables that it takes down or affects")]
    to: Annotated[str, Doc("of destination-loss: the host")]
    probability: Annotated[Share, Doc("probability with which it drops a packet")]
    direction: Annotated[str, Doc("up, down or both")]
    at_ns: Annotated[Number, Doc("its begin")]
    after_ns: Annotated[
        Number | None, Doc("its begin after that of the first measured step or flow")
    ] = None
    healed_ns: Annotated[Number | None, Doc("its end; null: it lasted to the end")]
    outages_ns: Annotated[list[tuple[Number, Number | None]], Doc("begin and end of each outage")]
    last_on_dead_path_ns: Annotated[
        Number | None, Doc("when the last data packet left on a path that it had cut")
    ]
    detected_ns: Annotated[Number | None, Doc("when the last sender gave such a path up")]
    lost: Annotated[Count, Doc("verdicts of loss on those paths")]
    delivered_ns: Annotated[
        Number | None,
        Doc("when MRC's senders knew that all of these packets had arrived; null if one never did"),
    ]
    cost_ns: Annotated[
        Number | None,
        Doc("by how much the slowest step after its begin exceeds the median step before it"),
    ]
    left_queue_pairs: Annotated[
        Count, Doc("queue pairs with a packet on a path that it cut; 0: nobody used the paths")
    ]
    srtt_ns: Annotated[Number | None, Doc("their median smoothed RTT before it")]
    rotation_ns: Annotated[
        Number | None, Doc("their longest rotation: EVs in use times the mean time between packets")
    ]
    last_on_dead_rtts: Annotated[
        Number | None,
        Doc(
            "longest time from an outage under traffic to a sender's last data packet on a path "
            "that it cut, over its last smoothed RTT before, else that of its first verdict, "
            "else the base RTT"
        ),
    ]
    last_on_dead_over_rotation: Annotated[
        Number | None,
        Doc(
            "the same less one rotation: the EVs in use times the mean time between the sender's "
            "packets (median over its last ten busy bins). If its first packet there left later "
            "than a rotation after the outage began, its time counts from a rotation before that "
            "packet [ours]"
        ),
    ]
    losses_per_ev: Annotated[
        Count | None, Doc("most data packets found lost on one EV in one outage")
    ]
    losses_per_ev_bound: Annotated[
        Count | None,
        Doc(
            "what the window allows there: ceil(window / EVs) + 1; EVs in use at the first "
            "verdict, largest window from the outage until then, in full packets (MRC: payload "
            "and 88 bytes; RoCE: frames)"
        ),
    ]
    ev_loss_excess: Annotated[Whole | None, Doc("most losses on one EV beyond their bound")]
    kept_during: Annotated[
        Amount | None,
        Doc(
            "of flows that it hits, the least goodput from 20 base RTTs after its begin to its "
            "end, over the goodput before the first fault"
        ),
    ]
    kept_late: Annotated[Amount | None, Doc("the same in its second half")]
    kept_after: Annotated[Amount | None, Doc("the same from 20 base RTTs after its end")]


class DeadAtStart(Row, kw_only=True):
    """Paths between sending hosts that were dead before traffic began."""

    evs: Annotated[Count, Doc("how many")]
    found: Annotated[Count, Doc("how many were given up")]
    missed: Annotated[Count, Doc("how many never were")]
    found_ns: Annotated[
        Number | None, Doc("how long the slowest took, from the begin of its own sender")
    ]
    lost: Annotated[Count, Doc("verdicts of loss on them")] = 0
    lost_again: Annotated[
        Count, Doc("those on packets that left after their queue pair had given the path up")
    ] = 0
    ev_loss_excess: Annotated[
        Whole | None,
        Doc("most losses of a queue pair on one of them beyond ceil(window / EVs) + 1"),
    ] = None


class Killed(Row, kw_only=True):
    """A process of the testbed that a fault killed."""

    on: Annotated[str, Doc("what was killed")]
    rank: Annotated[Index | None, Doc("its rank; null: the controller")]
    ended_ns: Annotated[Number, Doc("time until the run ended")]
    named: Annotated[bool, Doc("whether the run's reason names the rank")]


class Pool(Row, kw_only=True):
    """All times at which theory leaves one capacity, without the 20 base RTTs after each loss of
    capacity and the 60 after each return. Parts shorter than 20 are left out, too, and slow and
    straggler faults, which theory does not cover [ours]."""

    broken: Annotated[bool, Doc("whether something was dead")]
    ns: Annotated[Number, Doc("how long in all", unit="ns")]
    busbw_bps: Annotated[Number, Doc("payload that arrived per rank and time")]
    theory_bps: Annotated[
        Number,
        Doc("bus bandwidth that theory leaves: planes equally loaded, without the dead cables"),
    ]
    share: Annotated[Number, Doc("the quotient of the two")]


class PortPhase(Row, kw_only=True):
    """A stretch of 40 base RTTs or more between two changes of a host's NIC ports, for one
    direction."""

    host: Annotated[HostName, Doc("the host")]
    direction: Annotated[str, Doc("sent or received")]
    phase: Annotated[str, Doc("down: it begins with the loss of a port; up: with a return")]
    planes: Annotated[list[Index], Doc("the ports that changed at its begin")]
    at_ns: Annotated[Number, Doc("its begin")]
    until_ns: Annotated[Number, Doc("its end")]
    live: Annotated[Index, Doc("live ports")]
    expected: Annotated[
        Number, Doc("live / planes, less the SACKs of flows in the other direction")
    ]
    share: Annotated[
        Number | None, Doc("goodput over the host's line, from 20 base RTTs after the change")
    ]
    error: Annotated[Number | None, Doc("abs(share / expected - 1)")]
    settled_rtts: Annotated[
        Number | None,
        Doc(
            "base RTTs to the first window of 20 base RTTs within 3 % of what is expected, if "
            "the mean from there on is, too"
        ),
    ]


class PlaneLoad(Row, kw_only=True):
    """First transmissions per plane over the phases with some port down, from 20 base RTTs after
    each change."""

    host: Annotated[str, Doc("the host whose ports changed")]
    sender: Annotated[str, Doc("itself, or a host that sends to it alone")]
    packets: Annotated[list[Amount], Doc("by plane")]
    equal: Annotated[list[Amount], Doc("an equal share on each plane that was up")]
    deviation: Annotated[
        Amount | None,
        Doc("largest deviation of a plane whose equal share is 1,000 packets or more"),
    ]


class Flaps(Row, kw_only=True):
    """EVs that were given up for the n-th time under a fault that hits them."""

    number: Annotated[Index, Doc("which time")]
    n: Annotated[Count, Doc("how many EVs")]
    back: Annotated[Count, Doc("how many returned")]
    out_ns: Annotated[Number | None, Doc("median time out of use")]
    after_mending_ns: Annotated[Number | None, Doc("median of its part after the outage")]


class LossyPath(Row, kw_only=True):
    """A path that carries data, under a `path-loss` fault."""

    fault: Annotated[str, Doc("the fault's name")]
    host: Annotated[HostName, Doc("the sender")]
    peer: Annotated[HostName, Doc("the receiver")]
    ev: Annotated[Index, Doc("the path's EV")]
    plane: Annotated[Index, Doc("its plane")]
    losses: Annotated[Count, Doc("packets found lost")]
    losses_before_inactive: Annotated[Count, Doc("how many of them before the EV was given up")]
    first_loss_ns: Annotated[Number | None, Doc("when the first was found")]
    inactive_ns: Annotated[Number | None, Doc("when the EV became ASSUMED_BAD")]
    used_after_loss_ns: Annotated[
        Number | None, Doc("from the finding of the first loss to the last data packet on the path")
    ]
    replaced_by: Annotated[
        list[Index],
        Doc("EVs that had carried nothing, and carried packets within 20 base RTTs after"),
    ]
    other_plane: Annotated[Count, Doc("how many of those are of another plane")]


class Cost(Row, kw_only=True):
    """What failures cost a run: of a collective or the first job in steps, of flows in bytes. A key
    of the other form is missing."""

    steps: Annotated[
        Count | None, Doc("steps that ended, up to the first that some rank did not finish")
    ] = None
    flows: Annotated[
        Count | None, Doc("flows that end at a fixed time and have a path that some outage hits")
    ] = None
    finished: Annotated[bool, Doc("whether the run ended well, and made all steps")]
    healthy_from: Annotated[
        Perhaps[Literal["before", "after"]],
        Doc("whether healthy steps are of before the outages, or after"),
    ] = UNSET
    healthy_steps: Annotated[Count | None, Doc("number of healthy steps")] = None
    healthy_step_ns: Annotated[Perhaps[Number], Doc("their median")] = UNSET
    healthy_bps: Annotated[Amount | None, Doc("goodput of these flows before the first outage")] = (
        None
    )
    undelivered_bytes: Annotated[
        Whole | None,
        Doc("bytes that they would have delivered since at that goodput, less those that they did"),
    ] = None
    extra_ns: Annotated[
        Number | None,
        Doc(
            "time from the last step before the outage to the end, less as many healthy steps "
            "(null with fewer than 5 of them); of flows, `undelivered_bytes` at their goodput "
            "before"
        ),
    ]
    extra_steps: Annotated[Perhaps[Number], Doc("the same in healthy steps")] = UNSET
    extra_rtts: Annotated[Number | None, Doc("the same in base RTTs")]
    extra_percent: Annotated[
        Number | None,
        Doc("the same as a share of the job's healthy steps, or of the time since the outage"),
    ]
    noise_ns: Annotated[
        Number | None, Doc("how much of that an uneven pace explains: no gain is ever larger")
    ]
    noise_share: Annotated[
        Number | None,
        Doc(
            "largest deviation of a healthy step, or of a fifth of the time before, from the "
            "median or mean"
        ),
    ]
    slowdown: Annotated[Perhaps[Amount], Doc("slowest step since the outage, in healthy steps")] = (
        UNSET
    )
    goodput_kept: Annotated[
        Amount | None,
        Doc(
            "payload that arrived while something was broken, over what arrives healthy in that "
            "time"
        ),
    ]
    before_bps: Annotated[
        Amount | None,
        Doc(
            "payload per receiving host and time: in the healthy steps before the first outage; "
            "of these flows, from when all send"
        ),
    ] = None
    during_bps: Annotated[Amount | None, Doc("the same while something was broken")] = None
    after_bps: Annotated[
        Amount | None,
        Doc(
            "the same in the steps after that of the last repair; of flows, since that repair; "
            "null if none was left, or less than 20 base RTTs"
        ),
    ] = None
    worst_step_ns: Annotated[Perhaps[Number], Doc("slowest measured step")] = UNSET
    back_ns: Annotated[
        Perhaps[Number],
        Doc(
            "from the first outage until the slowest flow had 90 % of what theory left it, over "
            "20 base RTTs; null: one never had"
        ),
    ] = UNSET
    back_rtts: Annotated[Perhaps[Number], Doc("the same in base RTTs")] = UNSET
    ideal_extra_ns: Annotated[
        Number | None,
        Doc("the extra time if throughput fell in proportion to the fabric's capacity"),
    ]
    unknown: Annotated[Perhaps[str], Doc("why there is no `extra_ns`")] = UNSET


class MapperFault(Row, kw_only=True):
    """A fault with links, and when Clustermapper knew of it; times from its begin."""

    fault: Annotated[str, Doc("the fault's name")]
    on: Annotated[str, Doc("what it is on")]
    named: Annotated[bool, Doc("whether one of its links was named")]
    states: Annotated[list[str], Doc("what was said of them")]
    named_ns: Annotated[Number | None, Doc("when the first was named")]
    denied_ns: Annotated[Number | None, Doc("when the first was denied")]
    clear_ns: Annotated[Number | None, Doc("when the first was found clear")]
    allowed_ns: Annotated[Number | None, Doc("when the first was allowed again")]


class Mapper(Row, kw_only=True):
    """What Clustermapper found, beside what was broken."""

    faults: Annotated[list[MapperFault], Doc("a row per fault")]
    right: Annotated[Count, Doc("verdicts whose links a fault hit at that time")]
    wrong: Annotated[Count, Doc("verdicts whose links none hit")]
    denials: Annotated[Count, Doc("entries written to the denylist")]
    denied_at_start: Annotated[Count, Doc("how many before the workload began")]
    kept: Annotated[Count, Doc("entries that were kept although they were clear")]


class Cpu(Row, kw_only=True):
    """Percent of one core in the measured part."""

    agents_percent: Annotated[Number | None, Doc("all agents together")]
    agent_max_percent: Annotated[Number | None, Doc("the busiest agent process")]
    controller_percent: Annotated[Perhaps[Number], Doc("the controller")] = UNSET
    runner_percent: Annotated[Perhaps[Number], Doc("the runner")] = UNSET
    pauser_percent: Annotated[Perhaps[Number], Doc("under PFC, the pauser")] = UNSET
    cores: Annotated[int, Doc("cores that the run may use")]
    machine_shares: Annotated[
        dict[str, Number] | None,
        Doc(
            "of all cores: busy, and of that this run's processes (own), interrupts, steal, others"
        ),
    ]


class Waiting(Row, kw_only=True):
    """How long agents waited for a core."""

    pressure: Annotated[Number | None, Doc("the kernel's CPU pressure (PSI) in the measured part")]
    agent_max_percent: Annotated[
        Number | None, Doc("most of the window that an agent waited, percent")
    ]
    wall_mean_max_ns: Annotated[
        Number | None, Doc("longest mean wait of an agent per turn, wall time")
    ]


class Quota(Row, kw_only=True):
    """A CPU quota (cgroup) that stopped the run."""

    cores: Annotated[Number, Doc("cores that it allows")]
    times: Annotated[Count, Doc("how often it stopped the run")]
    wall_ns: Annotated[Number, Doc("for how long in all, wall time")]


class PortsWatched(Row, kw_only=True):
    """Whether ports kept their rate."""

    watched: Annotated[Count, Doc("ports that carried anything")]
    busy: Annotated[Count, Doc("ports with a stretch in which they always had something to send")]
    busy_least_share: Annotated[
        Number | None, Doc("least share of its rate that a port carried in such a stretch")
    ]
    excess_bytes: Annotated[
        Number | None, Doc("most that a port sent beyond its rate in any stretch")
    ]


class QueuesWatched(Row, kw_only=True):
    """Whether counted queues agree with the kernel's own."""

    compared: Annotated[Count, Doc("samples")]
    equal: Annotated[Count, Doc("samples that agree to the byte with nothing moving meanwhile")]
    off_bytes: Annotated[
        Number | None, Doc("largest difference beyond the bytes that may be on the cable")
    ]


class ClockWatched(Row, kw_only=True):
    """Whether the machine's clock ran evenly."""

    wall_step_ns: Annotated[Number, Doc("largest step")]
    wall_slept_ns: Annotated[Number, Doc("the machine's sleep")]
    drift_ppm: Annotated[Number, Doc("against the hardware's clock", unit="ppm")]


class Fidelity(Row, kw_only=True):
    """Whether the figures can be trusted (docs/why/fidelity.md has the thresholds). The
    measurements are of emulated runs only."""

    verdict: Annotated[Literal["trustworthy", "doubtful", "invalid"], Doc("the verdict")]
    invalid: Annotated[list[str], Doc("what cannot be right, in words")]
    doubtful: Annotated[list[str], Doc("why figures may be those of the machine, in words")]
    too_slow: Annotated[
        bool,
        Doc("one reason is that the machine was too slow: a run at more dilation may be better"),
    ]
    cpu: Annotated[Cpu | None, Doc("load by this run's processes")] = None
    waiting: Annotated[Waiting | None, Doc("how long agents waited for a core")] = None
    lag_mean_ns: Annotated[
        Perhaps[Number], Doc("expected lateness of the latest agent, over the run")
    ] = UNSET
    lag_window_ns: Annotated[Perhaps[Number], Doc("the same in its worst window")] = UNSET
    lag_p99_ns: Annotated[Perhaps[Number], Doc("99th percentile of an agent's lateness")] = UNSET
    lag_max_ns: Annotated[Perhaps[Number], Doc("most that an agent was late")] = UNSET
    quota: Annotated[Perhaps[Quota], Doc("a CPU quota that stopped the run; null: none")] = UNSET
    socket_drops: Annotated[Count | None, Doc("frames that receive sockets dropped")] = None
    ports: Annotated[PortsWatched | None, Doc("whether ports kept their rate")] = None
    queues: Annotated[
        QueuesWatched | None, Doc("whether counted queues agree with the kernel's")
    ] = None
    clock: Annotated[ClockWatched | None, Doc("whether the clock ran evenly")] = None
    wall_suspended_ns: Annotated[Number | None, Doc("how long the runner was stopped")] = None
    shaper_late: Annotated[
        Perhaps[Count],
        Doc("how often the kernel's log said `htb: too many events!`; null: it cannot be read"),
    ] = UNSET


class Run(Row, kw_only=True):
    """A run: its variables, then its figures."""

    world: Annotated[str, Doc("emulated or simulated")]
    transport: Annotated[Name, Doc("name of the transport")]
    kind: Annotated[str, Doc("its kind")]
    fabric: Annotated[Name, Doc("name of the fabric")]
    workload: Annotated[str, Doc("kind of the workload")]
    placement: Annotated[Name, Doc("placement of the ranks")]
    seed: Annotated[Whole, Doc("seed")]
    settings: Annotated[
        dict[str, Setting], Doc("values that the scenario's sweep or `setting` set")
    ]
    ranks: Annotated[Index, Doc("number of ranks")]
    message_bytes: Annotated[Count, Doc("size of a message, as nccl-tests counts it")]
    wrong: Annotated[Count, Doc("sums or bytes that are wrong")]
    steps: Annotated[Count, Doc("measured steps that all ranks finished")]
    failed_steps: Annotated[Whole, Doc("measured steps that not all ranks finished")]
    step_time_ns: Annotated[Spread, Doc("times of steps, on the slowest rank")]
    transfer_time_ns: Annotated[
        Spread,
        Doc(
            "times of transfers: a slice that a rank sent another in a measured step, from its "
            "posting until the receiver's program has all of it; they are not independent"
        ),
    ]
    typical_step_ns: Annotated[Number | None, Doc("median step")]
    algbw_bps: Annotated[
        Amount | None,
        Doc("size over the mean time of a step over ranks and steps, as nccl-tests has it"),
    ]
    busbw_bps: Annotated[
        Amount | None,
        Doc(
            "algbw times 2(n-1)/n of all-reduces, (n-1)/n of reduce-scatter, all-gather and "
            "all-to-all, 1 of send-recv"
        ),
    ]
    ideal_busbw_bps: Annotated[
        Positive | None,
        Doc(
            "payload that healthy links can carry with planes equally loaded, from a linear "
            "programme over the traffic matrix; SACKs (about 1 %) are not subtracted"
        ),
    ]
    degraded_busbw_bps: Annotated[
        Amount | None, Doc("the same without the cables that the scenario breaks")
    ]
    ideal_step_ns: Annotated[Positive | None, Doc("a step at `ideal_busbw_bps`")]
    degraded_step_ns: Annotated[Number | None, Doc("a step at `degraded_busbw_bps`")]
    base_rtt_ns: Annotated[Positive, Doc("base RTT of the fabric")]
    haul_rtt_ns: Annotated[Positive | None, Doc("base RTT between two sites")] = None
    reconvergence_ns: Annotated[
        Number | None,
        Doc("time after which the network re-routes around a dead cable; null: never"),
    ]
    controller: Annotated[str, Doc("what the controller does at failures")]
    delayed: Annotated[
        bool | None, Doc("of the kernel's transports: whether they had the delay of the fabric")
    ] = None
    packets: Annotated[Packets, Doc("the books")]
    rotation: Annotated[
        Rotation | None, Doc("how evenly planes were loaded; null where planes do not take turns")
    ]
    hops: Annotated[dict[str, Hop], Doc("by hop: host, t0_up, t1_across, t1_down, last_hop")]
    expectations: Annotated[Expectations, Doc("what is usual")]
    broken: Annotated[
        list[str], Doc("books that the run broke, a line each; a run with one has failed")
    ]
    timeouts: Annotated[Timeouts, Doc("timers that fired")]
    untrimmed_loss: Annotated[
        Count, Doc("verdicts of loss on packets that had left their host and were not trimmed")
    ]
    t0_ns: Annotated[Perhaps[Number], Doc("of flows: the time from which they are planned")] = UNSET
    all_on_ns: Annotated[
        Perhaps[tuple[Number, Number]],
        Doc("of flows: from 20 base RTTs after the last began to the earliest end"),
    ] = UNSET
    flows: Annotated[dict[str, Flow], Doc("flows by name")] = {}
    groups: Annotated[
        dict[str, Group], Doc("groups of flows by name: incast and victim, permutation, flows")
    ] = {}
    queues: Annotated[dict[str, Queue] | None, Doc("watched last hops by port")] = None
    separations: Annotated[
        list[Separation] | None, Doc("how flows left the EVs of a bound flow")
    ] = None
    machine: Annotated[Any, Doc("another machine that carried the run out: its cpu and kernel")] = (
        None
    )
    jobs: Annotated[
        dict[Name, Job],
        Doc(
            "jobs by name; the run's own steps, and what a failure cost it, are those of the first"
        ),
    ] = {}
    pfc: Annotated[Pauses | None, Doc("pauses, with `pfc = true`")] = None
    dcqcn: Annotated[Dcqcn | None, Doc("whether DCQCN's rates were level, where any was cut")] = (
        None
    )
    pool_peak_share: Annotated[Share | None, Doc("largest part of its pool that a switch held")] = (
        None
    )
    background: Annotated[list[Background], Doc("background flows")] = []
    background_sent_share: Annotated[
        Perhaps[Amount], Doc("least `sent_bps / rate_bps` of background flows with a rate")
    ] = UNSET
    beside_background_busbw_bps: Annotated[
        Perhaps[Amount],
        Doc(
            "bus bandwidth that theory leaves while every background flow has its "
            "rate; null if one has none"
        ),
    ] = UNSET
    failovers: Annotated[list[Failover], Doc("a row per fault")]
    last_on_dead_rtts: Annotated[
        Number | None, Doc("worst of all faults; null if that of one is unknown")
    ]
    last_on_dead_over_rotation: Annotated[Number | None, Doc("worst of all faults")]
    ev_loss_excess: Annotated[Whole | None, Doc("worst of all faults")]
    kept_during: Annotated[Amount | None, Doc("least of all faults")]
    kept_late: Annotated[Amount | None, Doc("least of all faults")]
    kept_after: Annotated[Amount | None, Doc("least of all faults")]
    bad_verdicts: Annotated[Count, Doc("how often an EV became ASSUMED_BAD, but from DENIED")]
    false_bad: Annotated[
        Count,
        Doc(
            "verdicts that no fault explains: none hit the path then, up to 4 base RTTs earlier, "
            "or when the lost packet was sent"
        ),
    ]
    false_bad_evs: Annotated[Count, Doc("EVs with such a verdict")]
    false_bad_causes: Annotated[dict[str, Count], Doc("such verdicts by reason")]
    nacks_lost: Annotated[
        Whole | None,
        Doc(
            "NACKs that agents sent and none received: a good path may be given up for each; "
            "null without MRC"
        ),
    ]
    qp_errors: Annotated[Count, Doc("queue pairs that went to ERROR")]
    dead_at_start: Annotated[DeadAtStart, Doc("paths that were dead before traffic began")]
    killed: Annotated[list[Killed], Doc("processes that faults killed")]
    outside_busbw: Annotated[
        list[Pool] | None, Doc("of collectives: bus bandwidth reached, by what theory leaves")
    ] = None
    outside_busbw_share: Annotated[Perhaps[Number], Doc("least share with something dead")] = UNSET
    whole_busbw_share: Annotated[Perhaps[Number], Doc("least share with everything up")] = UNSET
    step_p99_over_theory: Annotated[
        Perhaps[Number],
        Doc(
            "time of a step over that at the least capacity while it ran: 99th percentile "
            "from 1,000 steps on, else the largest"
        ),
    ] = UNSET
    ports: Annotated[list[PortPhase], Doc("of flows: goodput after changes of NIC ports")] = []
    port_down_error: Annotated[
        Perhaps[Number], Doc("worst error of phases that begin with the loss of a port")
    ] = UNSET
    port_down_rtts: Annotated[Perhaps[Number], Doc("their longest `settled_rtts`")] = UNSET
    port_back_error: Annotated[
        Perhaps[Number], Doc("worst error of phases that begin with a return")
    ] = UNSET
    port_back_rtts: Annotated[Perhaps[Number], Doc("their longest `settled_rtts`")] = UNSET
    plane_loads: Annotated[
        list[PlaneLoad] | None, Doc("first transmissions per plane with some port down")
    ] = None
    plane_deviation: Annotated[Perhaps[Number], Doc("largest deviation of a plane")] = UNSET
    flaps: Annotated[
        list[Flaps],
        Doc("times out of use of EVs that were given up for the first time, the second, and so on"),
    ]
    flap_growth: Annotated[
        Number | None,
        Doc(
            "how much longer EVs stay out each time, each compared with itself: least median of "
            "the ratios among entries in which half of the EVs returned"
        ),
    ]
    lossy_paths: Annotated[list[LossyPath] | None, Doc("of flows: paths under `path-loss`")] = None
    failure_cost: Annotated[Cost | None, Doc("what failures cost; null if nothing broke")]
    mapper: Annotated[Mapper | None, Doc("what Clustermapper found; null without it")]
    faults_missed: Annotated[list[str], Doc("faults that did not happen, in words")]
    cpu_percent: Annotated[
        Number | None, Doc("load of the cores that the run may use, in the measured part")
    ]
    measured_ns: Annotated[Amount, Doc("length of the measured part")]
    outcome: Annotated[str, Doc("done, or how the run ended")]
    reason: Annotated[str | None, Doc("why it ended so")]
    distrust: Annotated[list[str], Doc("why the run is not trustworthy")]
    fidelity: Annotated[Fidelity, Doc("whether the figures can be trusted")]
    notes: Annotated[list[str], Doc("what else a reader should know")]
    run: Annotated[Name, Doc("name of the run, and of its directory below raw/")]
    verdict: Annotated[Verdict, Doc("ok, failed, not trustworthy, or interrupted")]


class Format(Row, kw_only=True):
    """What every file of results of every version has."""

    format: Annotated[Whole, Doc("format of the directory")] = 0


class Check(Row, kw_only=True):
    """A check on runs."""

    name: Annotated[str, Doc("what is checked, and on which runs")]
    expected: Annotated[str, Doc("what must hold")]
    unit: Annotated[str | None, Doc("ns, of a check on a time")] = None
    seen: Annotated[Any, Doc("the value; if the check does not apply, why")]
    ok: Annotated[bool | None, Doc("whether it holds; null: it does not apply")]
    unusual: Annotated[
        bool | None, Doc("a check that does not hold leaves the verdict as it is")
    ] = None


class Summary(Format, kw_only=True):
    """The file."""

    scenario: Annotated[Name, Doc("name of the scenario")]
    verdict: Annotated[Verdict, Doc("the worst of the runs and checks")]
    checks: Annotated[list[Check], Doc("checks of the scenario")]
    fabrics: Annotated[dict[Name, FabricFigures], Doc("what follows from each fabric")]
    runs: Annotated[list[Run], Doc("the runs")]
    stopped_by: Annotated[str | None, Doc("what stopped the set of runs before its end")] = None
