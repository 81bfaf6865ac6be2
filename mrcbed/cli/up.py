"""``mrcbed up FABRIC``: a fabric with agents, and Mininet's prompt on it."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import click

from mrcbed.cli.common import (
    ProgressBar,
    carry_out,
    check_switch,
    dilated,
    dilation_option,
    needs_root,
    reach_option,
    world_option,
)
from scenarios.schema.fabrics import SINGLE_PATH, usual_fabric
from testbed import terminal
from testbed.controller.steering import POLICIES
from testbed.emulated.ovs import SWITCHES
from testbed.errors import UserError
from testbed.machine.caller import written
from testbed.options import argument, option
from testbed.session import Session
from testbed.world import SIMULATED
from topologies import named_fabrics


@click.command(
    name="up",
    help=f"Build FABRIC (a TOML file or one of {', '.join(named_fabrics())}) and open a prompt on "
    "it.",
)
@argument("fabric")
@option(
    "--transport",
    type=click.Choice(["mrc", "roce"]),
    default="mrc",
    show_default=True,
    help="Transport of the hosts' agents.",
)
@option(
    "--seed", type=click.IntRange(0), default=0, metavar="N", help="Seed of all random choices."
)
@option(
    "--no-controller",
    is_flag=True,
    help="Program the switches directly, without the Ryu application.",
)
@option(
    "--switch",
    type=click.Choice(SWITCHES),
    default="ebpf",
    show_default=True,
    help="Forward with eBPF or with Open vSwitch.",
)
@option(
    "--policy",
    type=click.Choice(POLICIES),
    default="none",
    show_default=True,
    help="What the controller tells agents of link failures.",
)
@dilation_option()
@option(
    "--ip",
    "with_ip",
    is_flag=True,
    help="Give every host mrc0: IP over its transport, for any program.",
)
@option(
    "--view",
    "with_view",
    is_flag=True,
    help="Serve a page that shows what happens, on this machine alone.",
)
@option("--view-control", is_flag=True, help="Like --view; the page can also cut and mend cables.")
@option(
    "--view-port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="The page's port. Default: a free one.",
)
@option("--out", metavar="DIR", help="Keep what the view showed in DIR, with replay.html.")
@world_option()
@option(
    "--on",
    "on",
    metavar="HOST[=ADDRESS],...",
    help="Build it on these machines together, each a part.",
)
@reach_option()
def command(
    fabric: str,
    transport: str,
    seed: int,
    no_controller: bool,
    switch: str,
    policy: str,
    dilation: str,
    with_ip: bool,
    with_view: bool,
    view_control: bool,
    view_port: int,
    out: str | None,
    world: str,
    on: str | None,
    reach: str,
) -> None:
    """Ends with Ctrl-D or ``exit`` (simulated: Ctrl-C); nothing stays behind. Exit status 0; 1 if a
    process of the cluster died, or if a line from a pipe or file was refused or failed."""
    if no_controller and policy != "none":
        raise UserError(f"--policy {policy} needs the controller: drop --no-controller")
    chosen, slower = dilated(fabric, dilation)
    if transport in SINGLE_PATH and chosen.planes > 1:
        print(
            f"mrcbed: a queue pair of {transport} has one path: one of the {chosen.planes} ports "
            "of a host. perf, launch, replay, run and train take "
            f"{usual_fabric(transport, chosen).name}, where they are one",
            file=sys.stderr,
        )
    if on is None:
        check_switch(switch)
    viewed = with_view or view_control
    if out is not None and not viewed:
        raise UserError(f"--out {out} keeps what a view showed: add --view")
    if out is not None:
        written(out)
    if on is not None:
        from mrcbed.cli.up_machines import run as run_on

        if switch != SWITCHES[0] or with_ip or viewed or policy != "none" or world == SIMULATED:
            raise UserError(
                "--on: several machines have eBPF switches, no controller, no view and no mrc0: "
                "drop such options"
            )
        sys.exit(run_on(chosen, slower, transport, seed, on, reach))
    session = Session(chosen, world, transport, seed=seed, dilation=slower)
    if world == SIMULATED:
        if not viewed:
            raise UserError(
                f"mrcbed up --world {SIMULATED} has no prompt: add --view, or --view-control to "
                "break cables"
            )
        from mrcbed.cli.up_simulated import run

        sys.exit(run(session, (view_port, view_control), out))
    needs_root(world, f"--world {SIMULATED} --view, which needs none")

    def work() -> int:
        from agents.ip import address
        from mrcbed.cli.up_view import ViewOfUp, record_folder
        from mrcbed.prompt.cli import Prompt
        from testbed.emulated import ip
        from testbed.emulated.cluster import Cluster
        from testbed.machine.sandbox import RUN_DIR

        console = terminal.console()
        cable = next((li.name for li in chosen.links if li.kind == "fabric"), chosen.links[0].name)
        with ExitStack() as stack:
            folder = stack.enter_context(record_folder(out, transport, RUN_DIR))
            cluster = stack.enter_context(
                session.up(
                    folder[1], ProgressBar(), policy, controller=not no_controller, switch=switch
                )
            )
            assert isinstance(cluster, Cluster)
            console.print(
                f"{chosen.name} is up in {cluster.booted_ns / 1e9:.2f} s: {chosen.host_count} "
                f"hosts, {len(chosen.switches)} switches, {len(chosen.links)} links. Try: paths "
                f"h0 h{chosen.host_count - 1}, allreduce, break {cable}, pingall, help"
            )
            if with_ip:
                carriers = ip.bring_up(cluster)
                stack.callback(carriers.end)
                first, last = address(0), address(chosen.host_count - 1)
                console.print(
                    f"mrc0 is up on every host, {first} to {last}. Try: h0 ping -c 3 {last}",
                    markup=False,
                    highlight=False,
                )
            if viewed:
                view = ViewOfUp(cluster, transport, seed, folder, view_port, view_control)
                stack.callback(view.end)
                view.tick_beside()
                console.print(f"view: {view.url}", markup=False, highlight=False, soft_wrap=True)
            prompt = Prompt(cluster, console, transport)
            cluster.check()  # a death while the prompt waited for a line ends it as SIGTERM does
        return prompt.status

    sys.exit(carry_out(world, work, measures=False))
