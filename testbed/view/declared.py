"""Declares the files of a run, as far as something reads them: each key with its type and bounds. A file is checked where it is read, and
all code behind relies on that.

Files may be older: keys that some version did not write may be missing. docs/results.md says what each key means.
"""

from __future__ import annotations

from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta

from testbed.results.reading import AGAIN, ResultsError
from testbed.results.reading import read as as_typed
from testbed.results.values import FAR, Amount, Count, HostName, Index, Name, Number, Positive, Share, Whole
from topologies.clos import Fabric, FabricError
from topologies.files import MOST_JSON, FileError, content, parse_json, typed

_DIGITS = Annotated[str, Meta(pattern=r"^\d{1,6}\Z")]
Table = dict[str, Any]
Counts = dict[str, Count]
_TYPES: dict[str, Any] = {
    **dict.fromkeys("run transport placement fabric job".split(), Name),
    **dict.fromkeys(
        "kind workload outcome verdict reason fault on phase world name group flow from to cause state unknown controller".split(), str
    ),
    **dict.fromkeys("links notes distrust broken faults_missed command_line dead_links".split(), list[str]),
    **dict.fromkeys("ok up last_hop_ecn finished unusual active".split(), bool),
    **dict.fromkeys("seed t extra_steps number at_ns".split(), Whole),
    **dict.fromkeys("host peer rank plane ev old step".split(), Index),
    **dict.fromkeys("base_rtt_ns plane_bdp_bytes bin_ps line_bps".split(), Positive),
    **dict.fromkeys("settings options keys versions tools git".split(), Table),
}


def _type_of(key: str) -> Any:
    if key in _TYPES:
        return _TYPES[key]
    if key.endswith(("_ns", "_ps", "_rtts", "_percent", "_rotation")):
        return Number
    return Amount if key.endswith(("_bps", "_share")) else Count


def table(keys: str, /, **types: Any) -> Any:
    """Declare a table with ``keys``, each of the type that is given here, or that its name or its ending says. ``key?`` may be missing,
    ``key~`` may be null. Nobody reads other keys."""
    fields: list[Any] = []
    names: dict[str, str] = {}
    for word in keys.split():
        key = word.rstrip("?~")
        kind = types.get(key, _type_of(key))
        kind = kind | None if "~" in word else kind
        names[field := f"key{len(names)}"] = key
        fields.append((field, kind | msgspec.UnsetType, UNSET) if "?" in word else (field, kind))
    return msgspec.defstruct("Written", fields, kw_only=True, rename=names)


def rows_of(kind: Any) -> Any:
    return GenericAlias(list, (kind,))


def _named(kind: Any, key: Any = str) -> Any:
    return GenericAlias(dict, (key, kind))


