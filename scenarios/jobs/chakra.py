"""Reads Chakra execution traces: ``NAME.0.et``, ``NAME.1.et``, ..., one file per rank (MLCommons
Chakra, schema 0.0.4 and 1.0.0, of the same layout).

A file is a sequence of protobuf messages, each after its length as a varint: one GlobalMetadata,
then nodes. Chakra's own tools read it gzipped, too. Or it is JSON: what Chakra's jsonizer writes
(objects one after the other, in protobuf's mapping to JSON), or a table with a list of nodes:
``workload_graph``, which Chakra's feeder reads, or ``nodes``, which STAGE writes. Every length is
checked against what is there: a hostile file costs no more than its unpacked size.

Replayed: COMP nodes as time; COMM_COLL nodes of the kinds below; COMM_SEND and COMM_RECV. Sizes are
as ASTRA-sim takes them: an all-gather's is what one rank gives. Data dependencies are followed.
Control dependencies are, too, as in ASTRA-sim's feeder, unless one names a node that is not there
or they make a cycle: in a trace of PyTorch they say who called whom, the converter drops nodes that
others name, and Chakra's own feeder ignores them.

A group is named by the attribute ``pg_name``: in a JSON file, ``{"name": [ranks]}``, or in the
metadata node of PyTorch's process groups. No name is all ranks, and so is "0", as in ASTRA-sim,
unless somebody defines it.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from scenarios.jobs.content import MOST_FILE, content, is_json
from scenarios.jobs.plan import COMPUTE, NOTHING, RECV, SEND, Node, Plan, PlanError, ordered
from topologies import files
from topologies.units import MAX_TIME, NS

MOST_READ = 500_000
"""Nodes of all files, most of which do nothing in a trace of PyTorch [ours]."""
MOST_TABLES = 8_000_000
"""Tables and lists of a JSON file, a dozen to a node of some 70 bytes each [ours]."""
MOST_NAMED = 4096  # groups in a JSON file [ours]
MOST_RANKS = 1024
TYPES = (
    "INVALID",
    "METADATA",
    "MEM_LOAD",
    "MEM_STORE",
    "COMP",
    "COMM_SEND",
    "COMM_RECV",
    "COMM_COLL",
)
COLLECTIVE_TYPES = (
    "ALL_REDUCE",
    "REDUCE",
    "ALL_GATHER",
    "GATHER",
    "SCATTER",
    "BROADCAST",
    "ALL_TO_ALL",
    "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK",
    "BARRIER",
)
OPERATIONS = {
    "ALL_REDUCE": "all_reduce",
    "ALL_GATHER": "all_gather",
    "BROADCAST": "broadcast",
    "ALL_TO_ALL": "all_to_all",
    "REDUCE_SCATTER": "reduce_scatter",
    "REDUCE_SCATTER_BLOCK": "reduce_scatter",
    "BARRIER": "all_reduce",
}
BARRIER_BYTES = 4
Value = int | float | str | list[Any] | None
_NUMBERS = {7, 9, 11, 13, 27}
"""Attributes' varint fields: int32, int64, uint32, uint64, bool."""
_ZIGZAG = {15, 17}
_FIXED = {3: "<d", 5: "<f", 19: "<I", 21: "<Q", 23: "<i", 25: "<q"}
_BOOLS, _STRING = 28, 29
_FILE = re.compile(r"(?:(.+)[._-])?(?:rank[._-]?)?([0-9]{1,4})\.(et|json)(?:\.gz)?")
_OTHER = {  # keys of a JSON file -> what it is
    "traceEvents": (
        "a trace of PyTorch's profiler: chakra_trace_link joins it with the host's trace, "
        "chakra_converter makes NAME.0.et"
    ),
    "schema": (
        "an execution trace of PyTorch: chakra_trace_link and then chakra_converter PyTorch make "
        "NAME.0.et of it"
    ),
}


