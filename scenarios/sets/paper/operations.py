"""What the paper says without a figure: ECMP beside SRv6 (section 2.1), Clustermapper, lossy NIC links and the check of ports before a job
(2.4, 3, 4), one thin plane (4), and a NIC's only transceiver (5.1). Simulated, since a network that breaks for tens of milliseconds
takes many minutes elsewhere.
"""

from __future__ import annotations

from scenarios.run.resume import FINISHED
from scenarios.sets.paper import plots
from scenarios.sets.paper.claims import (
    Claim,
    Evidence,
    Row,
    Run,
    all_hold,
    at_least,
    at_most,
    judged,
    number,
    or_never,
    percent,
    value_of,
    values,
)
from scenarios.sets.paper.collectives import is_more, ratio
from scenarios.sets.paper.failures import ride
from scenarios.sets.paper.figure import PaperFigure, Part
from testbed.simulated import SIMULATED

CHECKED = Claim(9, "all NIC ports are checked before a job starts")
KEPT_OUT = Claim(9, "a denylist keeps links known to be bad out")
OVER_ECMP = Claim(8, "MRC also runs over statically configured ECMP")
NO_NAME = Claim(8, "at the price of knowing no path by name")
DISTURBS = Claim(8, "dynamic routing would act after MRC and disturb its balance")
THIN = Claim(16, "many lost T0-T1 links of one plane make it the bottleneck")
NAMES = Claim(15, "probes say where the fault is")
EACH_MS = Claim(15, "every link is probed every millisecond")
CANNOT_TELL = Claim(17, "MRC cannot leave a NIC link that is up and lossy by itself")
DENIES = Claim(17, "Clustermapper can, and an entry in the denylist follows")
QPS_FAIL = Claim(20, "all ports go, and queue pairs fail")


# --- section 2.1: ECMP ---------------------------------------------------------------------------------------------


def ecmp(e: Evidence) -> list[Row]:
    srv6, hashed = (e.median("load", name, "groups.permutation.of_line") for name in ("mrc", "mrc-ecmp"))
    healthy = ratio(hashed, srv6)
    slowest = {name: e.median("main", name, "step_time_ns.max") for name in ("mrc", "mrc-ecmp", "mrc-ecmp-static")}
    price = ratio(slowest["mrc-ecmp-static"], slowest["mrc"])
    us = {name: number(None if ns is None else ns / 1e3, ".0f") for name, ns in slowest.items()}
    return [
        judged(
            OVER_ECMP,
            "at full load with nothing broken the mean of all flows is at least 90 % of that over SRv6",
            f"{percent(hashed, 1)} of line, over SRv6 {percent(srv6, 1)}",
            at_least(healthy, 0.9),
            value=healthy,
            unit="of SRv6",
            why="a pair's 128 EVs fall unevenly on the uplinks",
        ),
        judged(
            NO_NAME,
            "after a failure the slowest step is longer than over SRv6, with static groups",
            f"{us['mrc-ecmp-static']} us against {us['mrc']} us",
            None if price is None else price > 1,
            value=price,
            unit="times",
            why="several EVs lead over the dead cable, and each has to be found",
        ),
        judged(
            DISTURBS,
            "the slowest step is longer if switches re-route 40 us after the failure than if they do not",
            f"{us['mrc-ecmp']} us with re-routing, {us['mrc-ecmp-static']} us without",
            is_more(slowest["mrc-ecmp"], slowest["mrc-ecmp-static"]),
            value=slowest["mrc-ecmp"],
            unit="ns",
            why="here re-routing comes while MRC still looks for EVs over the dead cable, and makes those work that it "
            "has not found; hashing is consistent (other EVs stay where they are), and each failure is alone",
        ),
    ]


# --- sections 3 to 5.1 ---------------------------------------------------------------------------------------------


def thin_plane(e: Evidence) -> list[Row]:
    share = e.median("main", "mrc", "outside_busbw_share")
    left = e.median("main", "mrc", lambda run: run["degraded_busbw_bps"] / run["ideal_busbw_bps"])
    seen = f"{percent(share, 1)} of what theory leaves with planes loaded equally, which is {percent(left)} of the healthy fabric"
    return [
        ride(e, "main", 16),
        judged(
            THIN,
            "a job has what theory allows if planes stay equal, within 10 %: half of everything, though an eighth of the capacity is gone",
            seen,
            all_hold([at_least(share, 0.9), at_most(share, 1.1)]),
            ideal="100 %",
            value=share,
            unit="of theory",
            why="a plane that loses packets all the time may be taken for dead, and is then passed over",
        ),
    ]


def named_ms(run: Run) -> float | None:
    """Return how long after the first fault began its link was named, in ms; infinite if it never was."""
    ns = value_of(run, "mapper.faults.0.named_ns")
    return or_never(None if ns is None else ns / 1e6, bool(run.get("mapper", {}).get("faults")))


