"""Scenario files: TOML in, one frozen :class:`Scenario` out, or one clear line about what is wrong.

Called by the command line and the runner. It reads files and nothing else: no network, no root. docs/scenarios.md is the manual.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from agents.clustermapper.options import Options
from agents.kernel.options import KINDS as KERNEL_KINDS
from agents.nic.device import check_options
from scenarios.schema.background import Background, BackgroundValues
from scenarios.schema.checks import CheckError, names_in
from scenarios.schema.fabrics import QUEUE_KEYS, at_rate, twin_of, variant_of
from scenarios.schema.faults import Fault
from scenarios.schema.sweep import Settings, assign, override, pin, read_sweep, spelled
from scenarios.schema.values import ScenarioError, parse_duration, parse_size
from scenarios.schema.workloads import Workload, WorkloadError, check_fits, read_workload
from testbed.controller.steering import POLICIES
from testbed.faults.kinds import USED_BY_QP
from testbed.simulated import WORLDS
from topologies import Fabric, FabricError, load_fabric
from topologies.fabrics import parse_delay, parse_rate
from topologies.structs import Refused, join
from topologies.theory import PLACEMENTS
from topologies.toml_files import MAX_WHOLE, find_file, read_toml

HERE = Path(__file__).parents[1]
KINDS = ("mrc", "roce", *KERNEL_KINDS)
SINGLE_PATH = ("roce", "tcp")
"""Kinds whose queue pairs have one path each, and can say which."""
OUTCOMES = ("done", "failed")
"""How a scenario may want its runs to end: "failed" where a fault takes away what no run can do without."""


@dataclass(frozen=True)
class Transport:
    kind: str
    name: str
    fabric: Fabric
    reconvergence_ns: int | None  # after which a network that re-routes has done so; None for MRC, which needs none
    qps: int = 1  # per pair of ranks that talk
    options: dict[str, Any] = field(default_factory=dict)  # the engine's own
    controller: str = "none"  # what the controller tells its agents: one of testbed.controller.steering.POLICIES
    clustermapper: Options | None = None  # how its agents probe; None: not at all


@dataclass(frozen=True)
class Expect:
    check: str
    name: str
    placement: str | None = None  # only there; None: everywhere
    median: bool = False  # over the seeds, once, instead of for each of them
    setting: Settings = field(default_factory=dict)  # asked only where the sweep's keys have these values
    only_in: str | None = None  # asked only in this world; None: in both
    because: str = ""  # why not in the other


@dataclass(frozen=True)
class Variant:
    """A scenario at one setting of its sweep."""

    settings: Settings  # {} where nothing is swept
    scenario: Scenario


@dataclass(frozen=True)
class Scenario:
    name: str
    description: str
    seeds: tuple[int, ...]
    timeout_ns: int  # of one run
    expect_outcome: str  # of every run: one of OUTCOMES
    workload: Workload
    transports: tuple[Transport, ...]
    faults: tuple[Fault, ...]
    expects: tuple[Expect, ...]
    file: str
    text: str  # as read, for the manifest
    fabric: Fabric  # the scenario's own; a transport may have another
    backgrounds: tuple[Background, ...] = ()
    swept: tuple[Variant, ...] = ()  # one per setting of the sweep; empty without one, and in a variant's own scenario

    @property
    def variants(self) -> tuple[Variant, ...]:
        """One per setting; without a sweep this scenario itself, with settings {}."""
        return self.swept or (Variant({}, self),)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the manifest, everything resolved: the first setting's, and each one's under "variants" if any key is swept."""
        data = asdict(replace(self, transports=(), swept=()))
        data["fabric"] = self.fabric.to_dict()
        data["transports"] = [{**asdict(t), "fabric": t.fabric.to_dict()} for t in self.transports]
        data["variants"] = [{"settings": v.settings, "scenario": v.scenario.to_dict()} for v in self.swept]
        return data

    @property
    def fabrics(self) -> dict[str, Fabric]:
        """Every fabric of every setting, by name."""
        return {t.fabric.name: t.fabric for v in self.variants for t in v.scenario.transports}


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
    path = find_file(name_or_file, HERE)
    if path is None:
        raise ScenarioError(f"no scenario {name_or_file!r}: there are {', '.join(named_scenarios())}, or give a .toml file")
    try:
        text, data = read_toml(path)
    except ValueError as error:
        raise ScenarioError(f"scenario file {path} {error}") from None
    data.setdefault("name", path.stem)
    in_file = copy.deepcopy(data.get("sweep", {}))
    for item in overrides:
        override(data, item)
    if fabric is not None:
        pin(data, "fabric", fabric, "--fabric")
    if seeds:
        data["seeds"] = list(seeds)
    shown = path.name if path.parent == HERE else str(path)
    settings, varied = read_sweep(shown, data.pop("sweep", {}), in_file)
    made = []
    for setting in settings:
        here = copy.deepcopy(data)
        try:
            for key, value in setting.items():
                assign(here, key, value, f'{shown}: sweep."{key}"')
            made.append(_Reader(shown, varied, path.parent, fabric).scenario(here, str(path), text, transports))
        except ScenarioError as error:
            where = f" (in [sweep], at {spelled(setting)})" if setting else ""
            raise ScenarioError(f"{error}{where}") from None
    return with_variants(shown, settings, made)