class _Broken(ValueError):
    """Bytes are not a protobuf message."""


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
    """Yield (field number, its int or bytes) of a message."""
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
                raise _Broken(
                    f"field {number} of {size} bytes, of which {len(data) - at} are there"
                )
            yield number, data[at : at + size]
            at += size
        else:
            raise _Broken(f"wire type {wire}")


def _numbers(value: int | memoryview) -> list[int]:
    if isinstance(value, int):
        return [value]
    result: list[int] = []
    at = 0
    while at < len(value):
        if len(result) >= MOST_READ:
            raise _Broken(f"a list of more than {MOST_READ:,} numbers")
        number, at = _varint(value, at)
        result.append(number)
    return result


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _whole(value: float) -> int | None:
    return int(value) if value == value // 1 else None  # which neither infinity nor "nan" is


def _attribute(data: memoryview) -> tuple[str, Value]:
    """Return None for a value of a kind that no node needs, and 0 for a missing one."""
    name, value, other = "", None, False
    for number, field in _fields(data):
        if number == 1 and not isinstance(field, int):
            name = bytes(field).decode(errors="replace")
        elif number in _NUMBERS and isinstance(field, int):
            value = _signed(field)
        elif number in _ZIGZAG and isinstance(field, int):
            value = field >> 1 ^ -(field & 1)
        elif (
            number in _FIXED
            and not isinstance(field, int)
            and len(field) == struct.calcsize(_FIXED[number])
        ):
            value = struct.unpack(_FIXED[number], field)[0]
        elif number == _BOOLS and not isinstance(field, int):
            return name, [bool(one) for _, values in _fields(field) for one in _numbers(values)]
        elif number == _STRING and not isinstance(field, int):
            return name, bytes(field).decode(errors="replace")
        else:
            other = other or number > 2
    return name, 0 if value is None and not other else value


class _Raw:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.number = self.type = self.micros = 0
        self.name = self.inputs = ""
        self.data: list[int] = []
        self.control: list[int] = []
        self.attributes: dict[str, Value] = {}

    def __str__(self) -> str:
        return f"rank {self.rank}: node {self.number} {self.name!r}"

    def read(self, data: memoryview) -> None:
        for number, field in _fields(data):
            if number in (1, 3, 7) and not isinstance(field, int):
                raise _Broken(f"field {number} of a node is no number")
            if number == 1:
                self.number = field
            elif number == 2 and not isinstance(field, int):
                self.name = bytes(field).decode(errors="replace")[:60]
            elif number == 3:
                self.type = field
            elif number == 4:
                self.control += _numbers(field)
            elif number == 5:
                self.data += _numbers(field)
            elif number == 7:
                self.micros = field
            elif (
                number == 8 and not isinstance(field, int) and self.type == TYPES.index("METADATA")
            ):
                texts = [
                    bytes(text)
                    for n, text in _fields(field)
                    if n == 1 and not isinstance(text, int)
                ]
                self.inputs = b"".join(texts).decode(errors="replace")
            elif number == 10 and not isinstance(field, int):
                name, value = _attribute(field)
                self.attributes[name] = value

    def take(self, data: Mapping[str, Any]) -> None:
        """Take a node by protobuf's own names, those of Chakra's feeder, or of STAGE."""
        for key, value in data.items():
            key = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", key).lower()
            if key == "id":
                self.number = _integer(value)
            elif key == "name":
                self.name = str(value)[:60]
            elif key in ("type", "node_type"):
                self.type = _place(value, TYPES)
            elif key in ("data_deps", "ctrl_deps") and isinstance(value, list):
                (self.data if key == "data_deps" else self.control).extend(map(_integer, value))
            elif key in ("duration_micros", "runtime"):
                self.micros = _integer(value)
            elif key == "inputs" and isinstance(value, dict):
                self.inputs = str(value.get("values", ""))
            elif key == "attr" and isinstance(value, list):
                for one in value:
                    if isinstance(one, dict):
                        kept = [
                            held
                            for name, held in one.items()
                            if name not in ("name", "docString", "doc_string")
                        ]
                        held = kept[0] if kept else 0
                        self.attributes[str(one.get("name"))] = (
                            held.get("values") if isinstance(held, dict) else held
                        )
            else:
                self.attributes[key] = value

    def value(self, name: str) -> int | None:
        value = self.attributes.get(name)
        if isinstance(value, str):
            return int(value) if re.fullmatch(r"-?[0-9]{1,20}", value) else None
        return (
            _whole(value) if isinstance(value, float) else value if isinstance(value, int) else None
        )

    @property
    def weight(self) -> int:
        """1 for a node and its first dependencies; those beyond take as much memory as nodes."""
        return 1 + (len(self.data) + len(self.control)) // 16

    @property
    def collective(self) -> str:
        value = self.attributes.get("comm_type") or 0
        try:
            return COLLECTIVE_TYPES[_place(value, COLLECTIVE_TYPES)]
        except (_Broken, IndexError):
            return f"comm_type {str(value)[:40]}"

    def groups(self, count: int) -> dict[str, tuple[int, ...]]:
        """Read PyTorch's groups, which a metadata node holds as JSON within a list; no ranks are
        all ranks."""
        try:
            named = json.loads(self.inputs[self.inputs.index("[{") : self.inputs.rindex("}]") + 2])
            return {
                str(one["pg_name"]): tuple(dict.fromkeys(map(_integer, one["ranks"])))
                or tuple(range(count))
                for one in named
            }
        except (ValueError, KeyError, TypeError, RecursionError):  # _Broken is a ValueError
            return {}


