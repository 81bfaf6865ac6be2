"""Reads Chakra execution traces: ``NAME.0.et``, ``NAME.1.et``, ..., one file per rank (MLCommons Chakra, schema 0.0.4).

A file is a sequence of protobuf messages, each after its length as a varint: one GlobalMetadata, then nodes. Only what is needed is read,
and every length is checked against what is there, so a hostile file costs no more than its own size.

Replayed: COMP nodes as time; COMM_COLL nodes of the kinds below; COMM_SEND and COMM_RECV; both kinds of dependency. Sizes as ASTRA-sim
takes them: an all-gather's is what one rank gives. Groups are those of a JSON file, ``{"name": [ranks]}``, as ASTRA-sim reads it, named by
the attribute ``pg_name``; without one a collective is of all ranks.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scenarios.jobs.plan import COMPUTE, MOST_NODES, NOTHING, RECV, SEND, Node, Plan, PlanError

MOST_FILE = 64 << 20
"""Bytes of a file [ours]."""
MOST_NAMED = 4096
"""Groups in a JSON file [ours]."""
MOST_RANKS = 1024
TYPES = ("INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL")
COLLECTIVE_TYPES = (
    "ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK",
    "BARRIER",
)  # fmt: skip
OPERATIONS = {
    "ALL_REDUCE": "all_reduce", "ALL_GATHER": "all_gather", "BROADCAST": "broadcast", "ALL_TO_ALL": "all_to_all",
    "REDUCE_SCATTER": "reduce_scatter", "BARRIER": "all_reduce",
}  # fmt: skip
BARRIER_BYTES = 4
_NUMBERS = {7, 9, 11, 13, 27}
"""Fields of an attribute that hold a plain varint: int32, int64, uint32, uint64, bool."""
_ZIGZAG = {15, 17}
_STRING = 29
_FILE = re.compile(r"(.+)\.(\d{1,4})\.et")


class _Broken(ValueError):
    """Bytes that are no protobuf message."""


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise _Broken("it ends within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
        shift += 7
        if shift > 63:
            raise _Broken("a number has more than ten bytes")


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """(field number, its int or bytes) of a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire in (1, 5, 2):
            size = 8 if wire == 1 else 4
            if wire == 2:
                size, at = _varint(data, at)
            if size > len(data) - at:
                raise _Broken(f"field {number} of {size} bytes, of which {len(data) - at} are there")
            yield number, data[at : at + size]
            at += size
        else:
            raise _Broken(f"wire type {wire}")


def _numbers(value: int | memoryview) -> list[int]:
    """A repeated number: one, or packed."""
    if isinstance(value, int):
        return [value]
    result, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        result.append(number)
    return result


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _attribute(data: memoryview) -> tuple[str, int | str | None]:
    """Name and value; a value of a kind that no node needs is None, and one that is left out 0."""
    name, value, other = "", None, False
    for number, field in _fields(data):
        if number == 1 and not isinstance(field, int):
            name = bytes(field).decode(errors="replace")
        elif number in _NUMBERS and isinstance(field, int):
            value = _signed(field)
        elif number in _ZIGZAG and isinstance(field, int):
            value = field >> 1 ^ -(field & 1)
        elif number in (19, 21) and not isinstance(field, int):
            value = struct.unpack("<I" if len(field) == 4 else "<Q", field)[0]
        elif number == _STRING and not isinstance(field, int):
            return name, bytes(field).decode(errors="replace")
        else:
            other = number > 2
    return name, 0 if value is None and not other else value