def with_variants(file: str, settings: Sequence[Settings], made: Sequence[Scenario]) -> Scenario:
    """The first setting's scenario, with every check of the file and all settings as ``variants``."""
    variants = []
    fabrics: dict[str, Fabric] = {}
    for setting, scenario in zip(settings, made, strict=True):
        asked = tuple(e for e in scenario.expects if e.setting.items() <= setting.items())
        variants.append(Variant(setting, replace(scenario, expects=asked)))
        for transport in scenario.transports:
            if fabrics.setdefault(transport.fabric.name, transport.fabric) != transport.fabric:
                raise ScenarioError(f"{file}: two different fabrics are named {transport.fabric.name!r}: give each its own name")
    return replace(made[0], swept=tuple(variants)) if settings[0] else made[0]


class _Reader(BackgroundValues):
    """Reads what is not the workload. ``varied``: swept keys and every value they may have in checks."""

    def __init__(self, file: str, varied: dict[str, Any], folder: Path, given: str | None) -> None:
        """``folder``: of the file, where fabrics' files are looked for first, but not ``given``, the command line's."""
        super().__init__(file)
        self.varied, self.folder, self.given = varied, folder, given

    def fabric(self, value: Any, where: str, base: Fabric | None = None) -> Fabric:
        if value == "twin" and base is not None:
            return twin_of(base)
        if not isinstance(value, str):
            raise self.fail(where, f"= {value!r} must be a fabric's name or file")
        try:
            return load_fabric(value, None if value == self.given else self.folder)
        except FabricError as error:
            raise self.fail(where, f": {error}") from None

    def variant(self, base: Fabric, data: Any, where: str) -> Fabric:
        options = dict(self.table(data, where, QUEUE_KEYS))
        try:
            if "delay" in options:
                options["delay_ns"] = parse_delay(options.pop("delay"), f"{self.file}: {where}.delay")
            return variant_of(base, options)
        except FabricError as error:
            raise self.fail(where, f": {error}") from None

    # --- the parts -------------------------------------------------------------------------------------------

    def scenario(self, data: Any, file: str, text: str, wanted: Sequence[str]) -> Scenario:
        top = ("name", "description", "fabric", "nic_rate", "seeds", "timeout", "expect_outcome", "workload", "transport", "fault")
        self.table(data, "", (*top, "background", "expect"), ("fabric", "workload", "transport"))
        base = self.fabric(data["fabric"], "fabric")
        if "nic_rate" in data:
            try:
                base = at_rate(base, parse_rate(data["nic_rate"], "nic_rate"))
            except FabricError as error:
                raise self.fail("nic_rate", f": {error}") from None
        seeds = data.get("seeds", [1])
        if not isinstance(seeds, list) or not seeds or not all(type(s) is int and 0 <= s <= MAX_WHOLE for s in seeds):
            raise self.fail("seeds", f"= {seeds!r} must be a list of whole numbers below 2^63, like [1, 2, 3]")
        if len(set(seeds)) < len(seeds):
            raise self.fail("seeds", f"= {seeds!r} must be different: the same seed repeats the same draws")
        workload = read_workload(self, data["workload"])
        every = [self.transport(t, f"transport[{i}]", base) for i, t in enumerate(self.list_of(data, "transport"))]
        if len({t.name for t in every}) < len(every):
            raise self.fail("transport", f"names are not unique ({', '.join(t.name for t in every)}): give each its own name")
        chosen = self.chosen(every, wanted, base)
        for transport in chosen:
            try:
                check_fits(workload, transport.fabric, seeds)
            except WorkloadError as error:
                raise ScenarioError(f"{self.file}: {error}") from None
        faults = self.faults(self.list_of(data, "fault"), [t.fabric for t in chosen], workload)
        expects = [self.expect(e, f"expect[{i}]", [*every, *chosen], workload) for i, e in enumerate(self.list_of(data, "expect"))]
        names = {t.name.replace("-", "_") for t in chosen}
        timeout_ns = self.parsed(parse_duration, data.get("timeout", "120s"), "timeout")
        if not timeout_ns:
            raise self.fail("timeout", f"= {data['timeout']!r} must be longer than 0, like \"120s\"")
        if not isinstance(data["name"], str) or not re.fullmatch(r"[^/\x00-\x1f\x7f]{1,100}", data["name"]):
            raise self.fail("name", f"= {data['name']!r} must be text that can be part of a file's name, of at most 100 letters")
        return Scenario(
            name=data["name"],
            description=str(data.get("description", "")).strip(),
            seeds=tuple(seeds),
            timeout_ns=timeout_ns,
            expect_outcome=self.one_of(data.get("expect_outcome", "done"), OUTCOMES, "expect_outcome"),
            workload=workload,
            transports=tuple(chosen),
            faults=faults,
            backgrounds=self.backgrounds(self.list_of(data, "background"), [t.fabric for t in chosen]),
            expects=tuple(e for e in expects if names_in(e.check) <= names),  # those of transports left out are not asked
            file=file,
            text=text,
            fabric=base,
        )

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

    def transport(self, data: Any, where: str, base: Fabric) -> Transport:
        self.table(data, where, ("kind", "name", "fabric", "fabric_options", "options", "controller", "clustermapper"), ("kind",))
        kind = self.one_of(data["kind"], KINDS, f"{where}.kind")
        options = dict(data.get("options", {})) if isinstance(data.get("options", {}), dict) else None
        if options is None:
            raise self.fail(f"{where}.options", "must be a table")
        fabric = self.fabric(data["fabric"], f"{where}.fabric", base) if "fabric" in data else base
        if "fabric_options" in data:
            fabric = self.variant(fabric, data["fabric_options"], f"{where}.fabric_options")
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
            check_options(kind, fabric, options)
        except Refused as error:
            raise self.fail(f"{where}.options.{error.key}", error.text) from None
        except ValueError as error:
            raise self.fail(f"{where}.options", f"- {error}") from None
        controller = self.one_of(data.get("controller", "none"), POLICIES, f"{where}.controller")
        if controller != "none" and kind != "mrc":
            raise self.fail(f"{where}.controller", f'= "{controller}" is for kind = "mrc": {kind} cannot choose its paths')
        return Transport(kind, name, fabric, reconvergence, qps, options, controller, self.mapper(data, where, kind))

    def mapper(self, data: dict[str, Any], where: str, kind: str) -> Options | None:
        if data.get("clustermapper", False) is False:
            return None
        try:
            made = Options.read(data["clustermapper"])
        except Refused as error:
            raise self.fail(join(f"{where}.clustermapper", error.key), error.text) from None
        if kind in KERNEL_KINDS:
            raise self.fail(f"{where}.clustermapper", f"needs raw sockets, which {kind} has not: leave it out")
        if made.policy != "report" and kind != "mrc":
            raise self.fail(f"{where}.clustermapper", f'- {kind} has no denylist: say clustermapper = {{ policy = "report" }}')
        return made

    def expect(self, data: Any, where: str, transports: list[Transport], workload: Workload) -> Expect:
        self.table(data, where, ("check", "name", "placement", "median", "setting", "only_in", "because"), ("check",))
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
        setting = data.get("setting", {})
        self.table(setting, f"{where}.setting", list(self.varied) or ("a key of [sweep]",))
        for key, value in setting.items():
            if value not in self.varied[key]:
                there = ", ".join(map(str, self.varied[key]))
                raise self.fail(f'{where}.setting."{key}"', f"= {value!r} is not in [sweep], which has {there}")
        only_in, because = data.get("only_in"), str(data.get("because", ""))
        if only_in is not None:
            self.one_of(only_in, WORLDS, f"{where}.only_in")
            if not because:
                raise self.fail(f"{where}.only_in", "needs a reason: because = \"...\", why the other world cannot be asked")
        return Expect(
            check, str(data.get("name", check)), placement, self.switch(data, "median", where, False), dict(setting), only_in, because
        )


__all__ = [
    "KINDS", "USED_BY_QP", "Expect", "Fault", "Scenario", "ScenarioError", "Transport", "Variant", "Workload", "load_scenario",
    "named_scenarios", "parse_duration", "parse_size", "twin_of",
]  # fmt: skip
