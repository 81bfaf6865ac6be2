"""Scenario files: TOML in, one frozen :class:`Scenario` out, or one clear line about what is wrong.

Called by the command line and the runner. It reads files and nothing else: no network, no root. docs/scenarios.md is the manual.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from agents.collectives.ring import ARENA
from agents.device import make_engine
from scenarios.checks import CheckError, names_in
from testbed.errors import UserError
from topologies import Fabric, FabricError, load_fabric
from topologies.theory import PLACEMENTS, links_of_switch, place_ranks

HERE = Path(__file__).parent
KINDS = ("mrc", "roce")
DTYPES = ("float32", "int32")
USED_BY_QP = "used-by-qp"
_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9}


class ScenarioError(UserError):
    """A scenario that cannot run: one line with file, key and fix."""


@dataclass(frozen=True)
class Workload:
    kind: str = "ring-allreduce"
    placement: tuple[str, ...] = ("packed",)
    message_bytes: int = 1 << 20  # per rank
    dtype: str = "float32"
    steps: int = 10  # measured ones
    warmup_steps: int = 1
    slices: int = 4  # pipelined parts of each ring chunk


@dataclass(frozen=True)
class Transport:
    kind: str
    name: str
    fabric: Fabric
    reconvergence_ns: int | None  # after which a network that re-routes has done so; None for MRC, which needs none
    qps: int = 1  # per ring edge
    options: dict[str, Any] = field(default_factory=dict)  # the engine's own


@dataclass(frozen=True)
class Fault:
    name: str
    kind: str  # link or switch
    on: str  # a link's or switch's name, or "used-by-qp"
    at_ns: int | None  # after the first measured step began; None: by step
    step: int | None  # begins with this measured step, from 0
    for_ns: int | None  # None: until the run ends
    ranks: tuple[int, int] | None = None  # whose QP, for "used-by-qp"; None: the first ring edge across T0s


@dataclass(frozen=True)
class Expect:
    check: str
    name: str
    placement: str | None = None  # only there; None: everywhere


@dataclass(frozen=True)
class Scenario:
    name: str
    description: str
    seeds: tuple[int, ...]
    timeout_ns: int  # of one run
    workload: Workload
    transports: tuple[Transport, ...]
    faults: tuple[Fault, ...]
    expects: tuple[Expect, ...]
    file: str
    text: str  # as read, for the manifest

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the manifest, everything resolved."""
        data = asdict(replace(self, transports=()))
        data["transports"] = [{**asdict(t), "fabric": t.fabric.to_dict()} for t in self.transports]
        return data


def named_scenarios() -> tuple[str, ...]:
    """Names that :func:`load_scenario` knows."""
    return tuple(sorted(path.stem for path in HERE.glob("*.toml")))


