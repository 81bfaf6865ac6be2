"""Reads scenario files: TOML in, one frozen :class:`Scenario` out, or one line about what is
wrong."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agents.clustermapper.options import Options
from agents.kernel.options import KINDS as KERNEL_KINDS
from agents.nic.device import check_options
from scenarios.schema.checks import names_in
from scenarios.schema.fabrics import (
    SINGLE_PATH,
    at_rate,
    routable,
    twin_of,
    usual_fabric,
    variant_of,
)
from scenarios.schema.fault_tables import Fault, read_faults
from scenarios.schema.iperf_tables import Background, read_backgrounds
from scenarios.schema.scenario_tables import (
    KINDS,
    TRANSPORTS,
    CommonOptions,
    Expect,
    ScenarioFile,
    TransportTable,
)
from scenarios.schema.sweep import Settings, assign, override, pin, read_sweep, spelled
from scenarios.schema.values import ScenarioError
from scenarios.schema.workload_tables import read_workload
from scenarios.schema.workloads import Workload, WorkloadError, check_fits
from testbed.faults.kinds import KINDS as FAULTS
from testbed.faults.kinds import USED_BY_QP
from testbed.reconvergence import RECONVERGENCE
from testbed.streams import printable
from topologies import Fabric, FabricError
from topologies.clos import ADAPTIVE, SOURCE
from topologies.fabrics import dilation_of, fabric_of, named_fabrics, read_fabric_file
from topologies.structs import Refused, convert, join, nearest, plain
from topologies.toml_files import STANDARD_INPUT, find_file, read_toml, take_format
from topologies.units import S

HERE = Path(__file__).parents[1]
TIMEOUT_S = 120.0  # of a run whose scenario names none [ours]


@dataclass(frozen=True)
class Transport:
    kind: str
    name: str
    fabric: Fabric
    # until a network that re-routes has done so; None where MRC's sources route
    reconvergence_ps: int | None
    qps: int = 1  # per pair of ranks that communicate
    options: dict[str, object] = field(default_factory=dict)  # those of the engine
    # what the controller tells the agents: one of testbed.controller.steering.POLICIES
    controller: str = "none"
    clustermapper: Options | None = None  # how the agents probe; None: they do not
    # until the T0 at a dead cable has re-routed; None: with all others
    repair_ps: int | None = None


@dataclass(frozen=True)
class Variant:
    settings: Settings  # {} where nothing is swept
    scenario: Scenario


@dataclass(frozen=True)
class Scenario:
    name: str
    description: str
    seeds: tuple[int, ...]
    timeout_s: float  # of one run, of this machine; in virtual time by agents.clock.Clock.patience
    expect_outcome: str  # of every run: one of OUTCOMES
    workload: Workload
    transports: tuple[Transport, ...]
    faults: tuple[Fault, ...]
    expects: tuple[Expect, ...]
    file: str
    text: str  # as read, for the manifest
    fabric: Fabric  # the scenario's own; a transport may have another
    dilation: float  # at which machines run it, unless something else is asked for
    backgrounds: tuple[Background, ...] = ()
    # one per setting of the sweep; empty without one, and in a variant's own scenario
    swept: tuple[Variant, ...] = ()

    @property
    def variants(self) -> tuple[Variant, ...]:
        """One per setting; without a sweep the scenario itself, with settings {}."""
        return self.swept or (Variant({}, self),)

    def to_dict(self) -> dict[str, object]:
        """Return plain values for the manifest; a sweep's other settings are under "variants"."""
        data = plain(replace(self, swept=()))
        data["variants"] = [
            {"settings": v.settings, "scenario": v.scenario.to_dict()} for v in self.swept
        ]
        return data

    @property
    def fabrics(self) -> dict[str, Fabric]:
        return {t.fabric.name: t.fabric for v in self.variants for t in v.scenario.transports}


def named_scenarios() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in HERE.glob("*.toml")))


