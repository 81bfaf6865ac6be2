"""``perf``'s options, of nccl-tests and perftest, for the command line and the prompt."""

from __future__ import annotations

import re
from typing import Any

import click

from testbed.errors import UserError
from testbed.perf.run import OPERATIONS, Request, size_of


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        return value if isinstance(value, int) else size_of(value)


OPTIONS = [
    click.Option(["-b", "--minbytes", "least"], type=_Size(), metavar="SIZE", help="Smallest size, like 8, 32K, 1M."),
    click.Option(["-e", "--maxbytes", "most"], type=_Size(), metavar="SIZE", help="Largest size."),
    click.Option(["-f", "--stepfactor", "factor"], type=click.IntRange(2), metavar="N", help="Each size is N times the one before (4)."),
    click.Option(["-i", "--stepbytes", "increment"], type=_Size(), metavar="SIZE", help="Each size is so much larger, instead of -f."),
    click.Option(["-s", "--size", "only"], type=_Size(), metavar="SIZE", help="This size only."),
    click.Option(["-n", "--iters", "iterations"], type=click.IntRange(1), metavar="N", help="Iterations of a size."),
    click.Option(["-w", "--warmup_iters", "warmup"], type=click.IntRange(0, 1000), default=1, metavar="N", help="Iterations before (1)."),
    click.Option(["-c", "--check"], type=click.IntRange(0, 1), default=1, metavar="0|1", help="Compare every element (1)."),
    click.Option(["-d", "--datatype", "dtype"], default="float", metavar="T", help="float (default) or int32."),
    click.Option(["--algorithm"], default="ring", metavar="A", help="Of all_reduce: ring (default) or tree."),
    click.Option(["--placement"], default="packed", metavar="P", help="Of ranks on hosts: packed (default) or interleaved."),
    click.Option(["--pair"], metavar="A:B", help="Of write_bw and write_lat, like h0:h5. Default: first and last host."),
    click.Option(["--qps"], type=click.IntRange(1, 64), default=1, metavar="N", help="Queue pairs between two hosts (1)."),
    click.Option(["--report_gbits", "gbits"], is_flag=True, help="write_bw in Gb/s instead of MiB/s."),
]  # fmt: skip


def request_of(operation: str, given: dict[str, Any], seed: int) -> Request:
    """A request from the options' values. Raises :class:`UserError`."""
    if operation not in OPERATIONS:
        raise UserError(f"no operation {operation!r}: there are {', '.join(OPERATIONS)}")
    values = dict(given)
    only, pair, dtype = values.pop("only"), values.pop("pair"), values.pop("dtype")
    if only is not None:
        if values["least"] is not None or values["most"] is not None:
            raise UserError("-s is one size: leave -b and -e away")
        values["least"] = values["most"] = only
    if pair is not None:
        match = re.fullmatch(r"h?(\d{1,6}):h?(\d{1,6})", pair)
        if match is None:
            raise UserError(f"--pair {pair}: write it like h0:h5")
        pair = (int(match[1]), int(match[2]))
    values["check"] = bool(values["check"])
    return Request(operation, pair=pair, dtype={"float": "float32"}.get(dtype, dtype), seed=seed, **values)


def parse_line(words: list[str]) -> Request:
    """``all_reduce -b 8K -e 1M``, as typed at the prompt. Raises :class:`UserError`."""
    if not words:
        raise UserError(f"usage: perf OPERATION [OPTIONS]; there are {', '.join(OPERATIONS)}")
    command = click.Command("perf", params=list(OPTIONS), add_help_option=False)
    try:
        context = command.make_context("perf", words[1:], resilient_parsing=False)
    except click.ClickException as error:
        raise UserError(f"perf: {error.format_message()}") from None
    return request_of(words[0], context.params, 0)
