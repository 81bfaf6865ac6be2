"""What the paper claims, claim by claim: its figures in our words, each claim once, under a number of ours.

*Resilient AI Supercomputer Networking using MRC and SRv6* (arXiv 2605.04333). Figures in the texts are the paper's. The modules of figures
hold the evidence, as statements under these numbers; a claim without evidence says here why this testbed cannot give any.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperClaim:
    """``source``: section or figure of the paper. ``refused``: why nothing here can judge it; "" if something does."""

    number: int
    source: str
    text: str
    refused: str = ""


CLAIMS: tuple[PaperClaim, ...] = (
    PaperClaim(
        1, "section 2",
        "A switch of 51.2 Tb/s with 64 ports of 800 Gb/s makes three tiers for 64K NICs; with 512 ports of 100 Gb/s it makes two tiers "
        "of eight planes for 131,072 NICs.",
    ),
    PaperClaim(
        2, "section 2",
        "The longest path has 3 switches instead of 5 or 7; 256 nodes are one hop away instead of 32; 2/3 of the optics and 3/5 of the "
        "switches do at full bisection.",
    ),
    PaperClaim(
        3, "section 2",
        "A lost T0-T1 link takes 3 % of a node's capacity in a plane of 800 Gb/s ports and 0.4 % with ports of 100 Gb/s; a lost NIC-T0 "
        "link takes about 12 % of the NIC.",
    ),
    PaperClaim(
        4, "section 2.1",
        "An EV has 32 bits, in the UDP source port and the flow label; a queue pair has 128 to 256, equally many in each plane, and "
        "uses another for each packet, with no coordination between senders.",
        "a matter of the wire format and of configuration, not of a result: docs/protocol.md says which of it is as published; the "
        "tests of the wire format and of rotation hold it",
    ),
    PaperClaim(
        5, "section 2.1",
        "MRC runs without PFC, has WRITE and WRITE with immediate only, every data packet says where its payload belongs, SACKs say "
        "exactly what arrived, and trimming lets loss to congestion be told from other loss.",
    ),
    PaperClaim(
        6, "section 2.1",
        "Switches mark ECN except on the last hop, and a mark means that a path is avoided for now.",
    ),
    PaperClaim(
        7, "section 2.1",
        "An EV that loses an untrimmed packet is out of use at once; a backup of the same plane replaces it, and background probes "
        "bring it back after enough successes. Failures are bypassed within a few tens of microseconds.",
    ),
    PaperClaim(
        8, "section 2.1",
        "Dynamic routing is off: it would act after MRC and disturb its balance. MRC also runs over statically configured ECMP, which "
        "hashes the EV, at the price of knowing no path by name.",
    ),
    PaperClaim(
        9, "section 2.4",
        "Before a job starts all NIC ports of its nodes are checked, and a denylist keeps links known to be bad out.",
    ),
    PaperClaim(
        10, "section 2.4, figure 4",
        "When a job of 75K GPUs starts without a denylist, losses fall below one a second and NIC (1 packet in 25 million at 800 Gb/s) "
        "within two minutes, and fewer than 5 packets per queue pair are lost even in the first minute.",
    ),
    PaperClaim(
        11, "section 2.4",
        "Answers take a small set of reverse EVs, at least one per plane; while traffic only comes in, one EV is probed each RTT, and "
        "an answered probe replaces its plane's reverse EV.",
        "a rule of the endpoint without a figure of its own: docs/protocol.md has it, tests/agents/mrc/receiver hold it",
    ),
    PaperClaim(
        12, "section 3, figure 5",
        "Up to a dozen T0-T1 flaps a minute are left in service: a flap costs a queue pair very few packets, and the job next to "
        "nothing. Links stay in service while they are repaired, also when the technician disturbs their neighbours.",
    ),
    PaperClaim(
        13, "section 3",
        "MRC leaves switches that stop forwarding with their links up; a T1 is rebooted without drain and without coordination with "
        "jobs.",
    ),
    PaperClaim(
        14, "section 3",
        "A NIC sees that its port is down and remaps; a port bitmap in SACKs tells its peers. In the CX8 this takes a few seconds in "
        "all; the job then has one plane fewer, and may lose much less than the capacity that is gone.",
    ),
    PaperClaim(
        15, "section 3",
        "Clustermapper probes every link every millisecond, source-routed to the T0 and back and to T1s and back; which probes come "
        "back says where the fault is.",
    ),
    PaperClaim(
        16, "section 4",
        "Planes are loaded exactly equally, so that next to single-path traffic MRC is held to its most congested plane; many lost "
        "T0-T1 links of one plane make it the bottleneck.",
    ),
    PaperClaim(
        17, "section 4",
        "MRC cannot rebalance away from a NIC-T0 link that is up and lossy, as it cannot tell its own end from the far one; "
        "Clustermapper can, and an entry in the denylist follows as a decision of policy.",
    ),
    PaperClaim(
        18, "section 5.1, figures 6 and 7",
        "The four links of one T0 optic, to four nodes of which three were in the job, flapped for about a minute: throughput was about "
        "25 % lower during it and full at once afterwards; no crash, no failed queue pair.",
    ),
    PaperClaim(
        19, "section 5.1, figure 8",
        "A T1 stopped forwarding with its links up, rebooted, and forwarded again two minutes later: about a quarter of the queue pairs "
        "lost packets, 580K in all; throughput dipped when it failed and was largely unaffected then; the reboot itself had no impact.",
    ),
    PaperClaim(
        20, "section 5.1",
        "If the only transceiver of a NIC flaps, all of its ports go and queue pairs fail.",
    ),
    PaperClaim(
        21, "section 5.2.1",
        "Between two hosts 2 bytes take 5.09 µs under one T0 and 6.54 µs across T1s; messages of 32 KB reach about 770 of 800 Gb/s in "
        "both.",
    ),
    PaperClaim(
        22, "section 5.2.2, figure 9a",
        "NIC-T0 links taken down one at a time, and restored: throughput follows the live links in both directions, with interruptions "
        "below a second.",
    ),
    PaperClaim(
        23, "section 5.2.2, figure 9b",
        "Four of a NIC's eight links go at once: half of the bandwidth, and all of it once they are back.",
    ),
    PaperClaim(
        24, "section 5.2.3, figure 9c",
        "Twenty T0-T1 links taken down one after the other, none restored: minimal impact on bandwidth.",
    ),
    PaperClaim(
        25, "section 5.2.3, figure 9d",
        "Eight T0-T1 links flap at once, as when a switch's transceiver does: negligible impact.",
    ),
    PaperClaim(
        26, "section 5.2.4, figure 10",
        "A T0 goes down: one plane fewer, about 100 of 800 Gb/s.",
    ),
    PaperClaim(
        27, "section 5.2.4, figure 11",
        "A T1 goes down and comes back: no lasting loss, fluctuation while it returns.",
    ),
    PaperClaim(
        28, "section 5.2.5, figures 12 and 13",
        "Of two paths in each of eight planes one EV drops 20 %: it is inactive at once, the other of its plane takes over, line rate "
        "is held; likewise at other rates of loss.",
    ),
    PaperClaim(
        29, "section 5.2.5, figure 14",
        "Two pairs of hosts and two EVs of one plane: the first flow settles on one EV, the second is forced onto it, and the first "
        "moves to the other entirely; both stay near line rate.",
    ),
    PaperClaim(
        30, "section 5.2.6, figure 15",
        "NCCL's send/recv reaches up to 92 GB/s per NIC for large messages on 42K GPUs.",
    ),
    PaperClaim(
        31, "section 5.2.7, figure 16",
        "Ring all-reduce of 64: little difference at small sizes. At large ones RoCE with 1 QP has about half of what is possible, more "
        "QPs help, little beyond 8, and MRC with 1 QP is ahead of RoCE with 16. 0.1 % loss costs MRC little at large sizes, more at "
        "small ones; at 1 % MRC has about a third, and RoCE is unusable.",
    ),
    PaperClaim(
        32, "section 5.2.7, figure 17",
        "All-to-all of 64: MRC is ahead at all sizes; 16 RoCE QPs are slightly worse than 1. 0.1 % loss hardly touches RoCE at large "
        "sizes; at small ones RoCE does very poorly, and MRC helps most.",
    ),
    PaperClaim(
        33, "section 5.2.8, figure 18",
        "Seven to one across spines, and a victim to an idle node of the target's rack: with 1 RoCE QP (PFC, DCQCN) the victim loses "
        "about 25 %; with 8 its average loss is smaller, but single seconds have 100 of 400 Gb/s. MRC shares the incast almost "
        "perfectly and leaves the victim untouched.",
    ),
    PaperClaim(
        34, "appendix, figure 19",
        "Three of four T0-T1 links fail one after the other: no effect with links of 400 Gb/s for a node, and with links of 100 Gb/s "
        "throughput follows what is left, down and up.",
    ),
    PaperClaim(
        35, "appendix, figure 20",
        "Eight pairs load the T0 uplinks fully: with 1 RoCE QP some flows have a half or a third; 8 QPs under PFC are marginally "
        "better, and under DCQCN better; MRC has 390 of 400 Gb/s on all.",
    ),
    PaperClaim(
        36, "appendix, figure 21",
        "The incast with PFC alone leaves the victim 30 to 100 of 400 Gb/s; MRC with 8 QPs is as with 1.",
    ),
    PaperClaim(
        37, "appendix, figure 22",
        "Fifteen to one, a flow more every 5 s, under three profiles of DCQCN: the default holds the queue up to about 10 flows, then "
        "PFC does, at line rate; aggressive ones empty the queue and lose 10 and 20 % of the bottleneck.",
    ),
)  # fmt: skip