def _integer(value: Any) -> int:
    """Read a number, which protobuf's mapping to JSON writes as a string if it is long."""
    if isinstance(value, (int, float, str)) and re.fullmatch(
        r"[0-9]{1,20}(\.[0-9]*)?", text := str(value)
    ):
        return int(text.partition(".")[0])
    raise _Broken(f"{str(value)[:40]!r} is no number")


def _place(value: Any, names: tuple[str, ...]) -> int:
    """Take a name or a number: COMP_NODE, comp_node, coll_comm_node, ALLREDUCE."""
    word = re.sub(r"[^A-Z]", "", str(value).upper().removesuffix("_NODE")).replace(
        "COLLCOMM", "COMMCOLL"
    )
    plain = [name.replace("_", "") for name in names]
    return plain.index(word) if word in plain else _integer(value)


def _messages(data: memoryview, name: str) -> Iterator[memoryview]:
    at, count = 0, 0
    while at < len(data):
        begin = at
        try:
            size, at = _varint(data, at)
        except _Broken as error:
            raise PlanError(f"{name}: message {count} at byte {begin}: {error}") from None
        if size > len(data) - at:
            raise PlanError(
                f"{name}: message {count} at byte {begin} has {size} bytes, of which "
                f"{len(data) - at} are there"
            )
        yield data[at : at + size]
        at += size
        count += 1


