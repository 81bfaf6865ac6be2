"""Runs a scenario and writes the results whatever happens.

After Ctrl-C, a dead process or a bug it stops the network, writes everything that was measured and
marks the run.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scenarios.figures.comparison import write_comparison
from scenarios.figures.measure import Run, load_runs, write_tables
from scenarios.figures.rows import write_rows
from scenarios.figures.summary import run_summary, summarise
from scenarios.figures.writing import check_writable, written_to
from scenarios.run.captures import captured_links
from scenarios.run.manifest import make_manifest
from scenarios.run.one_run import OneRun, Spec, serves_again
from scenarios.run.planning import blocks_of, plan
from scenarios.run.processes import at_once
from scenarios.run.resume import (
    directory_lock,
    former_manifest,
    holds_run,
    interruption_notice,
    sort_out,
    write_json,
)
from scenarios.schema.scenario import Scenario, ScenarioError, check_no_verbs
from scenarios.schema.sweep import short_keys
from testbed.errors import Interrupted, refusal
from testbed.machine.caller import written
from testbed.machine.stopping import go_on
from testbed.results.manifest import Stretched
from testbed.results.reading import believing
from testbed.results.summary import Run as Entry
from testbed.results.summary import Summary
from testbed.session import Session
from testbed.world import SIMULATED, World
from topologies import Fabric
from topologies.structs import plain

ROWS_S = 5.0
"""runs.csv is written at most so often while runs go on: a thousand rows take a third of a
second."""
WorldFactory = Callable[[Fabric], World]  # its world is not started
Entries = dict[str, Entry]  # run's key -> its entry in summary.json
Landed = Generator[tuple[Sequence[Spec], Entries], None, None]
Carrier = Callable[[Path, Sequence[Sequence[Spec]]], Landed]
"""(results directory, blocks) -> runs that are in ``raw/`` now, with their entries."""
Progress = Callable[[str, float], None]  # current activity, share done


def results_directory(
    scenario: str, out: str | None, resume: bool = False, within: Path = Path("results")
) -> Path:
    """Make ``out``, or <scenario>-<time> in ``within``. With ``resume`` a run may have begun there.
    Raises :class:`ScenarioError`."""
    go_on()
    if resume and out is None:
        raise ScenarioError("--resume needs --out DIR, the directory of the run to go on with")
    path = Path(out) if out else within / f"{scenario}-{time.strftime('%Y%m%d-%H%M%S')}"
    if resume and holds_run(path):
        check_writable(path)
        return written(path, whole=True)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ScenarioError(
            f"--out {path}: it exists and is not empty: give a new directory, results are never "
            "overwritten (--resume goes on with a run)"
        )
    try:
        written(path, whole=True).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScenarioError(
            f"cannot make the results directory {path}: {error.strerror}: give another --out"
        ) from None
    check_writable(path)
    return path


def run_block(factory: WorldFactory, directory: Path, specs: Sequence[Spec]) -> Entries:
    entries: Entries = {}
    for spec in specs:
        # modules and what else is here already are no garbage: a collection need not look at them
        gc.freeze()
        cluster = factory(spec.transport.fabric)
        cluster.start()
        try:
            OneRun(cluster, spec, directory / "raw" / spec.key, lambda share, trouble: None).go()
        finally:
            cluster.stop()
        del cluster
        # hosts and network refer to each other: the messages' buffers, up to a gigabyte, go now
        gc.collect()
        entries |= entry_of(spec, Run(directory / "raw" / spec.key))
    return entries


def in_processes(
    factory: WorldFactory, jobs: int, directory: Path, blocks: Sequence[Sequence[Spec]]
) -> Landed:
    name = lambda block: ", ".join(spec.key for spec in block)  # noqa: E731
    with closing(at_once(partial(run_block, factory, directory), blocks, jobs, name)) as results:
        for number, entries in results:
            yield blocks[number], entries


def entry_of(spec: Spec, run: Run) -> Entries:
    """Return no entry if a run's figures cannot be computed: later runs go on, and the end reports
    why."""
    try:
        return {spec.key: run_summary(run, spec.scenario.expect_outcome)}
    except Exception as error:
        if refusal(error) is not None:  # the results of later runs could not be written either
            raise
        print(f"no row of {spec.key} yet: {type(error).__name__}: {error}", file=sys.stderr)
        return {}


def label_of(spec: Spec) -> str:
    details = "".join(
        f", {short} {spec.settings[key]}" for key, short in short_keys(list(spec.settings)).items()
    )
    return (
        f"{spec.transport.name} on {spec.transport.fabric.name}, {spec.placement}{details}, seed "
        f"{spec.seed}"
    )


@dataclass(frozen=True)
class RunOptions:
    progress: Progress | None = None
    command_line: Sequence[str] = ()
    switch: str = "ebpf"  # for the manifest, like ``notes``
    notes: Sequence[str] = ()
    resume: bool = False
    world: str = "emulated"  # Simulated runs have a fabric each, whose time begins anew.
    jobs: int = 1  # processes that share simulated runs; several need a picklable factory
    carrier: Carrier | None = None  # carries out blocks instead of this process, or of ``jobs``
    figures: bool = True  # If False, ``mrcbed results plot --tables`` makes them later.
    stretched: Stretched | None = None
    """For the manifest; None: time is as the fabric has it."""


class Runner:
    def __init__(
        self,
        scenario: Scenario,
        directory: Path,
        factory: WorldFactory,
        options: RunOptions | None = None,
    ) -> None:
        options = options or RunOptions()
        self.scenario, self.directory, self.factory = scenario, directory, factory
        self.progress = options.progress or (lambda what, share: None)
        self.world, self.jobs, self.figures, self.carrier = (
            options.world,
            options.jobs,
            options.figures,
            options.carrier,
        )
        self.manifest = {
            **make_manifest(scenario, list(options.command_line), options.world),
            "switch": options.switch,
            "captures": [],
        }
        self.manifest["notes"] += options.notes
        if (stretched := options.stretched) is not None:
            self.manifest |= {
                "dilation": plain(stretched.dilation),
                "attempts": [plain(attempt) for attempt in stretched.attempts],
            }
        self.session = {key: self.manifest[key] for key in ("started", "command_line", "git")} | {
            "ended": None,
            "verdict": None,
        }
        self.session["simulation_cpu_s"] = None
        self.former_manifest = (
            former_manifest(directory, self.manifest)
            if options.resume and holds_run(directory)
            else None
        )
        if self.former_manifest is not None:
            if self.former_manifest.get("git") != self.manifest["git"]:
                note = (
                    "Its sessions were not all made by the same version of mrcbed (sessions[].git)."
                )
                self.former_manifest["notes"] = [
                    *(n for n in self.former_manifest.get("notes", ()) if n != note),
                    note,
                ]
            self.manifest = {
                key: value
                for key, value in self.former_manifest.items()
                if key not in ("ended", "verdict", "stopped_by")
            }
        self.manifest["sessions"] = [*self.manifest.get("sessions", ()), self.session]
        self.cluster: Any = None
        self.built_fabric: Fabric | None = None
        self.entries: Entries = {}  # of finished runs
        self.total = self.taken = 0  # runs of the scenario, and those that are in raw/
        self.rows_at = 0.0
        # the run, if there is one: what was read of it serves the tables, too
        self.only: list[Run] = []

    def run(self) -> Summary:
        """Raises what stopped it, after writing, unless it was the user; then
        :class:`testbed.errors.Interrupted` if the user did not wait for that;
        :class:`scenarios.figures.writing.Unwritable` if it cannot write."""
        with written_to(self.directory), directory_lock(self.directory):
            try:
                return self.all_runs()
            except KeyboardInterrupt:  # stopped again while it wrote the results
                raise Interrupted(
                    interruption_notice(self.directory, plan(self.scenario))
                ) from None

    def all_runs(self) -> Summary:
        specs = plan(self.scenario)
        finished = sort_out(self.directory, specs) if self.former_manifest is not None else set()
        self.write("manifest.json", self.manifest)
        stopped: BaseException | None = None
        try:
            self.carry(specs, finished)
        except BaseException as error:  # recorded first, raised below
            stopped = error
        finally:
            self.stop_cluster()
        summary = self.finish(stopped)
        if stopped is not None and not isinstance(stopped, KeyboardInterrupt):
            raise stopped
        return summary

    def carry(self, specs: Sequence[Spec], finished: Collection[str]) -> None:
        self.total = len(specs)
        for spec in specs:
            if spec.key in finished:
                self.take(
                    [spec],
                    entry_of(spec, Run(self.directory / "raw" / spec.key)),
                    "finished before",
                )
        blocks = blocks_of([spec for spec in specs if spec.key not in finished], self.world)
        several = self.jobs > 1 and len(blocks) > 1
        carrier = self.carrier or (
            partial(in_processes, self.factory, self.jobs) if several else self.here
        )
        if carrier != self.here:
            self.progress(
                f"{self.total - self.taken} of {self.total} runs to do", self.taken / self.total
            )
        # Closed by us: stopped while it writes rows, its processes would go on until a traceback is
        # forgotten.
        with closing(carrier(self.directory, blocks)) as landed:
            for runs, entries in landed:
                self.take(runs, entries, "" if carrier == self.here else "finished")

    def take(self, runs: Sequence[Spec], entries: Entries, told: str) -> None:
        self.entries |= entries
        for spec in runs:
            self.taken += 1
            if told:
                self.progress(
                    f"{label_of(spec)}: {told} ({self.taken} of {self.total})",
                    self.taken / self.total,
                )
        # the end writes them anyway
        if self.taken < self.total and time.monotonic() - self.rows_at > ROWS_S:
            write_rows(list(self.entries.values()), self.scenario.name, self.directory)
            self.rows_at = time.monotonic()

    def here(self, directory: Path, blocks: Sequence[Sequence[Spec]]) -> Landed:
        """A carrier: this process. A fabric stays up for the next run on it, if its world serves
        again."""
        for spec in (spec for block in blocks for spec in block):
            label = f"{label_of(spec)} ({self.taken + 1} of {self.total})"
            if self.built_fabric != spec.transport.fabric:
                self.stop_cluster()
                self.progress(f"building {spec.transport.fabric.name}", 0.0)
                gc.freeze()  # as in run_block
                self.cluster = self.factory(spec.transport.fabric)
                self.cluster.start()
                self.built_fabric = spec.transport.fabric
            self.progress(label, 0.0)

            def progress(share: float, trouble: str, label: str = label) -> None:
                self.progress(f"{label}: {trouble}" if trouble else label, share)

            outcome = OneRun(self.cluster, spec, directory / "raw" / spec.key, progress).go()
            if self.world == SIMULATED:
                self.session["simulation_cpu_s"] = round(
                    (self.session["simulation_cpu_s"] or 0.0) + spec.cpu_s, 3
                )
            if serves_again(self.cluster, outcome):
                self.cluster.heal()
            else:
                self.stop_cluster()
                gc.collect()  # as in run_block
            run = Run(directory / "raw" / spec.key)
            entry = entry_of(spec, run)
            self.only = [run] if entry and self.total == 1 else []
            yield [spec], entry

    def stop_cluster(self) -> None:
        cluster, self.cluster, self.built_fabric = self.cluster, None, None
        if cluster is not None:
            cluster.stop()
            self.manifest["captures"] += [
                {
                    "file": str(capture.path.relative_to(self.directory)),
                    "link": capture.link,
                    "packets": None if capture.captured < 0 else capture.captured,
                    # by the kernel, before they reached the file
                    "dropped": None if capture.dropped < 0 else capture.dropped,
                }
                for capture in cluster.captures
            ]

    def write(self, name: str, data: dict[str, Any]) -> None:
        write_json(self.directory / name, data)

    def finish(self, stopped: BaseException | None) -> Summary:
        hint = (
            " (interrupt again to leave at once)" if isinstance(stopped, KeyboardInterrupt) else ""
        )
        self.progress(f"writing results{hint}", 0.0)
        runs = self.only or load_runs(self.directory)
        summary = summarise(self.scenario, runs, self.entries)
        if isinstance(stopped, KeyboardInterrupt):
            summary.verdict = "interrupted"
        elif stopped is not None:
            summary.verdict = "failed"
            summary.stopped_by = f"{type(stopped).__name__}: {stopped}"
        self.write("summary.json", plain(summary))
        self.session |= {
            "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "verdict": summary.verdict,
        }
        self.manifest |= {
            "ended": self.session["ended"],
            "verdict": summary.verdict,
            "stopped_by": None if stopped is None else f"{type(stopped).__name__}: {stopped}",
            "fidelity": {
                r.run: {
                    "verdict": r.verdict,
                    "fidelity": r.fidelity.verdict,
                    "reasons": r.distrust,
                    "cpu_percent": r.cpu_percent,
                }
                for r in summary.runs
            },
        }
        self.write("manifest.json", self.manifest)
        # in order, whatever ended first
        rows = write_rows(summary.runs, self.scenario.name, self.directory) if runs else None
        if rows is not None and self.figures:
            write_tables(runs, self.directory)
            write_comparison(rows, self.directory)
            self.progress("drawing", 0.5)
            try:
                from scenarios.show.html import write_report
                from scenarios.show.plots import draw_all
                from scenarios.show.replay_page import replay

                # What was resumed may have been damaged meanwhile.
                with (
                    believing(self.directory) if self.former_manifest is not None else nullcontext()
                ):
                    draw_all(self.directory)
                    replay(self.directory)
                    write_report(self.directory)
            except Exception as error:  # plots can be drawn again; the data must not be lost
                if stopped is None:
                    raise
                print(f"plots, replay and report not made: {error}", file=sys.stderr)
        self.progress("done", 1.0)
        return summary


def run_scenario(  # noqa: PLR0913  (settings, all by name)
    scenario: Scenario,
    directory: Path,
    *,
    progress: Progress | None = None,
    command_line: Sequence[str] = (),
    pcap_links: Sequence[str] = (),
    switch: str = "ebpf",
    resume: bool = False,
    figures: bool = True,
    stretched: Stretched | None = None,
) -> Summary:
    """Run a scenario on Mininet. Needs root and the sandbox. ``stretched`` as in
    :class:`RunOptions`."""
    from testbed.emulated import ovs
    from testbed.emulated.iperf_flows import require_iperf3

    check_no_verbs(scenario)
    if scenario.backgrounds:
        require_iperf3()

    def factory(fabric: Fabric) -> Any:
        links, pcap_dir = captured_links(fabric, pcap_links, directory)
        return Session(fabric, dilation=scenario.dilation).cluster(
            progress, switch=switch, pcap_links=links, pcap_dir=pcap_dir
        )

    switch_name = switch if switch == "ebpf" else f"{switch} ({ovs.datapath()})"
    limits = ovs.limits(ovs.datapath()) if switch == "ovs" else None
    notes = [f"{limits}."] if limits else []
    notes += [
        f"{a.why}: {a.directory}/ has that attempt, and no figure uses it."
        for a in (stretched.attempts if stretched else ())
    ]
    options = RunOptions(
        progress=progress,
        command_line=command_line,
        switch=switch_name,
        notes=notes,
        resume=resume,
        figures=figures,
        stretched=stretched,
    )
    return Runner(scenario, directory, factory, options).run()


__all__ = ["Runner", "plan", "results_directory", "run_scenario"]
