"""``mrcbed sweep SCENARIO``: a scenario over many seeds and settings, on many processes or machines."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mrcbed.cli.run import TLS, ProgressBar, conclude, parse_dilation, parse_seeds, tls_option
from scenarios.schema.scenario import Scenario, load_scenario
from testbed.errors import UserError
from testbed.options import argument, option
from testbed.simulated import EMULATED, SIMULATED, WORLDS
from topologies import FabricError

if TYPE_CHECKING:
    from scenarios.sweeps.running import Place
    from scenarios.sweeps.tls import Identity


@click.command(name="sweep")
@argument("scenario")
@option("--transport", "-t", "transports", multiple=True, metavar="T", help="Run only this transport, or add one of this kind.")
@option("--fabric", metavar="NAME-OR-FILE", help="Use this fabric instead of the scenario's.")
@option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key of the scenario. Repeatable.")
@option("--seeds", "seed_range", metavar="A-B", help="Use these seeds instead of the scenario's: 1-40, or 1,3,7-9.")
@option("--out", metavar="DIR", help="Write results to DIR (default: results/<scenario>-<time>).")
@option("--resume", is_flag=True, help="Continue a sweep in --out DIR: run what is missing there.")
@option("--world", type=click.Choice(WORLDS), default=SIMULATED, show_default=True, help="Where to run; emulated needs sudo.")
@option("--jobs", type=click.IntRange(1, 256), metavar="N", help="Use N processes of this machine (default: one per core).")
@option("--on", "address", metavar="tls://HEAD:PORT", help="Use the workers of a running head (mrcbed head) instead.")
@tls_option(", for --on")
@option("--mixed", is_flag=True, help="Take emulated workers of unlike CPU or kernel; rows get columns for both.")
@option("--dilation", metavar="N", default="fabric", show_default=True, help="Emulate N times slower than the real network.")
@option("--no-figures", is_flag=True, help="Make no tables and plots; mrcbed results plot --tables makes them later.")
@option("--json", "as_json", is_flag=True, help="Print summary.json instead of tables.")
def command(
    scenario: str,
    transports: tuple[str, ...],
    fabric: str | None,
    overrides: tuple[str, ...],
    seed_range: str | None,
    out: str | None,
    resume: bool,
    world: str,
    jobs: int | None,
    address: str | None,
    tls: str | None,
    mixed: bool,
    dilation: str,
    no_figures: bool,
    as_json: bool,
) -> None:
    """Run SCENARIO over many seeds and settings, on processes of this machine or on other machines. docs/sweeps.md explains it.

    Exit status: as mrcbed run.
    """
    from scenarios.run.planning import plan
    from scenarios.run.simulate import check_simulable
    from scenarios.schema.dilation import check_emulable
    from scenarios.sweeps.cluster import require

    require()
    try:
        seeds = parse_seeds(seed_range) if seed_range is not None else []
        loaded = load_scenario(scenario, fabric=fabric, transports=transports, overrides=overrides, seeds=seeds)
        plan(loaded)
        if dilation == "auto":
            raise UserError("--dilation auto: a sweep has one dilation for all its machines: write a number, or fabric")
        wanted = parse_dilation(dilation, loaded.dilation)
        if world == SIMULATED:
            check_simulable(loaded)
        else:
            assert wanted is not None
            check_emulable(loaded, wanted)
    except FabricError as error:
        raise UserError(str(error)) from None
    place = place_of(world, jobs, address, tls, mixed)
    asked = None if dilation == "fabric" else wanted
    sys.exit(run_sweep(loaded, out, place, resume=resume, dilation=asked, figures=not no_figures, as_json=as_json))


def run_sweep(
    scenario: Scenario, out: str | None, place: Place, *, resume: bool, dilation: float | None = None, figures: bool = True,
    as_json: bool = False,
) -> int:  # fmt: skip
    """Carry out a scenario at ``place``, print its results and return the exit status."""
    from scenarios.run.runner import results_directory
    from scenarios.sweeps.running import Session, sweep

    directory = results_directory(scenario.name, out, resume)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was run is written, as after Ctrl-C
    with ProgressBar() as progress:
        session = Session(progress, ["mrcbed", *sys.argv[1:]], resume, figures)
        summary = sweep(scenario, directory, place, session, lambda line: print(f"mrcbed: {line}", file=sys.stderr, flush=True), dilation)
    return conclude(scenario, summary, directory, as_json)


def place_of(world: str, jobs: int | None, address: str | None, tls: str | None, mixed: bool) -> Place:
    """Return where blocks go, from the options. Raises :class:`UserError` for options that exclude each other."""
    from scenarios.run.processes import cores
    from scenarios.sweeps.running import Place
    from scenarios.sweeps.tls import address_of, reach
    from scenarios.sweeps.work import check_root

    if address is None:
        if mixed:
            raise UserError("--mixed needs --on: without it all runs are on this machine")
        if world == EMULATED and (jobs or 1) > 1:
            raise UserError(f"--jobs {jobs}: emulated runs share this machine's time, so they go one at a time: drop --jobs")
        if world == EMULATED:
            check_root()
        return Place(world, 1 if world == EMULATED else jobs or cores())
    if jobs is not None:
        raise UserError(f"--jobs {jobs}: with --on the head's workers are used: drop one of the two")
    address_of(address, "--on")
    identity = identity_of(tls)
    reach(address, identity, "--on")  # before anything is written
    return Place(world, address=address, identity=identity, mixed=mixed)


def identity_of(tls: str | None) -> Identity:
    """Return this machine's certificates. Raises :class:`UserError` if none are named."""
    from scenarios.sweeps.tls import Identity

    if not tls:
        raise UserError(f"--tls DIR is missing: give the folder with this machine's certificates (mrcbed certs), or set {TLS}")
    return Identity(Path(tls))