def files_of(path: Path) -> list[Path]:
    """List files in rank order: of a directory, of any rank's file, or of ``NAME``. Raises
    :class:`PlanError`."""
    folder = path if path.is_dir() else path.parent
    found: dict[tuple[str, str], dict[int, Path]] = {}  # by name and kind
    files = sorted(file for file in (folder.iterdir() if folder.is_dir() else ()) if file.is_file())
    for file in files:
        if match := _FILE.fullmatch(file.name):
            found.setdefault((match[1] or "", match[3]), {}).setdefault(int(match[2]), file)
    if not path.is_dir():
        if path.exists() and not path.is_file():
            raise PlanError(f"{path} is no regular file: give a file")
        match = _FILE.fullmatch(path.name)
        if match is None and path.is_file():
            return [path]
        wanted = {(match[1] or "", match[3])} if match else {(path.name, "et"), (path.name, "json")}
        chosen = {key: ranks for key, ranks in found.items() if key in wanted}
        if not chosen or (match and not path.exists()):
            names = dict.fromkeys([file.name for file in files] + [name for name, _ in found])
            near = get_close_matches(path.name, names, 3, 0.5)
            raise PlanError(
                f"{path}: there is no such file"
                + (f": did you mean {' or '.join(near)}?" if near else "")
            )
        found = chosen
    if (
        len(found) > 1
        and len(kinds := {key: ranks for key, ranks in found.items() if key[1] == "et"}) == 1
    ):
        found = kinds
    if len(found) != 1:
        stems = sorted({name or "N" for name, _ in found})
        what = (
            f"traces of {len(found)} jobs ({', '.join(stems[:4])}): name one"
            if found
            else "no NAME.0.et, NAME.1.et, ... in it"
        )
        raise PlanError(f"{path}: {what}")
    ranks = next(iter(found.values()))
    if len(ranks) == 1:
        return list(ranks.values())
    if sorted(ranks) != list(range(len(ranks))) or len(ranks) > MOST_RANKS:
        missing = next((rank for rank in range(len(ranks)) if rank not in ranks), MOST_RANKS)
        raise PlanError(
            f"{path}: {len(ranks)} files, but none of rank {missing}; expected 2 to {MOST_RANKS} "
            "files, numbered from 0"
        )
    return [ranks[rank] for rank in range(len(ranks))]


def read_groups(path: Path) -> dict[str, tuple[int, ...]]:
    """Raises :class:`PlanError`."""
    try:
        data = files.parse_json(content(path, MOST_FILE >> 4), path)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from None
    except files.FileError as error:
        raise PlanError(str(error)) from None
    if not isinstance(data, dict) or len(data) > MOST_NAMED:
        count = (
            f"{len(data):,} groups, {MOST_NAMED:,} at most"
            if isinstance(data, dict)
            else "no table of groups"
        )
        raise PlanError(f'{path.name}: {count}: {{"name": [ranks], ...}} is expected')
    groups: dict[str, tuple[int, ...]] = {}
    for name, given in data.items():
        try:
            ranks = files.parse_json(given, path) if isinstance(given, str) else given
            if not isinstance(ranks, list) or len(ranks) > MOST_RANKS:
                raise _Broken
            groups[name] = tuple(dict.fromkeys(map(_integer, ranks)))
        except ValueError:
            raise PlanError(f"{path.name}: group {name[:40]!r} is no list of ranks") from None
    return groups


def _json(data: bytes, name: str, rank: int) -> Iterator[_Raw]:
    if (count := data.count(b"{") + data.count(b"[")) > MOST_TABLES:
        raise PlanError(
            f"{name}: {count:,} tables and lists, {MOST_TABLES:,} at most: replay fewer ranks or "
            "steps"
        )
    text, at = data.decode(errors="replace").strip(), 0
    # refused where it stands
    decoder = json.JSONDecoder(parse_int=lambda digits: int(digits) if len(digits) < 21 else digits)
    values: list[Any] = []
    try:
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            files.check_depth(value, Path(name))
            values += value if isinstance(value, list) else [value]
            at = next((n for n in range(at, len(text)) if text[n] not in " \t\r\n,"), len(text))
    except (ValueError, RecursionError) as error:
        why = (
            "its tables and lists lie too deep in each other"
            if isinstance(error, RecursionError)
            else error
        )
        raise PlanError(
            str(error) if isinstance(error, files.FileError) else f"{name}: {why}"
        ) from None
    first = values[0] if values and isinstance(values[0], dict) else {}
    listed = next(
        (first[key] for key in ("workload_graph", "nodes") if isinstance(first.get(key), list)),
        None,
    )
    if other := next((what for key, what in _OTHER.items() if key in first), None):
        raise PlanError(f"{name} is {other}")
    for count, value in enumerate(values if listed is None else listed):
        if (
            listed is None
            and count == 0
            and isinstance(value, dict)
            and not value.keys() & {"id", "Id", "type"}
        ):
            continue  # GlobalMetadata
        raw = _Raw(rank)
        try:
            if not isinstance(value, dict) or not {"type", "node_type", "nodetype"} & {
                key.lower() for key in value
            }:
                raise _Broken("it is no table with an id and a type")
            raw.take(value)
        except _Broken as error:
            raise PlanError(f"{name}: object {count} is no node: {error}") from None
        yield raw