ANY = table("")
SPREAD = table("n p50?~ p99?~ p999?~ max~", **dict.fromkeys(("p50", "p99", "p999", "max"), Number))
_RANGE = tuple[Amount, Amount]
FABRIC = table(
    "base_rtt_ns delay_ns plane_bdp_bytes buffer_bytes last_hop_ecn ecn_bytes~ trim_bytes~ trim_last_hop_bytes~ pfc_bytes?~",
    buffer_bytes=Positive, ecn_bytes=_RANGE, pfc_bytes=_RANGE,
)  # fmt: skip
"""The fabric in the summary."""
FAILOVER = table(
    "fault kind? on links? to? probability? direction? lost at_ns healed_ns~ outages_ns? last_on_dead_rtts?~ last_on_dead_over_rotation?~ "
    "delivered_ns?~ losses_per_ev?~ losses_per_ev_bound?~ last_on_dead_path_ns?~ detected_ns?~ kept_during?~ kept_late?~ kept_after?~",
    probability=Share, direction=str, outages_ns=list[tuple[Number, Number | None]], at_ns=Number,
    **dict.fromkeys(("kept_during", "kept_late", "kept_after"), Amount),
)  # fmt: skip
COST = table(
    "steps? finished healthy_from?~ healthy_steps? healthy_step_ns?~ healthy_bps?~ extra_ns~ extra_steps?~ extra_rtts~ extra_percent~ "
    "flows? noise_ns~ noise_share~ slowdown?~ goodput_kept~ worst_step_ns?~ ideal_extra_ns~ undelivered_bytes?~ back_ns?~ unknown?~",
    slowdown=Amount, goodput_kept=Amount, healthy_from=str, extra_steps=Number, undelivered_bytes=Whole,
)  # fmt: skip
FLOW = table("group? src? dst? start_ns? bytes? goodput_bps?~ line_bps? share?~", src=HostName, dst=HostName, share=Amount)
GROUP = table(
    "flows goodput_bps~ of_line~ min_share~ max_share~ jain~ kept?~ message_ns? queue_mean_bytes?~ queue_p99_bytes?~ queue_peak_bytes?~ "
    "buffer_bytes? trims? marks? drops?",
    message_ns=SPREAD, **dict.fromkeys(("of_line", "jain", "kept", "queue_mean_bytes"), Amount),
)  # fmt: skip
JOB = table(
    "ranks steps step_time_ns typical_step_ns~ compute_ns estimate_ns gpu_lost_share~ alone_step_ns?~ slowdown~ "
    "losses? digests?",
    losses=list[Number], digests=list[str], ranks=Index, step_time_ns=SPREAD, gpu_lost_share=Number, slowdown=Amount,
)  # fmt: skip
PFC = table(
    "pauses paused_ns longest_pause_ns tiers reaction_ns?~",
    tiers=_named(table("ports paused pauses paused_ns")),
    reaction_ns=table("mean longest effect", mean=Number, longest=Number, effect=Number),
)
BACKGROUND = table(
    "name protocol src dst path sent_bps~ received_bps~ lost_percent~ jitter_ms~ retransmits~ seconds~",
    protocol=str, src=str, dst=str, path=str, jitter_ms=Number, seconds=Number,
)  # fmt: skip
RUN = table(
    "run transport fabric placement seed outcome verdict? ranks steps failed_steps? step_time_ns transfer_time_ns? typical_step_ns?~ "
    "kind? controller? workload? world? settings? reason?~ wrong?~ busbw_bps?~ ideal_busbw_bps?~ ideal_step_ns?~ base_rtt_ns? "
    "reconvergence_ns?~ cpu_percent?~ measured_ns? packets failovers failure_cost?~ faults_missed? timeouts? untrimmed_loss? "
    "t0_ns?~ flows? groups? jobs? queues? separations? lossy_paths? flaps? ports? plane_loads? plane_deviation?~ pfc? background? "
    "distrust? broken? notes? fidelity?",
    step_time_ns=SPREAD, transfer_time_ns=SPREAD, timeouts=Counts, failovers=rows_of(FAILOVER), failure_cost=COST, flows=_named(FLOW),
    ideal_busbw_bps=Positive, ideal_step_ns=Positive, measured_ns=Amount, plane_deviation=Number, pfc=PFC, background=rows_of(BACKGROUND),
    ranks=Index, groups=_named(GROUP), jobs=_named(JOB, Name),
    packets=table(
        "sent lost retransmitted marked~ trimmed~ unexplained~ causes", causes=dict[str, Whole], lost=Whole, sent=Count, unexplained=Whole
    ),
    queues=_named(table("group")),
    separations=rows_of(
        table("flow from shared_evs evs before~ after~ separated_rtts~", shared_evs=list[Index], before=Amount, after=Amount)
    ),
    lossy_paths=rows_of(table("host peer ev first_loss_ns~ replaced_by", host=HostName, peer=HostName, replaced_by=list[Index])),
    flaps=rows_of(table("number", number=Index)),
    ports=rows_of(table("host at_ns until_ns live", host=HostName, at_ns=Number, live=Index)),
    plane_loads=rows_of(table("host packets equal", host=str, packets=list[Amount], equal=list[Amount])),
    fidelity=table("verdict? invalid? doubtful? too_slow?", invalid=list[str], doubtful=list[str], too_slow=bool),
)  # fmt: skip
"""A run in the summary."""
SUMMARY = table(
    "format scenario verdict checks fabrics runs stopped_by?~",
    format=Whole, scenario=Name, stopped_by=str, fabrics=_named(FABRIC, Name), runs=rows_of(RUN),
    checks=rows_of(table("name expected seen ok~ unusual? unit?", expected=str, seen=Any, unit=str)),
)  # fmt: skip

