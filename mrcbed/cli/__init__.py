"""The command line, ``mrcbed``. Each command is a module here that exposes ``command`` and is
imported only when asked for.

Exit status: what the command says; 2 for bad input or something the machine lacks, 130 after
Ctrl-C, 70 for an internal error.
"""

from __future__ import annotations

import atexit
import difflib
import importlib
import os
import signal
import sys
from typing import Any, NamedTuple, NoReturn

import click

from testbed import errors
from testbed.errors import UserError
from testbed.machine.caller import give_back
from testbed.machine.limits import check_memory, raise_open_files
from testbed.machine.stopping import STATUS, started
from testbed.streams import printable, take_standard_streams


class Entry(NamedTuple):
    """``computes``: the command loads SciPy, Arrow and Matplotlib, which take memory."""

    does: str
    computes: bool = False


COMMANDS = {
    "mrcbed": {
        "Begin": {
            "doctor": Entry("Check what this machine can do, and how to mend what it lacks."),
            "lesson": Entry(
                "Learn: read the questions of a lesson, check your answers.", computes=True
            ),
            "list": Entry("List scenarios, fabrics, faults, collectives or transports."),
            "explain": Entry("Explain a key of a scenario or fabric file."),
        },
        "Scenarios": {
            "check": Entry(
                "Check a file: what it would do, and how long that takes.", computes=True
            ),
            "run": Entry(
                "Run a scenario: build a fabric, break it, measure, report.", computes=True
            ),
        },
        "A fabric of your own": {
            "up": Entry("Build a fabric and open a prompt on it."),
            "launch": Entry("Run a program of your own as a rank on every host."),
            "perf": Entry(
                "Measure bandwidth and latency, as nccl-tests and perftest do.", computes=True
            ),
            "train": Entry(
                "Train a small model through failures, under MRC, RoCE and TCP.", computes=True
            ),
            "replay": Entry(
                "Replay a trace of a training job: AICB's text, or Chakra's.", computes=True
            ),
        },
        "Evidence": {
            "paper": Entry(
                "Compare the MRC paper's claims with runs on this testbed.", computes=True
            ),
            "validate": Entry(
                "Compare theory, simulation and emulation on small scenarios.", computes=True
            ),
            "conform": Entry("Send scripted packets to any MRC endpoint, judge its answers."),
        },
        "More, in groups": {
            "fabric": Entry("Ask a running fabric; draw, size or compute one from a file."),
            "results": Entry("Plot, report, compare, export or watch what runs wrote."),
            "tools": Entry("Write files to start from, calibrate, benchmark, clean up."),
        },
    },
    "mrcbed fabric": {
        "A running fabric": {
            "links": Entry("List its links: state, denials, number of paths."),
            "paths": Entry("List the paths between two of its hosts."),
            "denylist": Entry("Show or change what its hosts must not use."),
            "events": Entry("Follow the events of its controller."),
        },
        "A fabric file": {
            "graph": Entry("Draw a fabric: planes, switches, hosts, cables."),
            "size": Entry("Size a cluster: switches, optics, power, failures to expect."),
            "fluid": Entry(
                "Compute steps of clusters of up to 131,072 NICs, without packets.", computes=True
            ),
        },
    },
    "mrcbed results": {
        "Commands": {
            "plot": Entry("Draw the plots of a results directory again.", computes=True),
            "report": Entry("Write the report.html of a results directory again.", computes=True),
            "compare": Entry("Compare separate runs of one scenario.", computes=True),
            "export": Entry(
                "Write a results directory for Perfetto, CSV, htsim or ASTRA-sim.", computes=True
            ),
            "view": Entry("Write a page to see runs path by path, with a time slider."),
            "top": Entry("Watch a run, or look at a results directory, in the terminal."),
            "packets": Entry("List the packets of a capture."),
        }
    },
    "mrcbed tools": {
        "Commands": {
            "init": Entry("Write a scenario file to start from."),
            "schema": Entry("Print the JSON Schema of a scenario or fabric file, for editors."),
            "completion": Entry("Print the completion script of a shell."),
            "bench": Entry("Benchmark codec, engine, fabrics and simulator here.", computes=True),
            "figures": Entry(
                "Make stored figures and tables again: missing or stale ones.", computes=True
            ),
            "calibrate": Entry(
                "Measure what a packet costs here, which sets the dilation.", computes=True
            ),
            "clean": Entry("Remove what a dead run left behind, and nothing else."),
            "machine": Entry(
                "Carry a part of a fabric for --on of another machine.", computes=True
            ),
        }
    },
}
"""Kept here so that the help imports nothing."""
PATHS = {
    name: f"{before} {name}"
    for before, sections in COMMANDS.items()
    for section in sections.values()
    for name in section
}
"""Command -> what to type for it."""
FORMER = {
    "sweep": "mrcbed run", "head": "dask scheduler (docs/how/sweeps.md)",
    "worker": "dask worker (docs/how/sweeps.md)", "block": "mrcbed run -",
    "certs": "a few lines of openssl (docs/how/sweeps.md)",
}  # fmt: skip
FIRST = """\
mrcbed emulates an AI cluster on this machine, breaks its network, and measures
MRC beside RoCE and TCP. What to do first:

  mrcbed doctor                        see what this machine can do
  mrcbed run smoke --world simulated   run a scenario in seconds, without root
  sudo mrcbed run demo                 see cables fail under MRC, RoCE and TCP
  mrcbed lesson                        learn: six lessons, five without root
  mrcbed --help                        see all commands
"""  # what ``mrcbed`` alone says


