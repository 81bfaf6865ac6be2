"""``perf``'s options, of nccl-tests and perftest."""

from __future__ import annotations

import re
from typing import Any

import click

from agents.collectives.data import DTYPES
from mrcbed.perf.run import DEPTH, OPERATIONS, TYPES, Request, operation_of, size_of
from testbed.errors import UserError
from testbed.options import Option


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, str) and value.startswith("-"):  # perftest's of that letter is a flag
            self.fail(f"it takes a size, not {value}", param, ctx)
        return value if isinstance(value, int) else size_of(value)


class _Same(Option):
    """An option whose only sensible value here is what is done anyway. Not in the help."""

    def __init__(self, names: list[str], only: tuple[str, ...], why: str) -> None:
        super().__init__(
            [*names, f"same_{names[0].strip('-')}"],
            hidden=True,
            expose_value=False,
            callback=self.check,
            metavar="N",
        )
        self.only, self.why = only, why

    def check(self, context: click.Context, option: click.Parameter, value: str | None) -> None:
        if value is not None and self.only and value not in self.only:
            raise UserError(
                f"{'/'.join(self.opts)} {value}: {self.why}: drop it, or give {self.only[0]}"
            )


NUMBER = click.IntRange(1, 1_000_000)
OPTIONS: list[click.Parameter] = [
    Option(
        ["-b", "--minbytes", "least"],
        type=_Size(),
        metavar="SIZE",
        help="Smallest size, like 8, 32K, 1M.",
    ),
    Option(["-e", "--maxbytes", "most"], type=_Size(), metavar="SIZE", help="Largest size."),
    Option(
        ["-f", "--stepfactor", "factor"],
        type=click.IntRange(1),
        metavar="N",
        help="Each size is N times the one before (4).",
    ),
    Option(
        ["-i", "--stepbytes", "increment"],
        type=_Size(),
        metavar="SIZE",
        help="Each size is so much larger, instead of -f.",
    ),
    Option(["-s", "--size", "only"], type=_Size(), metavar="SIZE", help="This size only."),
    Option(
        ["-a", "--all", "every"],
        is_flag=True,
        help="write_bw and write_lat: from 2 to 8M bytes, doubling.",
    ),
    Option(["-n", "--iters", "iterations"], type=NUMBER, metavar="N", help="Iterations of a size."),
    Option(
        ["-w", "--warmup_iters", "warmup"],
        type=click.IntRange(0, 1000),
        default=1,
        metavar="N",
        help="Iterations before (1).",
    ),
    Option(
        ["-N", "--run_cycles", "cycles"],
        type=NUMBER,
        default=1,
        metavar="N",
        help="All sizes so many times (1).",
    ),
    Option(
        ["-c", "--check"],
        type=click.IntRange(0),
        default=1,
        metavar="0|1",
        help="Compare every element (1).",
    ),
    Option(
        ["-d", "--datatype", "dtype"],
        type=click.Choice((*TYPES, *DTYPES)),
        default="float",
        metavar="T",
        help="float or int32.",
    ),
    Option(
        ["--algorithm"], default="ring", metavar="A", help="Of all_reduce: ring (default) or tree."
    ),
    Option(
        ["--placement"],
        default="packed",
        metavar="P",
        help="Of ranks on hosts: packed (default) or interleaved.",
    ),
    Option(
        ["--pair"],
        metavar="A:B",
        help="Of write_bw and write_lat, like h0:h5. Default: first and last host.",
    ),
    Option(
        ["-q", "--qps", "--qp", "qps"],
        type=click.IntRange(1, 64),
        default=1,
        metavar="N",
        help="Queue pairs of two hosts (1).",
    ),
    Option(
        ["--tx-depth", "depth"],
        type=click.IntRange(1, 256),
        default=DEPTH,
        metavar="N",
        help="write_bw: WRITEs at once (16).",
    ),
    Option(["--report_gbits", "gbits"], is_flag=True, help="write_bw in Gb/s instead of MiB/s."),
    _Same(["-g", "--ngpus"], ("1",), "each host is one rank, and --placement says which"),
    _Same(["--nthreads"], ("1",), "each host is one rank"),
    _Same(["-o", "--op"], ("sum",), "sums are what is compared"),
    _Same(
        ["-m", "--agg_iters", "--mtu"],
        ("1",),
        "each iteration is timed by itself, and the MTU is the fabric's",
    ),
    _Same(["-z", "--blocking"], ("0",), "ranks do not wait for each other between iterations"),
    _Same(["-G", "--cudagraph"], ("0",), "there is no GPU"),
    _Same(["-C", "--report_cputime"], ("0",), "times are the network's"),
    _Same(["--average"], ("1",), "times are means over ranks"),
    # no operation here has one; nccl-tests' do not look at it, either
    _Same(["-r", "--root"], (), ""),
    _Same(["-p", "--parallel_init", "--port"], (), ""),
    _Same(["-T", "--timeout"], (), ""),
    _Same(["-x", "--gid-index"], (), ""),
    Option(["-F", "--CPU-freq", "same_F"], is_flag=True, hidden=True, expose_value=False),
]
"""nccl-tests' by their names there (src/common.cu), perftest's (src/perftest_parameters.c), and
ours."""
ELSEWHERE = {
    "-t": "nccl-tests' --nthreads is always 1 here, and perftest's -t is --tx-depth",
    "-d": "perftest's --ib-dev is --pair h0:h5",
    "-c": "perftest's --connection is always RC",
    "-b": "perftest's --bidirectional is not there",
    "-f": "perftest's --margin is not there",
    "-i": "perftest's --ib-port is not there: all NIC ports of a host are used",
    "-e": "perftest's --events is not there",
    "-N": "perftest's --noPeak is not there: the peak costs nothing",
    "-D": "no run here is as long: give a number of messages (-n)",
    "-Q": "every message is acknowledged to the program by itself",
    "-l": "messages are posted one by one: --tx-depth says how many may be under way",
    "-R": "there is neither registration nor rdma_cm: drop it",
    "-J": "use --json",
    "-I": "use --json, which has all rows",
    "-O": "all NIC ports of a host are used",
    "-S": "drop it",
}  # fmt: skip
"""Ends a refusal: what those programs' options are here, where ours of that letter, or none, is
another."""
_LONG = {
    "--duration": "-D",
    "--cq-mod": "-Q",
    "--post_list": "-l",
    "--bidirectional": "-b",
    "--ib-dev": "-d",
    "--noPeak": "-N",
    "--connection": "-c",
    "--out_json": "-J",
    "--output_file": "-J",
    "--local_register": "-R",
    "--rdma_cm": "-R",
}


