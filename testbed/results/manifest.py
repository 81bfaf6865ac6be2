"""``manifest.json``: how the runs of a directory were made, so that it can be understood alone.
scenarios/run/manifest.py makes it.

Readers get the keys that stand here. The scenario as resolved has more, and the fabrics have every
key of a fabric file.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from testbed.results.summary import Verdict
from testbed.results.values import Count, Name, Number, Positive, Row, Setting, Whole
from topologies.structs import Doc


class FabricName(Row, kw_only=True):
    """A fabric in a scenario."""

    name: Annotated[Name, Doc("its name")]


class Transport(Row, kw_only=True):
    """A transport, as resolved."""

    name: Annotated[str, Doc("its name")]
    kind: Annotated[str, Doc("its kind")]
    fabric: Annotated[FabricName | None, Doc("the fabric that it runs on")] = None
    options: Annotated[dict[str, Any], Doc("options that were given")] = {}
    reconvergence_ps: Annotated[
        Whole | None, Doc("time after which the network re-routes", unit="ps")
    ] = None
    repair_ps: Annotated[
        Whole | None,
        Doc("time after which the T0 at a dead cable re-routes; null: with all others", unit="ps"),
    ] = None
    qps: Annotated[Count | None, Doc("queue pairs to a peer")] = None
    controller: Annotated[str | None, Doc("what the controller does at failures")] = None
    clustermapper: Annotated[Any, Doc("options of Clustermapper")] = None


class Fault(Row, kw_only=True):
    """A fault, as resolved."""

    on: Annotated[str, Doc("what it hits")]


class Workload(Row, kw_only=True):
    """The workload, as resolved."""

    placement: Annotated[list[str], Doc("placements of the ranks")] = []
    steps: Annotated[Whole, Doc("measured steps")] = 0
    slices: Annotated[int, Meta(ge=1, le=1 << 20), Doc("slices of a message")] = 1
    outstanding: Annotated[Whole, Doc("messages of a flow at once")] = 0


class Resolved(Row, kw_only=True):
    """The scenario of one setting."""

    name: Annotated[str, Doc("its name")] = ""
    description: Annotated[str, Doc("what it shows")] = ""
    seeds: Annotated[list[Whole], Doc("seeds")] = []
    workload: Annotated[Workload, Doc("what the hosts do")] = field(default_factory=Workload)
    transports: Annotated[list[Transport], Doc("transports")]
    faults: Annotated[list[Fault], Doc("faults")] = []


class Variant(Row, kw_only=True):
    """A setting of the sweep."""

    settings: Annotated[dict[str, Setting], Doc("swept key -> value")]
    scenario: Annotated[Resolved, Doc("the scenario at this setting")]


class Scenario(Resolved, kw_only=True):
    """The scenario as resolved: defaults, overrides and fabrics in it."""

    variants: Annotated[list[Variant], Doc("the settings of its sweep")] = []

    @property
    def settings(self) -> list[Resolved]:
        """The scenario at each setting; itself without a sweep."""
        return [variant.scenario for variant in self.variants] or [self]


class Git(Row, kw_only=True):
    """The clone that ran it."""

    commit: Annotated[str | None, Doc("commit")] = None
    dirty: Annotated[bool, Doc("whether files differed from it")] = False


class Machine(Row, kw_only=True):
    """The machine."""

    cpu: Annotated[str | None, Doc("model of its CPU")] = None
    arch: Annotated[str | None, Doc("architecture")] = None
    cores: Annotated[Count | None, Doc("cores")] = None
    memory_bytes: Annotated[Count | None, Doc("memory")] = None


class Trust(Row, kw_only=True):
    """What a run is worth."""

    verdict: Annotated[Verdict, Doc("verdict of the run")]
    fidelity: Annotated[
        Literal["trustworthy", "doubtful", "invalid"] | None, Doc("verdict of its fidelity")
    ] = None
    reasons: Annotated[list[str], Doc("why it is not trustworthy")] = []
    cpu_percent: Annotated[Number | None, Doc("load of the cores that the run may use")] = None


class Session(Row, kw_only=True):
    """A command that made runs of the directory."""

    command_line: Annotated[list[str], Doc("its words")]
    git: Annotated[Git | None, Doc("the clone")] = None
    started: Annotated[str | None, Doc("when it began, UTC")] = None
    ended: Annotated[str | None, Doc("when it ended, UTC")] = None
    verdict: Annotated[str | None, Doc("its verdict")] = None
    simulation_cpu_s: Annotated[
        Number | None,
        Doc(
            "CPU time in which its runs were simulated; none: emulated, or in processes of their "
            "own",
            unit="s",
        ),
    ] = None


class Dilation(Row, kw_only=True):
    """How much wall time passes for a second of the network (docs/why/time.md)."""

    factor: Annotated[Positive, Doc("on the scenario's own")]
    value: Annotated[Positive, Doc("what comes of it")]
    chosen: Annotated[str, Doc("by auto or by user")]
    why: Annotated[str, Doc("one line")]


class Attempt(Row, kw_only=True):
    """A series at a dilation at which the machine was too slow."""

    directory: Annotated[str, Doc("folder that has it")]
    dilation: Annotated[Dilation, Doc("its dilation")]
    verdict: Annotated[str, Doc("its verdict")]
    why: Annotated[str, Doc("why it was repeated")]
    reasons: Annotated[list[str], Doc("why its runs are not trustworthy")] = []


class Stretched(Row, kw_only=True):
    """How the time of emulated runs was stretched."""

    dilation: Annotated[Dilation | None, Doc("the dilation; none in the simulated world")] = None
    attempts: Annotated[list[Attempt], Doc("what was tried before")] = []


class Capture(Row, kw_only=True):
    """A capture of a cable."""

    file: Annotated[str, Doc("its file")]
    link: Annotated[str, Doc("the cable")]
    packets: Annotated[Count | None, Doc("packets in it")] = None
    dropped: Annotated[Count | None, Doc("packets that the kernel dropped before")] = None


class Manifest(Stretched, kw_only=True):
    """The file."""

    format: Annotated[Whole, Doc("format of the directory")] = 0
    world: Annotated[str, Doc("emulated or simulated")] = ""
    scenario: Annotated[Scenario, Doc("the scenario as resolved")]
    scenario_file: Annotated[str, Doc("the scenario as written")] = ""
    command_line: Annotated[list[str], Doc("words of the command")] = []
    started: Annotated[str, Doc("when it began, UTC")] = ""
    ended: Annotated[str | None, Doc("when it ended, UTC; none: it did not end")] = None
    seeds: Annotated[list[Whole], Doc("seeds")] = []
    git: Annotated[Git | None, Doc("the clone")] = None
    python: Annotated[str, Doc("version of Python")] = ""
    versions: Annotated[dict[str, str | None], Doc("versions of packages")] = {}
    tools: Annotated[dict[str, str | None], Doc("versions of programs")] = {}
    engine: Annotated[str, Doc("whether the engine ran compiled or interpreted")] = ""
    kernel: Annotated[str, Doc("version of the kernel")] = ""
    machine: Annotated[Machine | None, Doc("the machine")] = None
    fabrics: Annotated[dict[Name, dict[str, Any]], Doc("every key of each fabric")] = {}
    notes: Annotated[list[str], Doc("what a reader should know")] = []
    switch: Annotated[str, Doc("kind of switches")] = ""
    captures: Annotated[list[Capture], Doc("captures, with `--pcap`")] = []
    verdict: Annotated[str | None, Doc("verdict of the whole")] = None
    stopped_by: Annotated[str | None, Doc("what stopped the set of runs before its end")] = None
    fidelity: Annotated[
        dict[str, Trust] | None, Doc("run -> what it is worth; none: the runs did not end")
    ] = None
    sessions: Annotated[list[Session], Doc("commands that made runs of the directory")] = []
    compared: Annotated[list[Session], Doc("of a comparison: where its runs come from")] = []