def _protobuf(data: bytes, name: str, rank: int) -> Iterator[_Raw]:
    for count, message in enumerate(_messages(memoryview(data), name)):
        raw = _Raw(rank)
        try:
            if count == 0:
                if any(
                    number == 1 and isinstance(field, int) for number, field in _fields(message)
                ):
                    raise PlanError(
                        f"{name}: it begins with a node, not with GlobalMetadata: of a schema "
                        "before 0.0.4, which is not read"
                    )
                continue
            raw.read(message)
        except _Broken as error:
            raise PlanError(
                f"{name}: message {count} is no {'node' if count else 'GlobalMetadata'}: {error}"
            ) from None
        yield raw


def read(
    path: Path, groups: Mapping[str, tuple[int, ...]] | None = None, ranks: int | None = None
) -> Plan:
    """``ranks``: how many carry out a trace of one file; otherwise each has its own. Raises
    :class:`PlanError` with the node's number, OSError."""
    found = files_of(path)
    if len(found) == 1:
        if ranks is None:
            _nodes_of(found[0], 0, MOST_READ)  # that it is something else is said first
            raise PlanError(
                f"{found[0].name} is the trace of one rank: --ranks N has N ranks carry it out"
            )
        found *= ranks
    skipped: dict[str, int] = {}
    made: list[list[Node]] = []
    control: list[list[tuple[int, ...]]] = []
    weight = 0
    for rank, file in enumerate(found):
        if rank == 0 or file != found[0]:
            raws = _nodes_of(file, rank, MOST_READ - weight)
        if (weight := weight + sum(raw.weight for raw in raws)) > MOST_READ:
            raise PlanError(_too_many(file))
        named: dict[str, tuple[int, ...]] = {}
        for raw in raws:
            raw.rank = rank
            named |= raw.groups(len(found)) if raw.inputs else {}
        named |= groups or {}
        made.append([_node(raw, len(found), named, skipped) for raw in raws])
        control.append([tuple(raw.control) for raw in raws])
    if not any(before for own in control for before in own):
        return Plan(tuple(map(tuple, made)), skipped)
    both = [
        [_with(node, before) for node, before in zip(*own, strict=True)]
        for own in zip(made, control, strict=True)
    ]
    if why := next(filter(None, map(_contradiction, both, range(len(both)))), None):
        what = f"control dependencies ({why}: data dependencies alone are followed)"
        skipped[what] = sum(len(before) for own in control for before in own)
        both = made
    return Plan(tuple(map(tuple, both)), skipped)


def _nodes_of(file: Path, rank: int, most: int) -> list[_Raw]:
    data = content(file)
    raws: list[_Raw] = []
    for raw in (_json if is_json(data) else _protobuf)(data, file.name, rank):
        raws.append(raw)
        most -= raw.weight
        if most < 0:
            raise PlanError(_too_many(file))
    if not raws:
        raise PlanError(f"{file.name}: there are no nodes")
    return raws


def _too_many(file: Path) -> str:
    return f"{file.name}: more than {MOST_READ:,} nodes in all: replay fewer ranks or steps"


def _with(node: Node, before: tuple[int, ...]) -> Node:
    return replace(node, after=tuple(dict.fromkeys((*before, *node.after)))) if before else node


