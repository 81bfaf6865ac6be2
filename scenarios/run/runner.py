"""Runs a scenario: fabrics up, runs on them, results written, whatever happens on the way.

Called by ``mrcbed run`` inside the sandbox, and by tests with a cluster of their own. It never loses what was measured: on Ctrl-C, a dead
process or a bug the network goes down first, then everything there is gets written and the run is marked.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scenarios.figures.comparison import write_comparison
from scenarios.figures.measure import Run, load_runs, write_tables
from scenarios.figures.rows import write_rows
from scenarios.figures.summary import INTERRUPTED, run_summary, summarise
from scenarios.figures.writing import check_writable, written_to
from scenarios.run.faults import check_used_edge
from scenarios.run.manifest import make_manifest
from scenarios.run.one_run import OneRun, Spec
from scenarios.run.processes import at_once
from scenarios.run.resume import former_manifest, held, is_begun, kept, sort_out, write_json
from scenarios.schema.scenario import SINGLE_PATH, USED_BY_QP, Scenario, ScenarioError, Transport
from scenarios.schema.sweep import short_keys
from scenarios.schema.workloads import edges_of
from testbed.errors import Interrupted, refusal
from testbed.world import World
from topologies import Fabric
from topologies.theory import place_ranks

MAX_KEY = 200
"""Bytes of a run's name, which is part of files' names; those may have 255 (NAME_MAX) [ours]."""
WorldFactory = Callable[[Fabric], World]
"""Gives a world that has not been started."""
Progress = Callable[[str, float], None]
"""(what is under way, share done from 0 to 1)."""


def results_directory(scenario: str, out: str | None, resume: bool = False) -> Path:
    """A new directory for results: ``out``, or results/<scenario>-<time> in the working directory. Raises :class:`ScenarioError`.

    With ``resume`` one where a run was begun; a new or empty one will do, too.
    """
    if resume and out is None:
        raise ScenarioError("--resume needs --out DIR, the directory of the run to go on with")
    path = Path(out) if out else Path("results") / f"{scenario}-{time.strftime('%Y%m%d-%H%M%S')}"
    if resume and is_begun(path):
        check_writable(path)
        return path
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ScenarioError(
            f"--out {path}: it exists and is not empty: give a new directory, results are never overwritten (--resume goes on with a run)"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScenarioError(f"cannot make the results directory {path}: {error.strerror}: give another --out") from None
    check_writable(path)
    return path


def plan(scenario: Scenario) -> list[Spec]:
    """All runs: by seed, setting, placement, fabric, and transport, so that a drift of the machine hits all transports alike.

    Every other time fabrics come in reverse, so that the one that stands is used first; transports take turns in being first, seed by seed.
    Of those on one fabric the first that can say which cable its QP uses goes before those that lose the same one.
    """
    for variant in scenario.variants:
        check_used_edges(variant.scenario)
    specs: list[Spec] = []
    places = [(variant, placement) for variant in scenario.variants for placement in variant.scenario.workload.placement]
    blocks = ((turn, seed, *place) for turn, seed in enumerate(scenario.seeds) for place in places)
    for number, (turn, seed, variant, placement) in enumerate(blocks):
        followed = any(fault.on == USED_BY_QP for fault in variant.scenario.faults)
        fabrics = list(dict.fromkeys(t.fabric for t in variant.scenario.transports))
        for fabric in reversed(fabrics) if number % 2 else fabrics:
            here = [t for t in variant.scenario.transports if t.fabric == fabric]
            here = in_turns(here, turn, followed)
            used: dict[int, str] = {}
            specs += [Spec(variant.scenario, transport, placement, seed, used, variant.settings) for transport in here]
    longest = max((spec.key.encode() for spec in specs), key=len)
    if len(longest) > MAX_KEY:
        words = f"a run's name would have {len(longest)} bytes, more than {MAX_KEY}"
        raise ScenarioError(f"{scenario.file}: {words}: shorten names or swept values")
    return specs


def in_turns(here: Sequence[Transport], turn: int, followed: bool) -> list[Transport]:
    """Transports of a fabric in the order of seed number ``turn``. If a fault follows a QP, the same one always says which cable."""
    if not followed:
        at = turn % len(here)
        return [*here[at:], *here[:at]]
    told = [t for t in here if t.kind in SINGLE_PATH]
    rest = [t for t in here if t.kind not in SINGLE_PATH]
    return told[:1] + [t for part in (told[1:], rest) if part for t in in_turns(part, turn, False)]


def check_used_edges(scenario: Scenario) -> None:
    """Every fault on what a QP uses needs a pair of ranks that has one, wherever the scenario runs. Raises :class:`ScenarioError`."""
    for fault in scenario.faults:
        if fault.on == USED_BY_QP:
            for fabric in dict.fromkeys(t.fabric for t in scenario.transports):
                for placement in scenario.workload.placement:
                    hosts = place_ranks(fabric, placement)
                    for seed in scenario.seeds:
                        check_used_edge(fabric, hosts, fault, edges_of(scenario.workload, fabric, hosts, seed))


def together(specs: Sequence[Spec]) -> list[list[Spec]]:
    """Runs in the order of the plan, those in one list of which one says which cable the others lose."""
    groups: dict[int, list[Spec]] = {}
    for spec in specs:
        followed = any(fault.on == USED_BY_QP for fault in spec.scenario.faults)
        groups.setdefault(id(spec.used if followed else spec), []).append(spec)
    return list(groups.values())


def run_apart(factory: WorldFactory, directory: Path, finished: Collection[str], specs: Sequence[Spec]) -> dict[str, dict[str, Any]]:
    """Those of ``specs`` that are not finished, one after the other, and the rows of all, by key."""
    entries: dict[str, dict[str, Any]] = {}
    for spec in specs:
        if spec.key not in finished:
            cluster = factory(spec.transport.fabric)
            cluster.start()
            try:
                OneRun(cluster, spec, directory / "raw" / spec.key, lambda share, trouble: None).go()
            finally:
                cluster.stop()
            del cluster
            gc.collect()  # hosts and network refer to each other: the messages' buffers, up to a gigabyte, go now
        entries |= entry_of(spec, directory)
    return entries


def entry_of(spec: Spec, directory: Path) -> dict[str, dict[str, Any]]:
    """A run's entry of ``runs``, by its key; none if its figures cannot be computed: the runs after it are made, and the end says why."""
    try:
        return {spec.key: run_summary(Run(directory / "raw" / spec.key), spec.scenario.expect_outcome)}
    except Exception as error:
        if refusal(error) is not None:  # nor can the runs after it be written
            raise
        print(f"no row of {spec.key} yet: {type(error).__name__}: {error}", file=sys.stderr)
        return {}


