"""Reads workloads of AICB and SimAI: a line of the parallelism, a number of layers, a line of
twelve columns for each.

Columns: name, -1, then computing (ns), communication and bytes three times (forward, backward for
the inputs' gradients, backward for the weights' gradients), and an update time, which SimAI does
not use either. A communication's suffix names its group: none is tensor parallel, _DP data
parallel, _EP expert parallel, _DP_EP data parallel among equal experts. All ranks run the same
layers.

SimAI makes a state machine of a file. Here all layers run forward, then backward, where the
weights' communication overlaps with what follows. A file lacks pipeline stages and their messages,
so pp is taken as more data parallelism. This and unknown operations, which are dropped as SimAI
does, are reported.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from scenarios.jobs.content import content
from scenarios.jobs.plan import COMPUTE, MOST_NODES, NeedsHosts, Node, Plan, PlanError
from topologies.units import MAX_TIME, NS

KEYS = {
    "model_parallel_NPU_group": "tp",
    "ep": "ep",
    "expert_parallel_npu_group": "ep",
    "pp": "pp",
    "all_gpus": "all",
    "checkpoints": "checkpoints",
    "pp_comm": "pp_comm",
}
OPERATIONS = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCESCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
    "BROADCAST": "broadcast",
}
GROUPS = ("", "TP", "DP", "EP", "DP_EP")
COLUMNS = 12
_NUMBER = re.compile(r"[0-9]{1,19}(\.[0-9]{0,19})?(e\+?[0-9]{1,2})?", re.IGNORECASE)
MOST_SKIPPED = 20  # named one by one [ours]
HEADS = ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER", "MICRO")
ASTRA_SIM_1 = (
    "DATA",
    "MODEL",
    "HYBRID_DATA_MODEL",
    "HYBRID_MODEL_DATA",
    "HYBRID_DLRM",
    "HYBRID_DLRM_ENHANCED",
)
"""Heads of the older format, whose groups follow from a network's dimensions."""


def read(path: Path, ranks: int, hosts: int | None = None) -> Plan:
    """Raises :class:`PlanError` with the number of the line, OSError."""
    lines = content(path).decode(errors="replace").splitlines()
    if lines and "," in lines[0] and "comm_type" in lines[0]:
        raise PlanError(
            "line 1: a list of calls (CSV) for AICB's own runner; what is read is the text that "
            "AICB writes for SimAI"
        )
    if len(lines) < 2:
        raise PlanError(
            f"{path.name}: {len(lines)} lines: the parallelism, a number of layers, and the "
            "layers are expected"
        )
    sizes = _parallelism(lines[0])
    if not re.fullmatch(r"\s*[0-9]{1,18}\s*", lines[1]):
        raise PlanError(f"line 2: {_short(lines[1])} is not the number of layers")
    count = int(lines[1])
    rows = [(number, line.split()) for number, line in enumerate(lines[2:], 3) if line.strip()]
    if count != len(rows):
        there = (
            f"{len(rows)} are there: is the file complete? It is read with {len(rows)} in line 2"
        )
        raise PlanError(f"line 2: {count} layers are announced, {there}")
    if count > MOST_NODES:
        raise PlanError(f"line 2: {count:,} layers: {MOST_NODES:,} at most")
    tp, ep = sizes["tp"], sizes["ep"]
    unit = tp * ep
    if ranks % unit:
        most = hosts or ranks
        what = (
            f"tensor parallel over {tp}"
            if ranks % tp
            else f"tensor parallel over {tp} times expert parallel over {ep}"
        )
        line = f"line 1: {what} does not divide {ranks} ranks"
        if unit > most:
            raise NeedsHosts(f"{line}: it takes {unit} hosts", unit)
        raise PlanError(f"{line}: use --ranks {max(unit, min(ranks, most) // unit * unit)}")
    skipped: dict[str, int] = {}
    if sizes["pp"] > 1:
        messages = f" of {sizes['pp_comm']:,} bytes" if sizes["pp_comm"] else ""
        skipped[
            f"pp: {sizes['pp']} (no line says when the stages send their messages{messages}: "
            "taken as data parallel)"
        ] = 1
    if sizes["all"] and sizes["all"] != ranks:
        skipped[f"all_gpus: {sizes['all']} (replayed on {ranks} ranks)"] = 1
    if sizes["checkpoints"]:
        skipped[f"checkpoints: {sizes['checkpoints']} (no layer is computed again)"] = 1
    first = _nodes(rows, 0, ranks, tp, ep, skipped)
    if len(first) * ranks > MOST_NODES:
        fitting = MOST_NODES // len(first) // unit * unit
        fix = (
            f"use --ranks {fitting}"
            if fitting > 1
            else f"keep {MOST_NODES * count // (len(first) * ranks):,} layers"
        )
        raise PlanError(
            f"{len(first):,} nodes on each of {ranks} ranks are more than {MOST_NODES:,}: {fix}"
        )
    return Plan(
        (first, *(_nodes(rows, rank, ranks, tp, ep, {}) for rank in range(1, ranks))), skipped
    )


