"""Fig 15 to 17: collectives over message sizes, without and with loss."""

from __future__ import annotations

from typing import Any

from scenarios.sets.paper.claims import (
    Evidence,
    bus_share,
    number,
    percent,
    ratio,
    value_of,
    values,
)
from testbed.results.summary import Run
from testbed.results.values import number_at

SIZE, LOSS = "workload.message_bytes", "fault.0.probability"
PAYLOAD = 4096 / 4238  # payload of a full packet over its frame (topologies.clos)
PAPER_NIC_GB = 100.0  # of the paper's 800 Gb/s NIC


def share(e: Evidence, part: str, transport: str, size: Any, loss: float | None) -> float | None:
    """Return the median share of the ideal. A run out of time counts with its finished steps.
    ``loss``: None in a part without any."""
    return e.median(
        part,
        transport,
        bus_share,
        {SIZE: size, **({} if loss is None else {LOSS: loss})},
        ended=False,
    )


def kept_share(e: Evidence, part: str, transport: str, size: Any, loss: float) -> float | None:
    return ratio(share(e, part, transport, size, loss), share(e, part, transport, size, 0.0))


def size_range(e: Evidence, part: str) -> tuple[Any, Any]:
    sizes = e.settings(part, SIZE)
    return (sizes[0], sizes[-1]) if sizes else (None, None)


def out_of_time(e: Evidence, part: str, transport: str, size: Any, loss: float) -> str:
    runs = e.runs(part, transport, {SIZE: size, LOSS: loss}, ended=False)
    count = sum(run.outcome != "done" for run in runs)
    return f" ({count} of {len(runs)} runs out of time)" if count else ""


def _over_rtt(run: Run, key: str) -> float | None:
    value = value_of(run, key)
    return None if value is None else value / float(run.base_rtt_ns)


def send_recv(e: Evidence, part: str) -> dict[str, Any]:
    small, large = size_range(e, part)
    large_share, small_share = (
        e.median(part, "mrc", bus_share, {SIZE: size}) for size in (large, small)
    )
    raw = None if large_share is None else large_share * PAYLOAD
    gigabytes = None if raw is None else raw * PAPER_NIC_GB
    sizes = {"small": small, "large": large, "payload": PAYLOAD}
    return {
        **sizes,
        "raw": raw,
        "large_share": large_share,
        "small_share": small_share,
        "gigabytes": gigabytes,
    }


def raw_flows(run: Run) -> float | None:
    share = number_at(run, "groups.flows.of_line")
    return None if share is None else share * PAYLOAD


def ring(e: Evidence, part: str) -> dict[str, Any]:
    small, large = size_range(e, part)
    mrc, one_qp, eight, sixteen = (
        share(e, part, name, large, 0.0) for name in ("mrc", "roce-1p", "roce-8", "roce-16")
    )
    against = ", ".join(
        f"{size}: {percent(share(e, part, 'mrc', size, 0.0))} against "
        f"{percent(share(e, part, 'roce-16', size, 0.0))}"
        for size in e.settings(part, SIZE)
    )
    return {
        "small": small,
        "large": large,
        "mrc": mrc,
        "one_qp": one_qp,
        "many_qps": sixteen,
        "half": ratio(one_qp, mrc),
        "packed": e.median("packed", "roce-1p", bus_share),
        "eight_to_one": ratio(eight, one_qp),
        "gain": ratio(sixteen, eight),
        "lead": ratio(mrc, sixteen),
        "shares": against,
        "at_small": ratio(share(e, part, "mrc", small, 0.0), share(e, part, "roce-1p", small, 0.0)),
        "large_kept": kept_share(e, part, "mrc", large, 0.001),
        "small_kept": kept_share(e, part, "mrc", small, 0.001),
        "chunk": e.median(part, "mrc", _chunk_rtts, {SIZE: large}),
        **{
            f"{name}_kept": kept_share(e, part, of, large, 0.01)
            for name, of in (("mrc", "mrc"), ("one", "roce-1p"), ("many", "roce-16"))
        },
        "mrc_late": out_of_time(e, part, "mrc", large, 0.01),
        "many_late": out_of_time(e, part, "roce-16", large, 0.01),
        "many_share": share(e, part, "roce-16", large, 0.01),
        **_go_back_n(e, part, large),
    }


def _chunk_rtts(run: Run) -> float | None:
    ideal = _over_rtt(run, "ideal_step_ns")
    return None if ideal is None else ideal / (2 * (run.ranks - 1))


def _go_back_n(e: Evidence, part: str, size: Any) -> dict[str, Any]:
    where = {SIZE: size, LOSS: 0.01}
    lost, resent, timeouts = (
        sum(values(e.runs(part, "roce-16", where, ended=False), key))
        for key in ("packets.lost", "packets.retransmitted", "timeouts.rto")
    )
    seen = f"{number(resent / lost, '.1f')} retransmissions per lost packet" if lost else "no loss"
    step = e.median(
        part, "roce-16", lambda run: _over_rtt(run, "typical_step_ns"), where, ended=False
    )
    return {"resent": seen, "timeouts": timeouts, "step": step}


def all_to_all(e: Evidence, part: str) -> dict[str, Any]:
    small, large = size_range(e, part)
    return {
        "small": small,
        "large_kept": kept_share(e, part, "roce-1p", large, 0.001),
        "late": out_of_time(e, part, "roce-1p", large, 0.001),
        "small_kept": kept_share(e, part, "roce-1p", small, 0.001),
        "mrc": kept_share(e, part, "mrc", small, 0.001),
        "gain": ratio(share(e, part, "roce-16", large, 0.0), share(e, part, "roce-1p", large, 0.0)),
    }


def ahead(e: Evidence, part: str) -> dict[str, Any]:
    of = {
        (name, size): share(e, part, name, size, None)
        for size in e.settings(part, SIZE)
        for name in ("mrc", "roce-1p")
    }
    sizes = dict.fromkeys(size for _, size in of)
    leads = [ratio(of["mrc", size], of["roce-1p", size]) for size in sizes]
    known = [lead for lead in leads if lead is not None]
    return {
        "least_lead": min(known) if known and len(known) == len(leads) else None,
        "shares": ", ".join(
            f"{size}: {percent(of['mrc', size])} / {percent(of['roce-1p', size])}" for size in sizes
        ),
    }