class _Raw:
    """A node as its file has it."""

    def __init__(self, data: memoryview) -> None:
        self.number = self.type = self.micros = 0
        self.name = ""
        self.after: list[int] = []
        self.attributes: dict[str, int | str | None] = {}
        for number, field in _fields(data):
            if number in (1, 3, 7) and not isinstance(field, int):
                raise _Broken(f"field {number} of a node is no number")
            if number == 1:
                self.number = field
            elif number == 2 and not isinstance(field, int):
                self.name = bytes(field).decode(errors="replace")[:60]
            elif number == 3:
                self.type = field
            elif number in (4, 5):
                self.after += _numbers(field)
            elif number == 7:
                self.micros = field
            elif number == 10 and not isinstance(field, int):
                name, value = _attribute(field)
                self.attributes[name] = value

    def value(self, name: str) -> int | None:
        value = self.attributes.get(name)
        return value if isinstance(value, int) else None


def _messages(data: memoryview, name: str) -> Iterator[memoryview]:
    at, count = 0, 0
    while at < len(data):
        begin = at
        try:
            size, at = _varint(data, at)
        except _Broken as error:
            raise PlanError(f"{name}: message {count} at byte {begin}: {error}") from None
        if size > len(data) - at:
            raise PlanError(f"{name}: message {count} at byte {begin} has {size} bytes, of which {len(data) - at} are there")
        yield data[at : at + size]
        at += size
        count += 1


def files_of(path: Path) -> list[Path]:
    """The files of all ranks, in order: of a directory, of the file of any rank, or of ``NAME``. Raises :class:`PlanError`."""
    folder = path if path.is_dir() else path.parent
    found: dict[str, dict[int, Path]] = {}
    for file in folder.glob("*.et"):
        if match := _FILE.fullmatch(file.name):
            found.setdefault(match[1], {})[int(match[2])] = file
    if not path.is_dir():
        match = _FILE.fullmatch(path.name)
        stem = match[1] if match else path.name
        found = {stem: found[stem]} if stem in found else {}
    if len(found) != 1:
        what = f"traces of {len(found)} jobs ({', '.join(sorted(found)[:4])}): name one" if found else "no NAME.0.et, NAME.1.et, ..."
        raise PlanError(f"{path}: {what}")
    ranks = next(iter(found.values()))
    if sorted(ranks) != list(range(len(ranks))) or len(ranks) > MOST_RANKS:
        missing = next((rank for rank in range(len(ranks)) if rank not in ranks), MOST_RANKS)
        raise PlanError(f"{path}: {len(ranks)} files, but none of rank {missing}; there are to be 2 to {MOST_RANKS}, numbered from 0")
    return [ranks[rank] for rank in range(len(ranks))]


def read_groups(path: Path) -> dict[str, tuple[int, ...]]:
    """Groups by name. Raises :class:`PlanError`."""
    try:
        if path.stat().st_size > MOST_FILE >> 4:
            raise PlanError(f"{path.name} has more than {MOST_FILE >> 24} MiB")
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError(f"{path.name}: {error}") from None
    if not isinstance(data, dict) or len(data) > MOST_NAMED:
        count = f"{len(data):,} groups, {MOST_NAMED:,} at most" if isinstance(data, dict) else "no table of groups"
        raise PlanError(f'{path.name}: {count}: {{"name": [ranks], ...}} is expected')
    groups: dict[str, tuple[int, ...]] = {}
    for name, ranks in data.items():
        if not isinstance(ranks, list) or not all(isinstance(r, int) and not isinstance(r, bool) for r in ranks) or len(ranks) > MOST_RANKS:
            raise PlanError(f"{path.name}: group {name[:40]!r} is no list of ranks")
        groups[name] = tuple(dict.fromkeys(ranks))
    return groups


def read(path: Path, groups: Mapping[str, tuple[int, ...]] | None = None) -> Plan:
    """The plan. Raises :class:`PlanError` with the node's number, OSError."""
    files = files_of(path)
    skipped: dict[str, int] = {}
    ranks: list[tuple[Node, ...]] = []
    total = 0
    for rank, file in enumerate(files):
        if file.stat().st_size > MOST_FILE:
            raise PlanError(f"{file.name} has more than {MOST_FILE >> 20} MiB")
        nodes: list[Node] = []
        for count, message in enumerate(_messages(memoryview(file.read_bytes()), file.name)):
            if count == 0:
                continue  # GlobalMetadata
            total += 1
            if total > MOST_NODES:
                raise PlanError(f"{file.name}: more than {MOST_NODES:,} nodes in all: replay fewer ranks or steps")
            try:
                raw = _Raw(message)
            except _Broken as error:
                raise PlanError(f"{file.name}: message {count} is no node: {error}") from None
            nodes.append(_node(raw, rank, len(files), groups or {}, skipped))
        if not nodes:
            raise PlanError(f"{file.name}: there are no nodes")
        ranks.append(tuple(nodes))
    return Plan(tuple(ranks), skipped)