_ORIGIN = table("command_line git?~", git=table("commit? dirty?", commit=str, dirty=bool))
_TRANSPORT = table("name kind fabric? options?", fabric=table("name"))
_FAULT = table("on")
_WORK = table("steps? slices? outstanding? placement?", steps=Whole, slices=Annotated[int, Meta(ge=1, le=1 << 20)], placement=list[str])
_PLAIN = "name? seeds? workload? transports faults? fabric? description?"
_SCENARIO = {
    "seeds": list[Whole],
    "workload": _WORK,
    "transports": rows_of(_TRANSPORT),
    "faults": rows_of(_FAULT),
    "fabric": Table,
    "description": str,
}
_STRETCH: Table = {"attempts": list[Table]}
_STRETCH["dilation"] = table("factor value chosen why", factor=Positive, value=Positive, chosen=str, why=str)
STRETCHED = table("dilation? attempts?", **_STRETCH)
"""The manifest's table about dilation."""
MANIFEST = table(
    "format? world? scenario scenario_file? command_line? started? ended? seeds? git?~ python? versions? tools? engine? kernel? machine? "
    "fabrics? notes? switch? verdict? fidelity? sessions? compared? dilation? attempts? stopped_by?~",
    scenario=table(
        f"{_PLAIN} variants?", **_SCENARIO,
        variants=rows_of(table("settings scenario", scenario=table(_PLAIN, **_SCENARIO))),
    ),
    **dict.fromkeys("scenario_file started ended python engine kernel switch stopped_by".split(), str), seeds=list[Whole],
    git=table("commit dirty", commit=str, dirty=bool), machine=table("cores?~ cpu?~ arch?~ memory_bytes?~", cpu=str, arch=str),
    versions=dict[str, str | None], tools=dict[str, str | None], fabrics=dict[Name, Table],
    fidelity=_named(table("verdict")), sessions=rows_of(_ORIGIN), compared=rows_of(_ORIGIN),
    **_STRETCH,
)  # fmt: skip
_NAMES = ("port", "node", "peer", "link", "kind")
"""Names in a row of counters; all others are numbers."""
RECORD = table(
    "kind? transport fabric placement seed workload world? settings? outcome? reason? key? ranks warmup_steps steps? "
    "message_bytes? window reconvergence_ps?~ paths? jobs? flows? t0? fault_links? faults_missed? counters_before? counters_after? "
    "agent_counters? wrong? flow_notes? queue_ports? settle_ps? notes? acts_late_ps? cpu? watch?~ dead_at_end? "
    "background? machine? controller? clustermapper?~",
    fabric=Table, key=str, placement=str, ranks=list[Index], steps=Index, warmup_steps=Index, message_bytes=Count,
    window=tuple[Whole, Whole], reconvergence_ps=Amount, t0=Whole, fault_links=list[str], agent_counters=dict[str, Counts],
    paths=_named(rows_of(table("peer ev? active? state?", ev=Whole)), _DIGITS),
    jobs=rows_of(table("name ranks compute_ps estimate_ps?", ranks=list[Index], compute_ps=Amount)),
    flows=rows_of(table("name group? src dst start_ps for_ps?~ messages?~ evs?~", src=Index, dst=Index, start_ps=Count)),
    wrong=dict[str, Count], flow_notes=rows_of(table("flow? wrong? bytes? messages?", flow=Index)), queue_ports=dict[str, str],
    **dict.fromkeys(("counters_before", "counters_after"), rows_of(table("port link? kind? plane?", port=str, link=str))),
    cpu=list[tuple[Number, Number]], watch=Table, dead_at_end=list[str], background=list[Table], machine=Any, controller=str,
    clustermapper=Any,
)  # fmt: skip
"""run.json, and begun.json, which lacks what comes at the end."""

_TIMES = "start_ps end_ps"
_LINES: Table = {
    "step": table(f"rank step {_TIMES} ok", start_ps=Whole, end_ps=Whole),
    "transfers": table("rank step start_ps posted arrived", start_ps=Whole, posted=list[Whole], arrived=list[Whole]),
    "fault": table("name fault on phase links keys?", keys=table("to? probability? direction?", to=Any, probability=Share, direction=str)),
    "goodput": table("bin_ps tx rx", tx=list[Amount], rx=list[Amount]),
    "evs": table("peer bin_ps tx", tx=dict[Annotated[str, Meta(pattern=r"^\d{1,9}\Z")], Count]),
    "flow": table("flow? bin_ps rx", flow=Index),
    "cwnd": table("peer qpn cwnd in_flight srtt_ps flow? bin_ps? rate_bps?~", flow=Index),
    "srtt": table("peer srtt_ps?~ window?~"),
    "message": table(f"flow number bytes {_TIMES}", flow=Index, start_ps=Whole, end_ps=Whole),
    "ev": table("peer ev to cause?~ from? evs? window?~ srtt_ps?~ last_data_ps?~"),
    "plane": table("peer plane to cause?~"),
    "loss": table("psn?~ rule? sent_ps?~", rule=str),
    "rtx": table("psn?~ count?~"),
    "redelivered": table("peer psn?~"),
    "reroute": table("peer? old?~ dead_links?", old=Whole),
    "rto": table("peer psn?~ firing?"),
    "qp": table("peer state cause?~"),
    "port": table("port up"),
    "reconverged": table("dead_links"),
    "told": table(
        "note?", note=table("step? loss? digest?", loss=Number, digest=str, step=tuple[Whole, Whole, Number, Number, Number, Whole])
    ),
    "ports": table("span_ps rows", rows=list[Annotated[list[Number], Meta(min_length=1)]]),
    "end": table("outcome reason?~"),
    "rotation": table("sent due first passed unsure repeats", **dict.fromkeys(("sent", "due", "first"), list[Number])),
    "loop": table("lag_mean_ps?~ lag_window_ps?~ lag_p99_ps?~ lag_max_ps?~ cpu_ns?~"),
    "resolved": table("name on"),
    "hint": table("links"),
    "endpoint": table("peer cause?~"),
    "deny": table("entries?~ entry?~", entries=list[str], entry=str),
    "queues": table("port bytes", port=str),
}
"""Kind of a line -> its keys beside those that every line may have, :data:`_LINE`. Lines of ``queues.jsonl`` have no kind."""
_LINE = table(
    "t kind? bin_ps? host peer?~ ev?~ name?~ from?~ to?~ cause?~ on?~ phase?~ psn?~ count?~",
    host=Annotated[int, Meta(ge=-1, le=1 << 20)], ev=Annotated[int, Meta(ge=-1, le=FAR)],
)  # fmt: skip