class Measurement(click.Command):
    """What it refuses ends in what that option of nccl-tests or perftest is here."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise self._refused(
                error, f"No such option {error.option_name}", [error.option_name]
            ) from None
        except click.BadOptionUsage as error:
            raise self._refused(error, error.format_message(), [error.option_name]) from None
        except click.BadParameter as error:
            hint = self._hint(error.param.opts if error.param is not None else [])
            if not hint:
                raise
            raise click.BadParameter(error.message + hint, error.ctx, error.param) from None

    @staticmethod
    def _hint(names: list[str]) -> str:
        return next(
            (
                f" ({ELSEWHERE[short]})"
                for short in (_LONG.get(name, name) for name in names)
                if short in ELSEWHERE
            ),
            "",
        )

    def _refused(self, error: click.UsageError, text: str, names: list[str]) -> click.UsageError:
        hint = self._hint(names)
        return click.UsageError(text.rstrip(".") + hint, error.ctx) if hint else error


def request_of(operation: str, given: dict[str, Any], seed: int) -> Request:
    """Raises :class:`UserError`."""
    operation = operation_of(operation)
    values = dict(given)
    only, every, pair, dtype = (values.pop(name) for name in ("only", "every", "pair", "dtype"))
    if every and operation not in ("write_bw", "write_lat"):
        raise UserError(
            f"-a is perftest's --all, of write_bw and write_lat: {operation} takes -b, -e and "
            "-f; nccl-tests' -a is --average"
        )
    if only is not None or every:
        if (
            values["least"] is not None
            or values["most"] is not None
            or (only is not None and every)
        ):
            raise UserError(
                "-s sets a single size, and -a all of perftest's: give one of them, without -b "
                "and -e"
            )
        values["least"], values["most"] = (2, 1 << 23) if every else (only, only)
        values["factor"] = values["factor"] or (2 if every else None)
    if pair is not None and operation not in ("write_bw", "write_lat"):
        raise UserError(f"--pair {pair}: {operation} is of all hosts: drop it")
    if pair is not None:
        match = re.fullmatch(r"h?([0-9]{1,6}):h?([0-9]{1,6})", pair)
        if match is None:
            raise UserError(f"--pair {pair}: write it like h0:h5")
        pair = (int(match[1]), int(match[2]))
    values["check"] = bool(values["check"])
    return Request(operation, pair=pair, dtype=TYPES.get(dtype, dtype), seed=seed, **values)


def parse_line(words: list[str]) -> Request:
    """Parse ``all_reduce -b 8K -e 1M``. Raises :class:`UserError`."""
    if not words:
        raise UserError(f"usage: perf OPERATION [OPTIONS]; there are {', '.join(OPERATIONS)}")
    command = Measurement("perf", params=list(OPTIONS), add_help_option=False)
    try:
        context = command.make_context("perf", words[1:], resilient_parsing=False)
    except click.ClickException as error:
        raise UserError(f"perf: {error.format_message()}") from None
    return request_of(words[0], context.params, 0)