def _node(raw: _Raw, rank: int, count: int, groups: Mapping[str, tuple[int, ...]], skipped: dict[str, int]) -> Node:
    where = f"rank {rank}: node {raw.number} {raw.name!r}"
    after = tuple(dict.fromkeys(raw.after))
    kind = TYPES[raw.type] if raw.type < len(TYPES) else f"type {raw.type}"

    def nothing(what: str) -> Node:
        skipped[what] = skipped.get(what, 0) + 1
        return Node(raw.number, NOTHING, raw.name, after)

    size = raw.value("comm_size")
    if size is not None and not 0 <= size < 1 << 62:
        raise PlanError(f"{where}: comm_size {size} is no number of bytes")
    match kind:
        case "COMP":
            if raw.value("is_cpu_op"):
                return nothing("COMP nodes of the CPU")
            if raw.micros >= 1 << 40:
                raise PlanError(f"{where}: {raw.micros} us are more than twelve days")
            if not raw.micros and raw.value("num_ops"):
                return nothing("COMP nodes with num_ops and without duration_micros: nobody knows how long they take")
            return Node(raw.number, COMPUTE, raw.name, after, ns=raw.micros * 1000)
        case "METADATA" | "MEM_LOAD" | "MEM_STORE":
            return nothing(f"{kind} nodes")
        case "COMM_SEND" | "COMM_RECV":
            if size is None:
                return nothing(f"{kind} nodes without comm_size")
            peer = raw.value("comm_dst" if kind == "COMM_SEND" else "comm_src")
            if peer is None:
                raise PlanError(f"{where}: {kind} without {'comm_dst' if kind == 'COMM_SEND' else 'comm_src'}")
            own = SEND if kind == "COMM_SEND" else RECV
            return Node(raw.number, own, raw.name, after, size=size, peer=peer, tag=raw.value("comm_tag") or 0)
        case "COMM_COLL":
            return _collective(raw, where, after, size, count, groups, nothing)
    raise PlanError(f"{where}: nodes of {kind} cannot be replayed")


def _collective(
    raw: _Raw, where: str, after: tuple[int, ...], size: int | None, count: int, groups: Mapping[str, tuple[int, ...]], nothing: Any
) -> Node:  # fmt: skip
    number = raw.value("comm_type") or 0
    name = COLLECTIVE_TYPES[number] if 0 <= number < len(COLLECTIVE_TYPES) else f"comm_type {number}"
    if size is None and name != "BARRIER":
        wrapper: Node = nothing("COMM_COLL nodes without comm_size (what the host does around a call)")
        return wrapper
    if name not in OPERATIONS:
        raise PlanError(f"{where}: {name} cannot be replayed; there are {', '.join(OPERATIONS)}")
    named = raw.attributes.get("pg_name")
    if named in (None, ""):
        group = tuple(range(count))
    elif str(named) in groups:
        group = groups[str(named)]
    else:
        raise PlanError(f"{where}: its group {str(named)[:40]!r} is in no file of groups: give one with --groups FILE")
    if len(group) == 1:
        alone: Node = nothing(f"{name} in a group of one rank")
        return alone
    total = BARRIER_BYTES if name == "BARRIER" else (size or 0) * (len(group) if name == "ALL_GATHER" else 1)
    return Node(raw.number, OPERATIONS[name], raw.name, after, size=total, group=group)
