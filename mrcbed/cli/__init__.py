"""The command line, ``mrcbed``. Each command is a module here that exposes ``command`` and is imported only when asked for.

Exit status: what the command says; 2 for bad input or something the machine lacks, 130 after Ctrl-C, 70 for an internal error.
"""

from __future__ import annotations

import atexit
import difflib
import importlib.util
import os
import signal
import sys
from typing import NoReturn

import click

from testbed import errors
from testbed.errors import UserError
from testbed.machine.caller import give_back
from testbed.machine.limits import check_memory, raise_open_files
from testbed.machine.stopping import STATUS, started
from testbed.streams import printable, take_standard_streams

COMMANDS = {
    "doctor": "Check what this machine can do, and print a fix for what it lacks.",
    "run": "Run a scenario: build a fabric, break it, measure, report.",
    "machine": "Carry a part of a fabric for up --on or run --on of another machine.",
    "check": "Check a scenario or fabric file, and print what it would do and how long that takes.",
    "init": "Write a scenario file to start from.",
    "list": "List the scenarios, fabrics, faults, collectives and transports that there are.",
    "explain": "Explain a key of a scenario or fabric file, and what may stand behind --set.",
    "schema": "Print the JSON Schema of a scenario or fabric file, for editors.",
    "graph": "Draw a fabric: planes, switches, hosts, cables.",
    "up": "Build a fabric and open a prompt on it.",
    "launch": "Run a program of your own on every host, with collectives over the fabric.",
    "perf": "Measure bandwidth and latency, in nccl-tests' and perftest's tables.",
    "train": "Train a small model through failures of the fabric, under MRC, RoCE and TCP.",
    "replay": "Replay a trace of a training job: AICB's text, or Chakra's.",
    "packets": "List the packets of a capture.",
    "lesson": "Read the questions of a lesson of the course, and check your answers.",
    "links": "List the links of a running fabric.",
    "paths": "List the paths between two hosts of a running fabric.",
    "denylist": "Show or change what the hosts of a running fabric must not use.",
    "events": "Follow the events of a running fabric's controller.",
    "plot": "Draw the plots of a results directory again.",
    "size": "Size a cluster: switches, optics, power, and failures to expect, by planes.",
    "fluid": "Compute steps of clusters of up to 131,072 NICs, healthy and with dead links.",
    "conform": "Send scripted packets to any MRC endpoint, and judge what comes back.",
    "paper": "Compare the MRC paper's claims with runs on this testbed.",
    "validate": "Compare theory, simulation and emulation on small scenarios.",
    "compare": "Compare the results of separate runs.",
    "report": "Write the report.html of a results directory again.",
    "export": "Export a results directory to Perfetto's trace viewer or to CSV.",
    "top": "Watch a run, or look at a results directory, in the terminal.",
    "view": "Write a page to see runs path by path, with a time slider.",
    "calibrate": "Measure what a packet costs on this machine; runs choose their dilation by it.",
    "bench": "Benchmark the codec, the engine and the fabrics on this machine.",
    "completion": "Print the completion script of a shell.",
    "clean": "Remove what a dead run left behind, and nothing else.",
}
"""Commands in the order of the help. Kept here so that the help imports nothing."""
CALCULATING = (
    "run",
    "machine",
    "check",
    "export",
    "plot",
    "paper",
    "validate",
    "compare",
    "report",
    "calibrate",
    "bench",
    "train",
    "perf",
    "replay",
    "lesson",
    "fluid",
)
"""Commands that compute and draw with SciPy, Arrow and Matplotlib."""


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if importlib.util.find_spec(f"mrcbed.cli.{name}")]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"mrcbed.cli.{name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        commands = self.list_commands(ctx)
        if args and args[0] not in commands and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], commands, n=1) or [", ".join(commands)]
            raise UserError(f"no command {args[0]!r}: did you mean {near[0]}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mrcbed", prog_name="mrcbed")
@click.pass_context
def group(ctx: click.Context) -> None:
    """mrcbed emulates an AI cluster with several network planes on one machine, breaks it, and measures MRC beside RoCE and TCP."""
    started()
    ctx.call_on_close(give_back)
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("the working directory is gone: cd to another") from None
    if ctx.invoked_subcommand in CALCULATING:
        check_memory()


def refusal(error: click.ClickException) -> str:
    """One line for what the command line's reader refuses: with the nearest name, or where all names are."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        shown = (name for param in error.ctx.command.params if not getattr(param, "hidden", False) for name in param.opts)
        near = difflib.get_close_matches(error.option_name, [name for name in shown if name.startswith("--")], n=1)
        return f"No such option {error.option_name}: " + (f"did you mean {near[0]}?" if near else f"see {error.ctx.command_path} --help")
    text = error.format_message().rstrip(".")  # no list() here: the command of that name is in the way
    if isinstance(error, click.BadParameter) and error.param is not None and isinstance(error.param.type, click.Choice):
        near = difflib.get_close_matches("".join(error.message.split("'")[1:2]).lower(), [*map(str, error.param.type.choices)], n=1)
        return text + (f": did you mean {near[0]}?" if near else "")
    if isinstance(error, (click.MissingParameter, click.exceptions.NoSuchCommand)) and error.ctx is not None:
        return f"{text} (see {error.ctx.command_path} --help)"
    return text


def execute(arguments: list[str] | None = None) -> int:
    """Run a command line; the exit status. What went wrong is one line on stderr."""
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
            error = error.__cause__ if isinstance(error.__cause__, KeyboardInterrupt) else KeyboardInterrupt()
        line, code = errors.explain(error)
        if code == 70 and os.environ.get("MRCBED_DEBUG"):
            raise
        _complain(line)
        return code
    return status if isinstance(status, int) else 0


def _complain(line: str) -> None:
    print(f"mrcbed: {printable(line, line=True)}", file=sys.stderr)


def main() -> NoReturn:
    """The console script, once mrcbed.start has begun it."""
    take_standard_streams()
    raise_open_files()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nothing here needs more threads, and each would take a core from an agent
    if "_MRCBED_COMPLETE" in os.environ:
        from mrcbed.cli.completion import complete

        complete()
    try:
        status = execute()
        sys.stdout.flush()
    except KeyboardInterrupt:  # once more, while the first was answered or the last lines went out
        status = STATUS
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command has ended, whatever comes now
    if status == STATUS:
        # Python ends itself by the signal instead, if the exception passed through exec() or eval() of a string.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