def load_scenario(
    name_or_file: str,
    *,
    fabric: str | None = None,
    transports: Sequence[str] = (),
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> Scenario:
    """``overrides`` are the command line's ``--set``. Raises :class:`ScenarioError`."""
    path, text, data = read_scenario_file(name_or_file)
    return scenario_of(
        path, text, data, fabric=fabric, transports=transports, overrides=overrides, seeds=seeds
    )


def read_scenario_file(name_or_file: str) -> tuple[Path, str, dict[str, object]]:
    """Return (path, text, content), of which only ``format`` is checked. Raises
    :class:`ScenarioError`."""
    path = find_file(name_or_file, HERE)
    if path is None:
        raise ScenarioError(
            f"no scenario {name_or_file!r}: there are {', '.join(named_scenarios())}, or give a "
            ".toml file"
        )
    try:
        text, data = read_toml(path)
        take_format(data)
    except ValueError as error:
        raise ScenarioError(f"scenario file {path} {error}") from None
    data.setdefault("name", path.stem)
    return path, text, data


def scenario_of(
    path: Path,
    text: str,
    data: dict[str, object],
    *,
    fabric: str | None = None,
    transports: Sequence[str] = (),
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> Scenario:
    """Make the scenario of a file's tables. Raises :class:`ScenarioError`; its cause is the
    :class:`topologies.structs.Refused` that names the key, if a key is to blame."""
    file_sweep = copy.deepcopy(data.get("sweep", {}))
    for item in overrides:
        override(data, item)
    if fabric is not None:
        pin(data, "fabric", fabric, "--fabric")
    if seeds:
        data["seeds"] = list(seeds)
    file = path.name if path.parent == HERE else str(path)
    settings, swept_values = read_sweep(file, data.pop("sweep", {}), file_sweep)
    scenarios = []
    for setting in settings:
        table = copy.deepcopy(data)
        try:
            for key, value in setting.items():
                assign(table, key, value, f'{file}: sweep."{key}"')
            scenarios.append(
                _Reader(file, swept_values, path, fabric).scenario(
                    table, str(path), text, transports
                )
            )
        except (ScenarioError, Refused) as error:
            where = f" (in [sweep], at {spelled(setting)})" if setting else ""
            line = f"{'' if isinstance(error, ScenarioError) else f'{file}: '}{error}{where}"
            raise ScenarioError(printable(line, line=True)) from (
                error if isinstance(error, Refused) else None
            )
    own = data.get("setting")
    return with_variants(
        file,
        [{**(own if isinstance(own, dict) else {}), **setting} for setting in settings],
        scenarios,
    )


def with_variants(
    file: str, settings: Sequence[Settings], scenarios: Sequence[Scenario]
) -> Scenario:
    """Return the first setting's scenario, with every check of the file."""
    variants = []
    fabrics: dict[str, Fabric] = {}
    for setting, scenario in zip(settings, scenarios, strict=True):
        expects = tuple(e for e in scenario.expects if e.setting.items() <= setting.items())
        variants.append(Variant(setting, replace(scenario, expects=expects)))
        for transport in scenario.transports:
            if fabrics.setdefault(transport.fabric.name, transport.fabric) != transport.fabric:
                raise ScenarioError(
                    f"{file}: two different fabrics are named {transport.fabric.name!r}: give "
                    "each its own name"
                )
    return replace(scenarios[0], swept=tuple(variants)) if settings[0] else scenarios[0]


def check_no_verbs(scenario: Scenario) -> None:
    """Refuse faults of RDMA verbs in a run. Raises :class:`ScenarioError`, one line."""
    for fault in (fault for variant in scenario.variants for fault in variant.scenario.faults):
        if FAULTS[fault.kind].programs:
            fix = f"mrcbed launch --verbs --scenario {scenario.file} -- PROGRAM"
            raise ScenarioError(
                f"{scenario.name}: fault {fault.name!r} is for programs of RDMA verbs, and a run "
                f"has none: {fix}"
            )


class _Reader:
    """``swept_values``: swept key -> every value that a check may name.

    What comes from standard input names no further file and no module: with ``sudo`` root reads it
    for somebody else.
    """

    def __init__(
        self,
        file: str,
        swept_values: Mapping[str, Collection[object]],
        path: Path,
        fabric_override: str | None,
    ) -> None:
        """The file's folder is searched first for fabric files, except for ``fabric_override``, the
        command line's."""
        self.file, self.swept_values, self.folder, self.fabric_override = (
            file,
            swept_values,
            path.parent,
            fabric_override,
        )
        self.piped = path == STANDARD_INPUT

    def fabric(
        self, value: str | dict[str, object], where: str, base: Fabric | None = None
    ) -> tuple[Fabric, float]:
        if value == "twin" and base is not None:
            return twin_of(base), 1.0
        try:
            if isinstance(value, dict):
                table = {"name": "own", **value}
            elif value == self.fabric_override:
                table = read_fabric_file(value)
            elif self.piped and value not in named_fabrics():
                raise Refused(
                    where,
                    f"= {value!r}: a scenario from standard input names no file: write the "
                    "fabric as a table",
                )
            else:
                table = read_fabric_file(value, self.folder)
            return fabric_of(table), dilation_of(table)
        except FabricError as error:
            raise Refused(where, f": {error}") from None

    def scenario(self, data: Any, file: str, text: str, names: Sequence[str]) -> Scenario:
        named = data.get("fabric")
        if not isinstance(named, (str, dict)):
            convert(data, ScenarioFile)  # refuses it
        base, dilation = self.fabric(named, "fabric")
        table = convert(data, ScenarioFile)
        if table.nic_rate is not None:
            try:
                base = at_rate(base, table.nic_rate)
            except FabricError as error:
                raise Refused("nic_rate", f": {error}") from None
        workload = read_workload(table.workload)
        transports = [
            self.transport(t, f"transport[{i}]", base) for i, t in enumerate(table.transport)
        ]
        selected = self.select(transports, names, base)
        if len({t.name for t in transports}) < len(transports):
            raise Refused(
                "transport",
                f"names are not unique ({', '.join(t.name for t in transports)}): give each its "
                "own name",
            )
        for transport in selected:
            try:
                check_fits(workload, transport.fabric, table.seeds, transport.qps)
            except WorkloadError as error:
                raise ScenarioError(f"{self.file}: {error}") from None
        for i, expect in enumerate(table.expect):
            self.check_names(expect, f"expect[{i}]", [*transports, *selected])
        known = {t.name.replace("-", "_") for t in selected}
        fabrics = [t.fabric for t in selected]
        return Scenario(
            name=table.name,
            description=table.description.strip(),
            seeds=table.seeds,
            timeout_s=table.timeout / S if table.timeout else TIMEOUT_S,
            expect_outcome=table.expect_outcome,
            workload=workload,
            transports=tuple(selected),
            faults=read_faults(table.fault, fabrics, workload),
            backgrounds=read_backgrounds(table.background, fabrics),
            # checks on transports that are left out do not apply
            expects=tuple(e for e in table.expect if names_in(e.check) <= known),
            file=file,
            text=text,
            fabric=base,
            dilation=table.dilation or dilation,
        )

    def select(
        self, transports: list[Transport], names: Sequence[str], base: Fabric
    ) -> list[Transport]:
        selected: list[Transport] = []
        for name in names:
            matches = [t for t in transports if t.name == name] or [
                t for t in transports if t.kind == name
            ]
            if not matches:
                if name not in KINDS:
                    raise ScenarioError(
                        f"--transport {name}: {self.file} has "
                        f"{', '.join(t.name for t in transports)}; kinds are {', '.join(KINDS)}"
                    )
                matches = [
                    self.transport(
                        TransportTable(name), f"--transport {name}", usual_fabric(name, base)
                    )
                ]
            selected += [t for t in matches if t not in selected]
        return selected or transports

    def transport(self, table: TransportTable, where: str, base: Fabric) -> Transport:
        kind, fabric = (
            table.kind,
            self.fabric(table.fabric, f"{where}.fabric", base)[0]
            if table.fabric is not None
            else base,
        )
        try:
            fabric = routable(kind, variant_of(fabric, table.fabric_options))
        except FabricError as error:
            raise Refused(f"{where}.fabric_options", f": {error}") from None
        common = convert(table.options, CommonOptions, f"{where}.options")
        if kind == "mrc":
            self.check_routing(table, fabric, common, where)
        options = {
            key: value
            for key, value in table.options.items()
            if key not in CommonOptions.__struct_fields__
        }
        if self.piped and ":" in (own := str(options.get("congestion", ""))):
            raise Refused(
                f"{where}.options.congestion",
                f"= {own!r}: a scenario from standard input names no module: give it as a file",
            )
        try:  # the engine checks its options now, before a fabric is built
            check_options(kind, fabric, options)
        except Refused as error:
            raise Refused(f"{where}.options.{error.key}", error.text) from None
        except ValueError as error:
            raise Refused(f"{where}.options", f"- {error}") from None
        static = kind == "mrc" and fabric.routing == SOURCE
        reconvergence_ps = (
            None
            if static
            else RECONVERGENCE
            if common.reconvergence is None
            else common.reconvergence
        )
        if common.repair is not None and (
            kind in KERNEL_KINDS or reconvergence_ps is None or common.repair > reconvergence_ps
        ):
            raise Refused(
                f"{where}.options.repair",
                "is for transports whose paths switches hash, and at most as long as reconvergence",
            )
        mapper = self.mapper(table.clustermapper, f"{where}.clustermapper", kind)
        if mapper is not None and fabric.sites > 1:
            raise Refused(
                f"{where}.clustermapper", "probes one site's links: drop it on a fabric of two"
            )
        return Transport(
            kind,
            table.name or kind,
            fabric,
            reconvergence_ps,
            common.qps,
            options,
            table.controller,
            mapper,
            common.repair,
        )

    def check_routing(
        self, table: TransportTable, fabric: Fabric, common: CommonOptions, where: str
    ) -> None:
        """Refuse what needs the network to name MRC's paths, or to re-route them, where it does
        not."""
        if fabric.routing == ADAPTIVE:
            raise Refused(
                where,
                '- routing = "adaptive" leaves MRC no path to choose: give it to kind = "roce"',
            )
        if fabric.routing == SOURCE:
            if common.reconvergence is not None:
                raise Refused(
                    f"{where}.options.reconvergence",
                    "is for transports that wait for the network; MRC never does",
                )
            return
        named = {
            "controller": table.controller != "none",
            "clustermapper": table.clustermapper is not False,
        }
        for key, given in named.items():
            if given:
                raise Refused(
                    f"{where}.{key}",
                    f'names paths, which routing = "{fabric.routing}" leaves to the switches: '
                    "drop it",
                )

    def mapper(self, options: bool | dict[str, object], where: str, kind: str) -> Options | None:
        if options is False:
            return None
        try:
            mapper = Options.read(options)
        except Refused as error:
            raise Refused(join(where, error.key), error.text) from None
        if mapper.policy != "report" and kind != "mrc":
            raise Refused(
                where, f'- {kind} has no denylist: say clustermapper = {{ policy = "report" }}'
            )
        return mapper

    def check_names(self, expect: Expect, where: str, transports: list[Transport]) -> None:
        known = {t.name.replace("-", "_") for t in transports}
        for name in sorted(names_in(expect.check) - known):
            raise Refused(
                f"{where}.check",
                f"= {expect.check!r}: no transport {name!r}, there are {', '.join(sorted(known))}",
            )
        for key, value in expect.setting.items():
            if key not in self.swept_values:
                raise Refused(
                    f"{where}.setting.{key}",
                    nearest(key, self.swept_values or ("a key of [sweep]",)),
                )
            if value not in self.swept_values[key]:
                values = ", ".join(map(str, self.swept_values[key]))
                raise Refused(
                    f'{where}.setting."{key}"', f"= {value!r} is not in [sweep], which has {values}"
                )


__all__ = [
    "KINDS",
    "SINGLE_PATH",
    "TRANSPORTS",
    "USED_BY_QP",
    "Expect",
    "Fault",
    "Scenario",
    "ScenarioError",
    "Transport",
    "Variant",
    "Workload",
    "load_scenario",
    "named_scenarios",
    "twin_of",
]