class Commands(click.Group):
    """Commands behind the words ``path``, imported when they are asked for."""

    def __init__(self, path: str, **keys: Any) -> None:
        super().__init__(
            path.rpartition(" ")[2], invoke_without_command=True, callback=begin, **keys
        )
        self.path = path
        self.entries = {
            name: entry for section in COMMANDS[path].values() for name, entry in section.items()
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.entries]  # no list() here: the command of that name is in the way

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.entries:
            return None
        path = f"{self.path} {name}"
        if path in COMMANDS:
            return Commands(path, help=self.entries[name].does)
        command: click.Command = importlib.import_module(
            ".".join(["mrcbed.cli", *path.split()[1:]])
        ).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if not (word in self.entries or word.startswith("-") or ctx.resilient_parsing):
            near = [PATHS[name] for name in difflib.get_close_matches(word, PATHS, n=1)]
            now = PATHS.get(word) or FORMER.get(word)
            answer = (
                f"it is {now}"
                if now
                else f"did you mean {near[0]}?"
                if near
                else f"see {self.path} --help"
            )
            raise UserError(
                f"no command {f'{self.path} {word}'.removeprefix('mrcbed ')!r}: {answer}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.entries))
        for title, section in COMMANDS[self.path].items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), entry.does) for name, entry in section.items()]
                )


@click.pass_context
def begin(ctx: click.Context) -> None:
    """What is done before any command; without one, what there is to do is printed."""
    assert isinstance(ctx.command, Commands)
    if ctx.parent is None:
        started()
        ctx.call_on_close(give_back)
        try:
            os.getcwd()
        except FileNotFoundError:
            raise UserError("the working directory is gone: cd to another") from None
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help() if ctx.parent else FIRST, nl=bool(ctx.parent))
    elif ctx.command.entries[ctx.invoked_subcommand].computes:
        check_memory()


group = click.version_option(package_name="mrcbed", prog_name="mrcbed")(
    Commands(
        "mrcbed",
        help="mrcbed emulates an AI cluster with several network planes on one machine, breaks "
        "it, and measures MRC beside RoCE and TCP.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
)


def refusal(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        shown = (
            name
            for param in error.ctx.command.params
            if not getattr(param, "hidden", False)
            for name in param.opts
        )
        near = difflib.get_close_matches(
            error.option_name, [name for name in shown if name.startswith("--")], n=1
        )
        return f"No such option {error.option_name}: " + (
            f"did you mean {near[0]}?" if near else f"see {error.ctx.command_path} --help"
        )
    text = error.format_message().rstrip(".")
    if (
        isinstance(error, click.BadParameter)
        and error.param is not None
        and isinstance(error.param.type, click.Choice)
    ):
        near = difflib.get_close_matches(
            "".join(error.message.split("'")[1:2]).lower(),
            [*map(str, error.param.type.choices)],
            n=1,
        )
        return text + (f": did you mean {near[0]}?" if near else "")
    if (
        isinstance(error, (click.MissingParameter, click.exceptions.NoSuchCommand))
        and error.ctx is not None
    ):
        return f"{text} (see {error.ctx.command_path} --help)"
    return text


def execute(arguments: list[str] | None = None) -> int:
    """Return the exit status. What went wrong is one line on stderr."""
    try:
        status = group.main(arguments, prog_name="mrcbed", standalone_mode=False)
    except click.ClickException as error:
        _complain(" ".join(refusal(error).split()))
        return error.exit_code
    except SystemExit as leave:
        if isinstance(leave.code, str):
            print(leave.code, file=sys.stderr)
            return 1
        return leave.code or 0
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, click.Abort):  # which is what click makes of Ctrl-C
            error = (
                error.__cause__
                if isinstance(error.__cause__, KeyboardInterrupt)
                else KeyboardInterrupt()
            )
        line, code = errors.explain(error)
        if code == 70 and os.environ.get("MRCBED_DEBUG"):
            raise
        _complain(line)
        return code
    return status if isinstance(status, int) else 0


def _complain(line: str) -> None:
    print(f"mrcbed: {printable(line, line=True)}", file=sys.stderr)


def main() -> NoReturn:
    """Run the console script, once mrcbed.start has begun it."""
    take_standard_streams()
    raise_open_files()
    # nothing here needs more threads, and each would take a core from an agent
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if "_MRCBED_COMPLETE" in os.environ:
        from mrcbed.cli.tools.completion import complete

        complete()
    try:
        status = execute()
        sys.stdout.flush()
    except KeyboardInterrupt:  # once more, while the first was answered or the last lines went out
        status = STATUS
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command has ended, whatever comes now
    if status == STATUS:
        # Python ends itself by the signal instead, if the exception passed through exec() or eval()
        # of a string.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