def _contradiction(nodes: Sequence[Node], rank: int) -> str | None:
    numbers = {node.number for node in nodes}
    for node in nodes:
        for before in node.after:
            if before not in numbers:
                return f"one names node {before}, which is not there"
    try:
        ordered(nodes, rank)
    except PlanError:
        return "with the data dependencies they make a cycle"
    return None


def _node(
    raw: _Raw, count: int, groups: Mapping[str, tuple[int, ...]], skipped: dict[str, int]
) -> Node:
    after = tuple(dict.fromkeys(raw.data))
    kind = TYPES[raw.type] if raw.type < len(TYPES) else f"type {raw.type}"

    def nothing(what: str) -> Node:
        skipped[what] = skipped.get(what, 0) + 1
        return Node(raw.number, NOTHING, "", after)

    size, written = raw.value("comm_size"), raw.attributes.get("comm_size")
    if written is not None and (size is None or not 0 <= size < 1 << 62):
        raise PlanError(f"{raw}: comm_size {str(written)[:40]} is no number of bytes")
    match kind:
        case "COMP":
            if raw.value("is_cpu_op"):
                return nothing("COMP nodes of the CPU")
            if raw.micros * 1000 > MAX_TIME // NS:
                raise PlanError(f"{raw}: {raw.micros} us are more than a day")
            if not raw.micros and raw.value("num_ops"):
                return nothing(
                    "COMP nodes with num_ops and without duration_micros: nobody knows how long "
                    "they take"
                )
            return Node(
                raw.number,
                COMPUTE if raw.micros else NOTHING,
                raw.name,
                after,
                ns=raw.micros * 1000,
            )
        case "METADATA" | "MEM_LOAD" | "MEM_STORE" | "INVALID":
            return nothing(f"{kind} nodes")
        case "COMM_SEND" | "COMM_RECV":
            if size is None:
                return nothing(f"{kind} nodes without comm_size")
            other = "comm_dst" if kind == "COMM_SEND" else "comm_src"
            peer = raw.value(other)
            if peer is None:
                return nothing(f"{kind} nodes without {other}: nobody knows with whom")
            own = SEND if kind == "COMM_SEND" else RECV
            return Node(
                raw.number,
                own,
                raw.name,
                after,
                size=size,
                peer=peer,
                tag=raw.value("comm_tag") or 0,
            )
        case "COMM_COLL":
            return _collective(
                raw, Node(raw.number, NOTHING, raw.name, after), size, count, groups, nothing
            )
    raise PlanError(f"{raw}: nodes of {kind} cannot be replayed")


def _collective(
    raw: _Raw,
    node: Node,
    size: int | None,
    count: int,
    groups: Mapping[str, tuple[int, ...]],
    nothing: Callable[[str], Node],
) -> Node:
    name = raw.collective
    if size is None and name != "BARRIER":
        return nothing("COMM_COLL nodes without comm_size (what the host does around a call)")
    if name not in OPERATIONS:
        return nothing(f"{name} nodes (there are {', '.join(OPERATIONS)})")
    named = raw.attributes.get("pg_name")
    if str(named) in groups:
        group = groups[str(named)]
    elif named in (None, "", "0", 0):
        group = tuple(range(count))
    else:
        raise PlanError(
            f"{raw}: its group {str(named)[:40]!r} is in no file of groups: give one with "
            "--groups FILE"
        )
    dimensions = raw.attributes.get("involved_dim")
    if isinstance(dimensions, list) and not all(dimensions) and group == tuple(range(count)):
        what = "involved_dim with a dimension left out (the call is of its whole group)"
        nothing(what)
    if len(group) == 1:
        return nothing(f"{name} in a group of one rank")
    total = (
        BARRIER_BYTES
        if name == "BARRIER"
        else (size or 0) * (len(group) if name == "ALL_GATHER" else 1)
    )
    return replace(node, kind=OPERATIONS[name], size=total, group=group)