class Lines:
    """Checks the lines of a run's logs: their keys, and that the run has the hosts, ranks and flows that they name."""

    def __init__(self, fabric: Fabric, ranks: int, flows: int | None = None) -> None:
        self._most = {"host": fabric.host_count, "peer": fabric.host_count, "rank": ranks, "plane": fabric.planes}
        self._most |= {} if flows is None else {"flow": flows}
        self._planes = fabric.planes

    def check(self, line: Table, where: Path, kind: str = "") -> None:
        """Raises :class:`FileError` if a line is not as declared."""
        typed(line, _LINE, where)
        own = _LINES.get(kind or line.get("kind", ""))
        if own is None:
            return
        typed(line, own, where)
        for key, most in self._most.items():
            if (line.get(key, -1) or 0) >= most:
                raise FileError(f"damaged: {key} in {where}: there is no {line[key]} of {most}")
        if line.get("kind") == "goodput" and {len(line["tx"]), len(line["rx"])} != {self._planes}:
            raise FileError(f"damaged: rx in {where}: the fabric has {self._planes} planes")
        if line.get("start_ps", 0) > line.get("end_ps", FAR):
            raise FileError(f"damaged: end_ps in {where}: it is before start_ns")


def read(path: Path, kind: type[Any], fix: str = AGAIN) -> Table:
    """Read a JSON file whose keys are as ``kind`` has them, as it stands there. Raises :class:`ResultsError`."""
    as_typed(path, kind, fix)
    return dict(parse_json(content(path, MOST_JSON), path))


def read_record(path: Path, fix: str = AGAIN) -> Table:
    """Read ``run.json`` of a run, whose hosts its fabric has. Raises :class:`ResultsError`."""
    record = read(path, RECORD, fix)
    try:
        _check_record(record, path)
    except (FileError, FabricError) as error:
        raise ResultsError(f"{error}: {fix}") from None
    return record


def _check_record(record: Table, path: Path) -> None:
    fabric, ranks = Fabric.from_dict(record["fabric"]), record["ranks"]
    hosts = [
        *ranks,
        *(int(host) for host in record.get("paths", ())),
        *(row["peer"] for rows in record.get("paths", {}).values() for row in rows),
    ]
    for key, numbers, most in (
        ("ranks", hosts, fabric.host_count),
        ("flows", [flow[end] for flow in record.get("flows", ()) for end in ("src", "dst")], len(ranks)),
        ("jobs", [rank for job in record.get("jobs", ()) for rank in job["ranks"]], len(ranks)),
    ):
        if max(numbers, default=0) >= most:
            raise FileError(f"damaged: {key} in {path}: there is no {max(numbers)} of {most}")
    for key in ("counters_before", "counters_after"):
        for row in record.get(key, ()):
            for name, value in row.items():
                if type(value) is not (str if name in _NAMES else int) or (isinstance(value, int) and abs(value) > FAR):
                    raise FileError(f"damaged: {key} in {path}: {name}")
    if len(set(ranks)) < len(ranks) or not ranks or record["window"][0] > record["window"][1]:
        raise FileError(f"damaged: {'window' if ranks else 'ranks'} in {path}")
