"""Reads workloads of AICB and SimAI: a line of the parallelism, a number of layers, one line of twelve columns for each.

Columns: name, -1, then computing (ns), communication and bytes three times (forward, backward for the inputs' gradients, backward for the
weights' gradients), and an update time, which SimAI does not use either. The suffix of a communication names its group: none is tensor
parallel, _DP data parallel, _EP expert parallel, _DP_EP data parallel among equal experts. All ranks run the same layers.

What SimAI's own front end makes of a file is a state machine; ours is the plain reading: all layers forward, then all backward from the
last to the first, in which the weights' communication overlaps with what follows. Pipeline stages and their messages are not in the file's
lines, so pp is taken as more data parallelism, and said so.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from scenarios.jobs.plan import COMPUTE, MOST_NODES, Node, Plan, PlanError

KEYS = {"model_parallel_NPU_group": "tp", "ep": "ep", "pp": "pp", "ga": "ga", "all_gpus": "all"}
OPERATIONS = {"ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "REDUCESCATTER": "reduce_scatter", "ALLTOALL": "all_to_all"}
COLUMNS = 12
MOST_BYTES = 64 << 20
"""Of a file [ours]."""
HEADS = ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER", "MICRO")


def read(path: Path, ranks: int) -> Plan:
    """The plan of so many ranks. Raises :class:`PlanError` with the number of the line, OSError."""
    if path.stat().st_size > MOST_BYTES:
        raise PlanError(f"{path.name} has more than {MOST_BYTES >> 20} MiB")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if len(lines) < 2:
        raise PlanError(f"{path.name}: {len(lines)} lines: the parallelism, a number of layers, and the layers are expected")
    sizes = _parallelism(lines[0])
    try:
        count = int(lines[1])
    except ValueError:
        raise PlanError(f"line 2: {_short(lines[1])} is not the number of layers") from None
    rows = [(number, line.split()) for number, line in enumerate(lines[2:], 3) if line.strip()]
    if count != len(rows):
        raise PlanError(f"line 2: {count} layers are announced, {len(rows)} are there: is the file complete?")
    if count * 6 * ranks > MOST_NODES:
        raise PlanError(f"line 2: {count:,} layers on {ranks} ranks are more than {MOST_NODES:,} nodes: cut the file, or use fewer ranks")
    tp, ep = sizes["tp"], sizes["ep"]
    skipped: dict[str, int] = {}
    if sizes["pp"] > 1:
        skipped[f"pp: {sizes['pp']} (a file of this kind has no messages between stages: taken as data parallel)"] = 1
    if sizes["all"] and sizes["all"] != ranks:
        skipped[f"all_gpus: {sizes['all']} (replayed on {ranks} ranks)"] = 1
    if ranks % tp:
        raise PlanError(f"line 1: tensor parallel over {tp} does not divide {ranks} ranks: use a multiple of {tp}")
    if ep > 1 and ranks // tp % ep:
        raise PlanError(f"line 1: expert parallel over {ep} does not divide {ranks // tp} data-parallel ranks: use a multiple of {tp * ep}")
    return Plan(tuple(_nodes(rows, rank, ranks, tp, ep, skipped if rank == 0 else {}) for rank in range(ranks)), skipped)


def _short(text: str) -> str:
    return ascii(text if len(text) <= 40 else text[:40] + "...")


def _parallelism(line: str) -> dict[str, int]:
    words = line.split()
    if not words or words[0] not in HEADS:
        raise PlanError(f"line 1: {_short(words[0] if words else '')} is no kind of job; there are {', '.join(HEADS)}")
    sizes = {"tp": 1, "ep": 1, "pp": 1, "ga": 1, "all": 0}
    for key, value in pairwise(words):
        short = KEYS.get(key.rstrip(":"))
        if short is not None:
            if not value.isdecimal() or not 1 <= int(value) <= 1 << 20:
                raise PlanError(f"line 1: {key} {_short(value)} is no number of GPUs or steps")
            sizes[short] = int(value)
    return sizes


def _group(suffix: str, rank: int, ranks: int, tp: int, ep: int) -> tuple[int, ...]:
    """Ranks of a group, as Megatron orders them: tensor parallel next to each other, experts next among data-parallel ones."""
    t, d = rank % tp, rank // tp
    match suffix:
        case "":
            return tuple(range(rank - t, rank - t + tp))
        case "DP":
            return tuple(range(t, ranks, tp))
        case "EP":
            return tuple(t + tp * (d - d % ep + e) for e in range(ep))
        case "DP_EP":
            return tuple(range(t + tp * (d % ep), ranks, tp * ep))
    raise KeyError(suffix)


def _nodes(rows: list[tuple[int, list[str]]], rank: int, ranks: int, tp: int, ep: int, skipped: dict[str, int]) -> tuple[Node, ...]:
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
        for text in (ns, size):
            try:
                value = float(text)
            except ValueError:
                value = -1.0
            if not 0 <= value < 2**62:  # which "nan" is not, either
                raise PlanError(f"line {number}: layer {_short(name)}: {_short(text)} is no time (ns) or number of bytes")
            values.append(int(value))
        after = () if last < 0 else (last,)
        if values[0]:
            last = add(COMPUTE, name, stage, after=after, ns=values[0])
            after = (last,)
        if operation == "NONE" or not values[1]:
            return
        base, _, suffix = operation.partition("_")
        if base not in OPERATIONS or suffix not in ("", "DP", "EP", "DP_EP"):
            raise PlanError(
                f"line {number}: layer {_short(name)}: {_short(operation)} cannot be replayed; there are {', '.join(OPERATIONS)}"
            )
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
