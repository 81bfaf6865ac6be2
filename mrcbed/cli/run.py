"""``mrcbed run SCENARIO``. Reads and validates everything before root is needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click

from mrcbed.cli.common import (
    ProgressBar,
    all_option,
    carry_out,
    check_switch,
    check_switch_is_simulated,
    conclude,
    needs_root,
    parse_dilation,
    parse_seeds,
    reach_option,
)  # fmt: skip
from scenarios.schema.scenario import Scenario, load_scenario, named_scenarios
from testbed.emulated.ovs import SWITCHES
from testbed.errors import UserError
from testbed.machine.caller import handed_over
from testbed.machine.exclusive import refuse_if_measuring
from testbed.machine.parent import end_with_reader
from testbed.options import argument, option
from testbed.world import EMULATED, SIMULATED, WORLDS
from topologies import FabricError
from topologies.toml_files import MAX_WHOLE, STDIN


@click.command(
    name="run",
    help="Run SCENARIO: a TOML file, - for standard input, or one of "
    f"{', '.join(named_scenarios())}.",
)
@argument("scenario")
@option(
    "--transport",
    "-t",
    "transports",
    multiple=True,
    metavar="T",
    help="Run only this transport of the scenario, or add one of this kind. Repeatable.",
)
@option("--fabric", metavar="NAME-OR-FILE", help="Use this fabric instead of the scenario's.")
@option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the scenario: workload.steps=3, transport.roce.options.qps=2. "
    "Repeatable.",
)
@option(
    "--seed",
    "seeds",
    type=click.IntRange(0, MAX_WHOLE),
    multiple=True,
    metavar="N",
    help="Use this seed instead of the scenario's. Repeatable.",
)
@option("--seeds", "seed_range", metavar="A-B", help="Use these seeds: 1-5, or 1,3,7-9.")
@option("--out", metavar="DIR", help="Write results to DIR (default: results/<scenario>-<time>).")
@option("--resume", is_flag=True, help="Continue an interrupted or killed run in --out DIR.")
@option(
    "--pcap",
    "pcap",
    multiple=True,
    metavar="LINK",
    help="Capture packets on this link, like p0-t0-0:p0-t1-3. Repeatable.",
)
@option(
    "--switch",
    type=click.Choice(SWITCHES),
    default="ebpf",
    show_default=True,
    help="Forward with eBPF or with Open vSwitch.",
)
@option(
    "--world",
    type=click.Choice(WORLDS),
    default=WORLDS[0],
    show_default=True,
    help="emulated: on this machine's kernel, needs root. simulated: in virtual time, without "
    "root; the same seed gives the same bytes.",
)
@option(
    "--jobs",
    type=click.IntRange(1, 256),
    metavar="N",
    help=f"Run N simulated runs at once (default: one per core). Runs with --world {EMULATED} go "
    "one at a time.",
)
@option(
    "--split",
    type=click.IntRange(1, 64),
    default=1,
    metavar="N",
    show_default=True,
    help="Share each simulated run between N processes, with the same bytes: for large fabrics on "
    "cores that are free.",
)
@option(
    "--dilation",
    metavar="N",
    default="auto",
    show_default=True,
    help="Run N times slower than the real network; fabric: as its file says; auto: so, or slower "
    "if the machine needs it. With --on, and from standard input, auto is fabric.",
)
@option(
    "--on",
    "address",
    metavar="HOST[=ADDRESS],...",
    help="Emulate each fabric on these machines together. tls://HOST:PORT: whole runs on the "
    "workers of a Dask scheduler.",
)
@reach_option()
@option("--mixed", is_flag=True, help="Take emulated workers of unlike CPU or kernel.")
@option(
    "--no-figures",
    is_flag=True,
    help="Make no tables and plots; mrcbed results plot --tables makes them later.",
)
@option("--json", "as_json", is_flag=True, help="Print summary.json instead of tables.")
@all_option()
@option(
    "--view",
    "with_view",
    is_flag=True,
    help="Serve a page that shows the run while it goes on, on this machine alone.",
)
@option(
    "--view-port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="The page's port. Default: a free one.",
)
def command(
    scenario: str,
    transports: tuple[str, ...],
    fabric: str | None,
    overrides: tuple[str, ...],
    seeds: tuple[int, ...],
    seed_range: str | None,
    out: str | None,
    resume: bool,
    pcap: tuple[str, ...],
    switch: str,
    world: str,
    jobs: int | None,
    split: int,
    dilation: str,
    address: str | None,
    reach: str,
    mixed: bool,
    no_figures: bool,
    as_json: bool,
    everything: bool,
    with_view: bool,
    view_port: int,
) -> None:
    """Exit status: 0 well, 1 a check or a sum failed, 2 bad input or something the machine lacks, 3
    not trustworthy, 130 stopped."""
    from scenarios.run.captures import check_pcap_links
    from scenarios.run.planning import plan
    from scenarios.run.processes import cores
    from scenarios.run.simulate import Worlds, check_simulable, check_split, simulate
    from scenarios.schema.dilation import check_emulable
    from scenarios.sets.dilation import run_dilated

    piped = scenario == STDIN
    if piped:
        end_with_reader()
        dilation = "fabric" if dilation == "auto" and world == EMULATED else dilation
    all_seeds = [*seeds, *(parse_seeds(seed_range) if seed_range is not None else ())]
    try:
        loaded = load_scenario(
            scenario, fabric=fabric, transports=transports, overrides=overrides, seeds=all_seeds
        )
        check_pcap_links(loaded, pcap)
        plan(loaded)
        wanted = parse_dilation(dilation, loaded.dilation)
        if split > 1 and world != SIMULATED:
            raise UserError(
                f"--split works in the {SIMULATED} world only: drop it, or add --world {SIMULATED}"
            )
        if world != EMULATED:
            check_simulable(loaded)
            check_split(loaded, split, pcap)
            check_switch_is_simulated(switch)
            if wanted is not None:
                raise UserError(
                    f"--dilation {dilation}: figures of the {world} world do not depend on it: "
                    "drop it"
                )
        else:
            check_emulable(loaded, loaded.dilation if wanted is None else wanted)
    except FabricError as error:
        raise UserError(str(error)) from None
    given: dict[str, Any] = {
        "resume": resume,
        "dilation": wanted,
        "figures": not no_figures and not piped,
    }
    given |= {"as_json": as_json, "everything": everything}
    on_workers = address is not None and address.startswith("tls://")
    if mixed and not on_workers:
        raise UserError("--mixed is for --on tls://HOST:PORT: drop it")
    if address is not None and not on_workers:
        from mrcbed.cli.run_machines import run as run_on

        if "://" in address:
            raise UserError(
                f"--on {address}: connections are encrypted: write it like tls://10.0.0.1:8786"
            )
        if pcap or with_view or switch != SWITCHES[0] or world == SIMULATED or (jobs or 1) > 1:
            raise UserError(
                f"--on {address}: several machines are emulated, with eBPF switches: drop "
                "--pcap, --view, --switch, --jobs"
            )
        sys.exit(run_on(loaded, out, address, reach, **given))
    if address is not None:
        from mrcbed.cli.run_workers import run as run_on_workers

        if pcap or with_view or split > 1 or switch != SWITCHES[0] or jobs is not None:
            options = "--pcap, --view, --split, --switch and --jobs"
            raise UserError(
                "--on: other machines capture, show, share and choose switches for themselves: "
                f"drop {options}"
            )
        sys.exit(run_on_workers(loaded, out, address, world, mixed=mixed, **given))
    if world == EMULATED:
        if (jobs or 1) > 1:
            raise UserError(
                f"--jobs {jobs}: emulated runs share this machine's time, so they go one at a "
                "time: drop --jobs"
            )
        check_switch(switch)
        needs_root(world)
        refuse_if_measuring()
    from scenarios.run.runner import results_directory  # imports pandas: bad input is told before

    def work(directory: Path) -> int:
        with (
            viewed(loaded, directory, view_port) if with_view else nullcontext(),
            ProgressBar() as progress,
        ):
            command_line = ["mrcbed", *sys.argv[1:]]
            settings: dict[str, Any] = {
                "progress": progress,
                "command_line": command_line,
                "resume": resume,
                "figures": given["figures"],
            }
            if world == SIMULATED:
                summary = simulate(
                    loaded,
                    directory,
                    jobs=jobs or max(1, cores() // split),
                    worlds=Worlds(pcap, split),
                    **settings,
                )
            else:
                summary = run_dilated(
                    loaded, directory, wanted, pcap_links=pcap, switch=switch, **settings
                )
        return conclude(loaded, summary, directory, as_json, everything)

    with (
        handed_over(Path("results"))
        if piped and out is None and world == EMULATED
        else nullcontext(Path("results")) as within
    ):
        directory = results_directory(loaded.name, out, resume, within)
        sys.exit(carry_out(world, partial(work, directory), directory=directory))


@contextmanager
def viewed(scenario: Scenario, directory: Path, port: int) -> Iterator[None]:
    """Raises :class:`UserError`."""
    from scenarios.show.plots.style import looks as looks_of
    from scenarios.show.replay_page import SIGNS
    from testbed.machine import sandbox
    from testbed.view.live import LiveView

    transports = [
        (transport.name, transport.kind)
        for variant in scenario.variants
        for transport in variant.scenario.transports
    ]
    looks = {
        name: (colour, SIGNS[marker]) for name, (colour, marker) in looks_of(transports).items()
    }
    view = LiveView(scenario.name, directory, looks, sandbox.unprivileged_uid(), port)
    try:
        print(f"view: {view.url}", file=sys.stderr, flush=True)
        yield
    finally:
        view.end()