def operations(e: Evidence) -> list[Row]:
    after, wrong = (e.median("nic", "mrc-mapped", figure) for figure in (named_ms, "mapper.wrong"))
    slowly, wrongly = (e.median("millisecond", "mrc-mapped-1ms", figure) for figure in (named_ms, "mapper.wrong"))
    lost = {name: e.median("nic", name, "packets.lost") for name in ("mrc", "mrc-strict", "mrc-mapped")}
    kept = {name: e.median("nic", name, "kept_late") for name in ("mrc", "mrc-strict", "mrc-mapped")}
    excess = ratio(lost["mrc-strict"], lost["mrc-mapped"])
    lossy = f"{number(lost['mrc-strict'], '.0f')} packets lost and {percent(kept['mrc-strict'], 1)} of the goodput kept"
    passed_over = f"{number(lost['mrc'], '.0f')} and {percent(kept['mrc'], 1)} if a plane that has lost all its EVs is passed over"
    errors = {
        span: values((r for r in e.runs("transceiver", "mrc", {"fault.0.for": span}, ended=False) if r["outcome"] in FINISHED), "qp_errors")
        for span in ("1ms", "40ms")
    }
    failed = {span: sum(n > 0 for n in counts) for span, counts in errors.items()}
    found, others = (e.median("start", "mrc-mapped", figure) for figure in ("mapper.denied_at_start", "mapper.wrong"))
    unchecked, checked = (e.median("start", name, "untrimmed_loss") for name in ("mrc", "mrc-mapped"))
    return [
        judged(
            CHECKED,
            "two NIC links that lose 5 and 20 % are denied before the first step, and no other is named",
            f"{number(found, '.0f')} denied, {number(others, '.0f')} others named",
            all_hold([at_least(found, 2), at_most(found, 2), at_most(others, 0)]),
            ideal="2",
            value=found,
            unit="links",
            why="300 base RTTs of probes did not tell them from the others",
        ),
        judged(
            KEPT_OUT,
            "the job then loses no packet, as it does without the check",
            f"{number(checked, '.0f')} lost, without the check {number(unchecked, '.0f')}",
            all_hold([at_most(checked, 0), at_least(unchecked, 1)]),
            ideal="0",
            value=checked,
            unit="packets",
            why="a link that loses packets was still in use",
        ),
        judged(
            NAMES,
            "the lossy NIC link is named within a millisecond, and no other",
            f"named after {number(after, '.2f')} ms; {number(wrong, '.0f')} others named",
            all_hold([at_most(after, 1), at_most(wrong, 0)]),
            value=after,
            unit="ms",
            why="too few probes of the link were lost",
        ),
        judged(
            EACH_MS,
            "a link that loses 20 % is named within 40 ms, and no other",
            f"named after {number(slowly, '.1f')} ms; {number(wrongly, '.0f')} others named",
            all_hold([at_most(slowly, 40), at_most(wrongly, 0)]),
            value=slowly,
            unit="ms",
            why="too few probes of the link were lost in that time",
        ),
        judged(
            CANNOT_TELL,
            "MRC alone goes on losing packets there if planes are loaded strictly alike, as the paper's: twice as many as with "
            "Clustermapper, or more",
            f"{lossy}; {passed_over}; {number(lost['mrc-mapped'], '.0f')} packets with Clustermapper",
            at_least(excess, 2),
            value=excess,
            unit="times",
            why="paths over the link that keep failing stay out ever longer",
        ),
        judged(
            DENIES,
            "with the link denied the host keeps what its three other planes carry, within 3 %",
            f"{percent(kept['mrc-mapped'], 1)} of the goodput before; without, {percent(kept['mrc'], 1)}",
            at_least(kept["mrc-mapped"], 0.97 * 3 / 4),
            ideal="75 %",
            value=kept["mrc-mapped"],
            unit="of before",
            why="the link was named late, or not denied",
        ),
        judged(
            QPS_FAIL,
            "queue pairs go to ERROR in every run in which the ports stay down longer than all retries last (17 ms)",
            ", ".join(f"{span}: in error in {failed[span]} of {len(counts)} runs" for span, counts in errors.items() if counts),
            failed["40ms"] == len(errors["40ms"]) if errors["40ms"] else None,
            value=float(failed["40ms"]),
            unit="runs",
            why="retries outlast the outage",
        ),
    ]


FIGURES = (
    PaperFigure(
        "ecmp",
        "MRC over ECMP beside MRC over SRv6",
        ecmp,
        plots.loads,
        (
            Part("main", "ecmp", quick=("workload.steps=8",), world=SIMULATED),
            Part("load", "ecmp-permutation", quick=("workload.duration=800us",), transports=("mrc", "mrc-ecmp"), world=SIMULATED),
        ),
        "Simulated. What naming paths is worth, and whether switches should re-route under MRC.",
        section="2.1",
    ),
    PaperFigure(
        "planes",
        "A plane without half of a T0's uplinks",
        thin_plane,
        plots.jobs,
        (Part("main", "job-thin-plane.toml", quick=("workload.steps=2",), world=SIMULATED),),
        section="4",
    ),
    PaperFigure(
        "operations",
        "Lossy NIC links with and without Clustermapper, and checked before a job; a NIC's only transceiver",
        operations,
        plots.nothing,
        (
            Part("nic", "nic-link-lossy", quick=("workload.duration=3ms", "fault.0.for=1.6ms"), world=SIMULATED),
            Part("millisecond", "mapper-1ms.toml", quick=("fault.0.for=19ms", "workload.flow.0.for=20ms"), world=SIMULATED),
            Part("transceiver", "only-transceiver.toml", world=SIMULATED),
            Part("start", "port-check", quick=("workload.steps=2",), world=SIMULATED),
        ),
        "Simulated. Elsewhere Clustermapper probes every 2 base RTTs, 50 times as often as the paper's.",
        section="2.4 to 5.1",
    ),
)