def _short(text: str) -> str:
    return ascii(text if len(text) <= 40 else text[:40] + "...")


def _parallelism(line: str) -> dict[str, int]:
    words = line.split()
    if words and words[0] in ASTRA_SIM_1:
        raise PlanError(
            f"line 1: {_short(words[0])} is of ASTRA-sim 1: chakra_converter Text makes "
            "NAME.0.et of it, which is read"
        )
    if not words or words[0] not in HEADS:
        raise PlanError(
            f"line 1: {_short(words[0] if words else '')} is no kind of job; there are "
            f"{', '.join(HEADS)}"
        )
    sizes = {"tp": 1, "ep": 1, "pp": 1, "all": 0, "checkpoints": 0, "pp_comm": 0}
    for key, value in pairwise(words):
        short = KEYS.get(key.rstrip(":"))
        if short is not None:
            least, most = (1, 1 << 20) if sizes[short] else (0, 1 << 62)
            whole = value.partition(".")[0]  # pp_comm is a quotient
            if not re.fullmatch("[0-9]{1,19}", whole) or not least <= int(whole) <= most:
                raise PlanError(
                    f"line 1: {key} {_short(value)} is no number of GPUs, layers or bytes"
                )
            sizes[short] = int(whole)
    return sizes


def _group(suffix: str, rank: int, ranks: int, tp: int, ep: int) -> tuple[int, ...]:
    """Follow Megatron's order: tensor parallel next to each other, experts next among data-parallel
    ones."""
    t, d = rank % tp, rank // tp
    match suffix:
        case "" | "TP":
            return tuple(range(rank - t, rank - t + tp))
        case "DP":
            return tuple(range(t, ranks, tp))
        case "EP":
            return tuple(t + tp * (d - d % ep + e) for e in range(ep))
        case "DP_EP":
            return tuple(range(t + tp * (d % ep), ranks, tp * ep))
    raise KeyError(suffix)


def _nodes(
    rows: list[tuple[int, list[str]]],
    rank: int,
    ranks: int,
    tp: int,
    ep: int,
    skipped: dict[str, int],
) -> tuple[Node, ...]:
    nodes: list[Node] = []
    last = -1  # what the next computing comes after
    open_calls: list[int] = []  # of weights' gradients: the end of the pass waits for them

    def add(kind: str, name: str, stage: str, **more: object) -> int:
        number = len(nodes)
        nodes.append(Node(number, kind, name, stage=stage, **more))  # type: ignore[arg-type]
        return number

    def part(number: int, row: list[str], column: int, stage: str, blocking: bool) -> None:
        nonlocal last
        name, (ns, operation, size) = row[0], row[column : column + 3]
        values = []
        for text, most in ((ns, MAX_TIME // NS), (size, 1 << 62)):
            value = float(text) if _NUMBER.fullmatch(text) else -1.0
            if not 0 <= value <= most:
                what = "time (ns, up to a day)" if text is ns else "number of bytes"
                raise PlanError(f"line {number}: layer {_short(name)}: {_short(text)} is no {what}")
            values.append(int(value))
        after = () if last < 0 else (last,)
        if values[0]:
            last = add(COMPUTE, name, stage, after=after, ns=values[0])
            after = (last,)
        base, _, suffix = operation.upper().partition("_")
        if base == "NONE" or not values[1]:
            return
        if base not in OPERATIONS or suffix not in GROUPS:
            if not operation.replace("_", "").isalpha():
                raise PlanError(
                    f"line {number}: layer {_short(name)}: {_short(operation)} is no operation"
                )
            what = operation[:40] if len(skipped) < MOST_SKIPPED else "other operations"
            skipped[what] = skipped.get(what, 0) + 1
            return
        # The columns of weights have no suffix in files of plain data parallelism.
        group = _group("DP" if stage == "weights" and not suffix else suffix, rank, ranks, tp, ep)
        if len(group) < 2:
            what = f"{operation} in a group of one rank"
            skipped[what] = skipped.get(what, 0) + 1
            return
        call = add(OPERATIONS[base], name, stage, after=after, size=values[1], group=group)
        if blocking:
            last = call
        else:
            open_calls.append(call)

    for number, row in rows:
        if len(row) != COLUMNS:
            raise PlanError(f"line {number}: {len(row)} columns: a layer has {COLUMNS}")
        part(number, row, 2, "forward", blocking=True)
    for number, row in reversed(rows):
        part(number, row, 5, "inputs", blocking=True)
        part(number, row, 8, "weights", blocking=False)
    return tuple(nodes)