def load_scenario(
    name_or_file: str,
    *,
    fabric: str | None = None,
    transports: Sequence[str] = (),
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> Scenario:
    """A named scenario or a TOML file, with the command line's changes applied. Raises :class:`ScenarioError`."""
    path = Path(name_or_file)
    if path.suffix != ".toml":
        path = HERE / f"{name_or_file}.toml"
        if not path.is_file():
            raise ScenarioError(f"no scenario {name_or_file!r}: there are {', '.join(named_scenarios())}, or give a .toml file")
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except OSError as error:
        raise ScenarioError(f"cannot read scenario file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"scenario file {path} is not valid TOML: {error}") from None
    data.setdefault("name", path.stem)
    for item in overrides:
        _override(data, item)
    if fabric is not None:
        data["fabric"] = fabric
    if seeds:
        data["seeds"] = list(seeds)
    reader = _Reader(path.name if path.parent == HERE else str(path))
    return reader.scenario(data, str(path), text, transports)


def _override(data: dict[str, Any], item: str) -> None:
    """``workload.steps=3``, ``transport.roce.options.qps=2``, ``fault.0.at=1``: lists by number, name or kind."""
    dotted, equals, raw = item.partition("=")
    if not equals:
        raise ScenarioError(f"--set {item}: write it like --set workload.steps=3")
    try:
        value = tomllib.loads(f"x = {raw}")["x"]
    except tomllib.TOMLDecodeError:
        value = raw
    *parents, last = dotted.split(".")
    at: Any = data
    for key in parents:
        if isinstance(at, dict):
            at = at.setdefault(key, {})
        if isinstance(at, list) and key != parents[0]:
            at = _of_list(at, key, item)
    if isinstance(at, list):
        raise ScenarioError(f"--set {item}: say which one, like --set {'.'.join(parents)}.0.{last}={raw}")
    if not isinstance(at, dict):
        raise ScenarioError(f"--set {item}: {'.'.join(parents)!r} holds no further keys")
    at[last] = value


def _of_list(entries: list[Any], key: str, item: str) -> Any:
    if key.isdigit() and int(key) < len(entries):
        return entries[int(key)]
    for which in ("name", "kind"):
        for entry in entries:
            if isinstance(entry, dict) and entry.get(which) == key:
                return entry
    raise ScenarioError(f"--set {item}: there is no {key!r} in a list of {len(entries)}")


def parse_duration(value: Any) -> int:
    """``"0.5s"``, ``"20ms"`` or a number of seconds, as ns. Raises ValueError."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        ns = value * 10**9
    else:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|min)?", str(value).strip())
        if not match:
            raise ValueError("is not a time: write it like '0.5s' or as a number of seconds")
        ns = float(match[1]) * _TIMES[match[2] or "s"]
    if not 0 <= ns < 1e14:
        raise ValueError("is not a time between 0 and a day")
    return round(ns)


def parse_size(value: Any) -> int:
    """``"4MiB"`` or a number of bytes, as bytes. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", str(value).strip())
    if isinstance(value, bool) or not match or match[2].upper() not in _SIZES:
        raise ValueError("is not a size: write it like '4MiB' or as a number of bytes")
    return round(float(match[1]) * _SIZES[match[2].upper()])


def twin_of(fabric: Fabric) -> Fabric:
    """The same hosts and switches on a single plane with the same rate per host."""
    return fabric.with_(
        name=f"{fabric.name}-1p", planes=1, nic_rate=fabric.nic_rate * fabric.planes, fabric_rate=fabric.fabric_rate * fabric.planes
    )


class _Reader:
    """Takes the dictionaries apart; every error names the file and the dotted key."""

    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, key: str, message: str) -> ScenarioError:
        return ScenarioError(f"{self.file}: {key} {message}")

    def table(self, data: Any, where: str, known: Sequence[str], required: Sequence[str] = ()) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise self.fail(where, "must be a table")
        dot = f"{where}." if where else ""
        for key in data:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
                raise self.fail(dot + key, f"is not a key: did you mean {near!r}?")
        for key in required:
            if key not in data:
                raise self.fail(dot + key, "is missing")
        return data

    def list_of(self, data: dict[str, Any], key: str) -> list[Any]:
        value = data.get(key, [])
        if not isinstance(value, list):
            raise self.fail(key, f"must be written as [[{key}]]")
        return value

    def whole(self, data: dict[str, Any], key: str, where: str, default: int, low: int, high: int) -> int:
        value = data.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.fail(f"{where}.{key}", f"= {value!r} must be a whole number in {low}..{high}")
        return value

    def one_of(self, value: Any, allowed: Sequence[str], where: str) -> str:
        if value not in allowed:
            raise self.fail(where, f"= {value!r}: there are {', '.join(allowed)}")
        return str(value)

    def parsed(self, parse: Callable[[Any], int], value: Any, where: str) -> int:
        try:
            return parse(value)
        except ValueError as error:
            raise self.fail(where, f"= {value!r} {error}") from None

    def fabric(self, value: Any, where: str, base: Fabric | None = None) -> Fabric:
        if value == "twin" and base is not None:
            return twin_of(base)
        if not isinstance(value, str):
            raise self.fail(where, f"= {value!r} must be a fabric's name or file")
        try:
            return load_fabric(value)
        except FabricError as error:
            raise self.fail(where, f": {error}") from None

    # --- the parts -------------------------------------------------------------------------------------------

    def scenario(self, data: Any, file: str, text: str, wanted: Sequence[str]) -> Scenario:
        top = ("name", "description", "fabric", "seeds", "timeout", "workload", "transport", "fault", "expect")
        self.table(data, "", top, ("fabric", "workload", "transport"))
        base = self.fabric(data["fabric"], "fabric")
        seeds = data.get("seeds", [1])
        if not isinstance(seeds, list) or not seeds or not all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in seeds):
            raise self.fail("seeds", f"= {seeds!r} must be a list of whole numbers, like [1, 2, 3]")
        workload = self.workload(data["workload"])
        every = [self.transport(t, f"transport[{i}]", base) for i, t in enumerate(self.list_of(data, "transport"))]
        if len({t.name for t in every}) < len(every):
            raise self.fail("transport", f"names are not unique ({', '.join(t.name for t in every)}): give each its own name")
        chosen = self.chosen(every, wanted, base)
        for transport in chosen:
            self.fits(workload, transport.fabric)
            for placement in workload.placement:
                try:
                    place_ranks(transport.fabric, placement)
                except FabricError as error:
                    raise self.fail("workload.placement", f": {error}") from None
        faults = tuple(self.fault(f, f"fault[{i}]", chosen, workload) for i, f in enumerate(self.list_of(data, "fault")))
        expects = [self.expect(e, f"expect[{i}]", [*every, *chosen], workload) for i, e in enumerate(self.list_of(data, "expect"))]
        names = {t.name.replace("-", "_") for t in chosen}
        return Scenario(
            name=str(data["name"]),
            description=str(data.get("description", "")).strip(),
            seeds=tuple(seeds),
            timeout_ns=self.parsed(parse_duration, data.get("timeout", "120s"), "timeout"),
            workload=workload,
            transports=tuple(chosen),
            faults=faults,
            expects=tuple(e for e in expects if names_in(e.check) <= names),  # those of transports left out are not asked
            file=file,
            text=text,
        )

    def fits(self, workload: Workload, fabric: Fabric) -> None:
        """A message is cut into ranks x slices equal parts of whole elements and lies four times in an agent's memory."""
        unit = fabric.host_count * workload.slices * 4
        size = workload.message_bytes
        if size % unit:
            near = max(1, round(size / unit)) * unit
            raise self.fail("workload.message_bytes", f"= {size} must be a multiple of {unit} (ranks x slices x 4 bytes): {near} is")
        if size > ARENA // 4:
            raise self.fail("workload.message_bytes", f"= {size} is more than {ARENA // 4}")

    def chosen(self, every: list[Transport], wanted: Sequence[str], base: Fabric) -> list[Transport]:
        if not every:
            raise self.fail("transport", 'is empty: add a [[transport]] with kind = "mrc"')
        out: list[Transport] = []
        for name in wanted:
            found = [t for t in every if t.name == name] or [t for t in every if t.kind == name]
            if not found:
                if name not in KINDS:
                    raise ScenarioError(
                        f"--transport {name}: {self.file} has {', '.join(t.name for t in every)}; kinds are {', '.join(KINDS)}"
                    )
                found = [self.transport({"kind": name}, f"--transport {name}", base)]
            out += [t for t in found if t not in out]
        return out or every

    def workload(self, data: Any) -> Workload:
        w = "workload"
        self.table(data, w, tuple(Workload.__dataclass_fields__), ("kind", "message_bytes", "steps"))
        placement = data.get("placement", ["packed"])
        places = placement if isinstance(placement, list) and placement else [placement]
        out = Workload(
            kind=self.one_of(data["kind"], ("ring-allreduce",), f"{w}.kind"),
            placement=tuple(dict.fromkeys(self.one_of(p, PLACEMENTS, f"{w}.placement") for p in places)),
            message_bytes=self.parsed(parse_size, data["message_bytes"], f"{w}.message_bytes"),
            dtype=self.one_of(data.get("dtype", "float32"), DTYPES, f"{w}.dtype"),
            steps=self.whole(data, "steps", w, 10, 1, 1_000_000),
            warmup_steps=self.whole(data, "warmup_steps", w, 1, 0, 1000),
            slices=self.whole(data, "slices", w, 4, 1, 64),
        )
        if out.message_bytes % 4 or out.message_bytes < 4:
            raise self.fail(f"{w}.message_bytes", f"= {out.message_bytes} must be a multiple of 4")
        return out

    def transport(self, data: Any, where: str, base: Fabric) -> Transport:
        self.table(data, where, ("kind", "name", "fabric", "options"), ("kind",))
        kind = self.one_of(data["kind"], KINDS, f"{where}.kind")
        options = dict(data.get("options", {})) if isinstance(data.get("options", {}), dict) else None
        if options is None:
            raise self.fail(f"{where}.options", "must be a table")
        fabric = self.fabric(data["fabric"], f"{where}.fabric", base) if "fabric" in data else base
        name = data.get("name", kind)
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,30}", name):
            raise self.fail(f"{where}.name", f"= {name!r} must be letters, digits, '-' or '_'")
        qps = self.whole(options, "qps", f"{where}.options", 1, 1, 64)
        options.pop("qps", None)
        reconvergence: int | None = None
        if kind != "mrc":
            reconvergence = self.parsed(parse_duration, options.pop("reconvergence", "0.5s"), f"{where}.options.reconvergence")
        elif "reconvergence" in options:
            raise self.fail(f"{where}.options.reconvergence", "is for transports that wait for the network; MRC never does")
        try:  # the engine judges its own options, now rather than once a fabric stands
            make_engine(kind, fabric, 0, options, 0)
        except ValueError as error:
            raise self.fail(f"{where}.options", f"- {error}") from None
        return Transport(kind, name, fabric, reconvergence, qps, options)

    def fault(self, data: Any, where: str, transports: list[Transport], workload: Workload) -> Fault:
        self.table(data, where, ("name", "kind", "on", "at", "step", "for", "ranks"), ("kind", "on"))
        kind = self.one_of(data["kind"], ("link", "switch"), f"{where}.kind")
        if ("at" in data) == ("step" in data):
            raise self.fail(where, "needs either 'at' (seconds after the first measured step began) or 'step' (a step's number)")
        on = str(data["on"])
        ranks = data.get("ranks")
        if ranks is not None:
            fewest = min(t.fabric.host_count for t in transports)
            good = (
                isinstance(ranks, list)
                and len(ranks) == 2
                and all(isinstance(r, int) and 0 <= r < fewest for r in ranks)
                and ranks[0] != ranks[1]
            )
            if not good or on != USED_BY_QP:
                raise self.fail(f"{where}.ranks", f"= {ranks!r} must be two different ranks below {fewest}, with on = {USED_BY_QP!r}")
        if on == USED_BY_QP:
            if kind != "link":
                raise self.fail(f"{where}.on", f"= {USED_BY_QP!r} is for kind = 'link'")
        elif not any(self.exists(t.fabric, kind, on) for t in transports):
            fabric = transports[0].fabric
            try:
                fabric.link(on) if kind == "link" else links_of_switch(fabric, on)
            except FabricError as error:
                raise self.fail(f"{where}.on", f": {error}") from None
        step = self.whole(data, "step", where, 0, 0, workload.steps - 1) if "step" in data else None
        return Fault(
            name=str(data.get("name", f"{kind} {on} down")),
            kind=kind,
            on=on,
            at_ns=self.parsed(parse_duration, data["at"], f"{where}.at") if step is None else None,
            step=step,
            for_ns=self.parsed(parse_duration, data["for"], f"{where}.for") if "for" in data else None,
            ranks=(ranks[0], ranks[1]) if ranks is not None else None,
        )

    @staticmethod
    def exists(fabric: Fabric, kind: str, on: str) -> bool:
        if kind == "switch":
            return on in fabric.switches
        return on in fabric.links_by_name or ":".join(reversed(on.split(":"))) in fabric.links_by_name

    def expect(self, data: Any, where: str, transports: list[Transport], workload: Workload) -> Expect:
        self.table(data, where, ("check", "name", "placement"), ("check",))
        check = str(data["check"])
        try:
            names = names_in(check)
        except CheckError as error:
            raise self.fail(f"{where}.check", f"= {check!r}: {error}") from None
        known = {t.name.replace("-", "_") for t in transports}
        for name in sorted(names - known):
            raise self.fail(f"{where}.check", f"= {check!r}: no transport {name!r}, there are {', '.join(sorted(known))}")
        placement = data.get("placement")
        if placement is not None:
            self.one_of(placement, PLACEMENTS, f"{where}.placement")
        return Expect(check, str(data.get("name", check)), placement)