def label_of(spec: Spec) -> str:
    """A run for people."""
    at = "".join(f", {short} {spec.settings[key]}" for key, short in short_keys(list(spec.settings)).items())
    return f"{spec.transport.name} on {spec.transport.fabric.name}, {spec.placement}{at}, seed {spec.seed}"


@dataclass(frozen=True)
class How:
    """How a scenario is run."""

    progress: Progress | None = None
    command_line: Sequence[str] = ()
    switch: str = "ebpf"
    """What forwards, for the manifest, like ``notes``."""
    notes: Sequence[str] = ()
    resume: bool = False
    """Go on with what the directory holds."""
    world: str = "emulated"
    """In a simulated world every run has a fabric of its own, whose time begins anew: what was run before changes nothing."""
    jobs: int = 1
    """Processes that share the runs of a simulated world, whose factory must be picklable then."""
    figures: bool = True
    """Make tables and plots; without, ``mrcbed plot --tables`` makes them later."""


class Runner:
    """One scenario into one directory."""

    def __init__(self, scenario: Scenario, directory: Path, factory: WorldFactory, how: How | None = None) -> None:
        how = how or How()
        self.scenario, self.directory, self.factory = scenario, directory, factory
        self.progress = how.progress or (lambda what, share: None)
        self.jobs, self.figures = how.jobs, how.figures
        self.manifest = {**make_manifest(scenario, list(how.command_line), how.world), "switch": how.switch, "captures": []}
        self.manifest["notes"] += how.notes
        self.session = {key: self.manifest[key] for key in ("started", "command_line", "git")} | {"ended": None, "verdict": None}
        self.former = former_manifest(directory, self.manifest) if how.resume and is_begun(directory) else None
        if self.former is not None:
            if self.former["git"] != self.manifest["git"]:
                note = "Its sessions were not all made by the same version of mrcbed (sessions[].git)."
                self.former["notes"] = [*(n for n in self.former["notes"] if n != note), note]
            self.manifest = {key: value for key, value in self.former.items() if key not in ("ended", "verdict", "stopped_by")}
        self.manifest["sessions"] = [*self.manifest.get("sessions", ()), self.session]
        self.cluster: Any = None
        self.built: Fabric | None = None
        self.entries: dict[str, dict[str, Any]] = {}  # of runs that are over, by their key

    def run(self) -> dict[str, Any]:
        """Everything, and the summary that was written. Raises what stopped it, after writing, unless that was the user;
        :class:`testbed.errors.Interrupted` if the user did not wait for that; :class:`scenarios.figures.writing.Unwritable` if it cannot
        write."""
        with written_to(self.directory), held(self.directory):
            try:
                return self.all_runs()
            except KeyboardInterrupt:  # stopped again while it wrote what was measured
                raise Interrupted(kept(self.directory, plan(self.scenario))) from None

    def all_runs(self) -> dict[str, Any]:
        specs = plan(self.scenario)
        finished = sort_out(self.directory, specs) if self.former is not None else set()
        self.write("manifest.json", self.manifest)
        stopped: BaseException | None = None
        try:
            if self.jobs > 1 and len(together(specs)) > 1:
                self.at_once(specs, finished)
            else:
                self.one_by_one(specs, finished)
        except BaseException as error:  # written down first, raised below
            stopped = error
        finally:
            self.down()
        summary = self.finish(stopped)
        if stopped is not None and not isinstance(stopped, KeyboardInterrupt):
            raise stopped
        return summary

    def one_by_one(self, specs: Sequence[Spec], finished: Collection[str]) -> None:
        for spec in specs:
            if spec.key in finished:
                self.progress(f"{spec.key}: finished before", 1.0)
                self.note(spec)
        for number, spec in enumerate(specs):
            if spec.key not in finished:
                self.one(spec, number, len(specs))
                if self.cluster is None:
                    gc.collect()  # as in run_apart

    def at_once(self, specs: Sequence[Spec], finished: Collection[str]) -> None:
        """The same over ``jobs`` processes: each run on a cluster of its own."""
        self.progress(f"{len(specs)} runs, {self.jobs} at once", 0.0)
        work = partial(run_apart, self.factory, self.directory, finished)
        over = 0
        tasks = together(specs)
        for number, entries in at_once(work, tasks, self.jobs, lambda task: ", ".join(spec.key for spec in task)):
            for spec in tasks[number]:
                over += 1
                before = " before" if spec.key in finished else ""
                self.progress(f"{label_of(spec)}: finished{before} ({over} of {len(specs)})", over / len(specs))
            self.entries |= entries
            write_rows(list(self.entries.values()), self.scenario.name, self.directory)

    def one(self, spec: Spec, number: int, count: int) -> None:
        label = f"{label_of(spec)} ({number + 1} of {count})"
        if self.built != spec.transport.fabric:
            self.down()
            self.progress(f"building {spec.transport.fabric.name}", 0.0)
            self.cluster = self.factory(spec.transport.fabric)
            self.cluster.start()
            self.built = spec.transport.fabric
        self.progress(label, 0.0)
        cluster: World = self.cluster

        def progress(share: float, trouble: str) -> None:
            self.progress(f"{label}: {trouble}" if trouble else label, share)

        outcome = OneRun(cluster, spec, self.directory / "raw" / spec.key, progress).go()
        if outcome == "done" and not cluster.controller_lost and not cluster.clock.virtual:
            cluster.heal()
        else:
            self.down()  # agents may hang in it, or a controller is missing: the next run gets a new one
        self.note(spec)

    def note(self, spec: Spec) -> None:
        """A row more."""
        self.entries |= entry_of(spec, self.directory)
        write_rows(list(self.entries.values()), self.scenario.name, self.directory)

    def down(self) -> None:
        cluster, self.cluster, self.built = self.cluster, None, None
        if cluster is not None:
            cluster.stop()
            self.manifest["captures"] += [
                {
                    "file": str(capture.path.relative_to(self.directory)),
                    "link": capture.link,
                    "packets": None if capture.captured < 0 else capture.captured,
                    "dropped": None if capture.dropped < 0 else capture.dropped,  # by the kernel, before they were in the file
                }
                for capture in cluster.captures
            ]

    def write(self, name: str, data: dict[str, Any]) -> None:
        write_json(self.directory / name, data)

    def finish(self, stopped: BaseException | None) -> dict[str, Any]:
        """Tables, summary, manifest, plots, from what lies in the directory."""
        again = " (interrupt again to leave at once)" if isinstance(stopped, KeyboardInterrupt) else ""
        self.progress(f"writing results{again}", 0.0)
        runs = load_runs(self.directory)
        summary = summarise(self.scenario, runs, self.entries)
        if isinstance(stopped, KeyboardInterrupt):
            summary["verdict"] = INTERRUPTED
        elif stopped is not None:
            summary["verdict"] = "failed"
            summary["stopped_by"] = f"{type(stopped).__name__}: {stopped}"
        self.write("summary.json", summary)
        self.session |= {"ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "verdict": summary["verdict"]}
        self.manifest |= {
            "ended": self.session["ended"],
            "verdict": summary["verdict"],
            "stopped_by": None if stopped is None else f"{type(stopped).__name__}: {stopped}",
            "fidelity": {
                r["run"]: {
                    "verdict": r["verdict"], "fidelity": r["fidelity"]["verdict"], "reasons": r["distrust"],
                    "cpu_percent": r["cpu_percent"],
                }
                for r in summary["runs"]
            },
        }  # fmt: skip
        self.write("manifest.json", self.manifest)
        if runs and self.figures:
            write_tables(runs, self.directory)
            write_comparison(write_rows(summary["runs"], self.scenario.name, self.directory), self.directory)
            self.progress("drawing", 0.5)
            try:
                from scenarios.show.html import write_report
                from scenarios.show.plots import draw_all

                draw_all(self.directory)
                write_report(self.directory)
            except Exception as error:  # figures can be drawn again; the data must not be lost with them
                if stopped is None:
                    raise
                print(f"plots and report not made: {error}", file=sys.stderr)
        self.progress("done", 1.0)
        return summary


def run_scenario(
    scenario: Scenario,
    directory: Path,
    *,
    progress: Progress | None = None,
    command_line: Sequence[str] = (),
    pcap_links: Sequence[str] = (),
    switch: str = "ebpf",
    resume: bool = False,
) -> dict[str, Any]:
    """Run for real, on Mininet; ``resume`` goes on with what ``directory`` holds. Needs root, inside the sandbox."""
    from testbed.emulated import ovs
    from testbed.emulated.background import require_iperf3
    from testbed.emulated.cluster import Cluster

    if scenario.backgrounds:
        require_iperf3()

    def factory(fabric: Fabric) -> Any:
        here = [link for link in pcap_links if link in fabric.links_by_name or ":".join(reversed(link.split(":"))) in fabric.links_by_name]
        where = directory / "pcap" / fabric.name
        number = 2
        while here and where.exists():  # the fabric was built before, and its captures are to stay
            where, number = directory / "pcap" / f"{fabric.name}-{number}", number + 1
        if here:
            where.mkdir(parents=True, exist_ok=True)
        return Cluster(fabric, switch=switch, pcap_links=here, pcap_dir=where if here else None, progress=progress)

    said = switch if switch == "ebpf" else f"{switch} ({ovs.datapath()})"
    limits = ovs.limits(ovs.datapath()) if switch == "ovs" else None
    notes = [f"{limits}."] if limits else []
    how = How(progress=progress, command_line=command_line, switch=said, notes=notes, resume=resume)
    return Runner(scenario, directory, factory, how).run()


def check_pcap_links(scenario: Scenario, links: Sequence[str]) -> None:
    """Every link to capture must exist on some fabric of the scenario. Raises :class:`topologies.FabricError`."""
    for link in links:
        fabrics = list(scenario.fabrics.values())
        if not any(link in f.links_by_name or ":".join(reversed(link.split(":"))) in f.links_by_name for f in fabrics):
            with suppress(IndexError):
                fabrics[0].link(link)


__all__ = ["Runner", "check_pcap_links", "plan", "results_directory", "run_scenario"]
