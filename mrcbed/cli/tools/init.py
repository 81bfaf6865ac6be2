"""``mrcbed tools init NAME``: a commented scenario file, and its JSON Schema."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import click

from testbed.errors import UserError
from testbed.machine.caller import written
from testbed.options import argument

SCHEMA = "mrcbed-scenario.schema.json"
STARTER = """\
#:schema ./{schema}
# A scenario of your own. An editor with Taplo completes its keys; `mrcbed explain KEY` says what
# a key means.
#   mrcbed check {file}
#   mrcbed run {file} --world simulated        # no root, seconds
#   sudo mrcbed run {file}                     # on this machine's kernel
format = 3                       # times and rates are those of the real network
description = "A T0-T1 cable dies under a ring all-reduce, and comes back."
fabric = "tiny"                  # `mrcbed list fabrics`; or a file of your own beside this one
seeds = [1]                      # every transport runs once per seed

[workload]                       # what the hosts do
kind = "ring-allreduce"          # `mrcbed list collectives`; or a pattern, like incast
placement = "interleaved"        # every ring edge crosses the T1s; "packed": neighbours share a T0
message_bytes = "256KiB"         # as nccl-tests counts it
steps = 12                       # measured ones
slices = 2                       # pipelined parts of a chunk

[[transport]]                    # `mrcbed list transports`
kind = "mrc"

[[transport]]
kind = "roce"
fabric = "twin"                  # one plane with the same rate per host
# how soon the network re-routes; `mrcbed explain transport.options` lists all
options = {{ reconvergence = "40us" }}

[[fault]]                        # `mrcbed list faults`
name = "cable pulled"
kind = "link"
# the cable that a queue pair of the run uses; or a name, like "p0-t0-0:p0-t1-1"
on = "used-by-qp"
at = "300us"                     # after the first measured step began
for = "120us"                    # then it is mended; without this line the fault lasts

[[expect]]                       # what must hold; a run that breaks it fails
check = "mrc.wrong == 0"         # every sum is right

[[expect]]
name = "MRC finishes every step"
check = "mrc.failed_steps == 0"
"""


@click.command(name="init")
@argument("name")
def command(name: str) -> None:
    """Write NAME.toml, a scenario to start from, and beside it the JSON Schema that an editor
    completes it by."""
    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    if not re.fullmatch(r"[\w.-]{1,100}", path.stem):
        raise UserError(
            f"{path.stem!r} would be the scenario's name: use letters, digits, '-', '_' or '.'"
        )
    from scenarios.schema.json_schema import json_schema

    write_new(written(path), STARTER.format(schema=SCHEMA, file=path))
    schema = written(path.parent / SCHEMA)
    schema.write_text(
        json.dumps(json_schema("scenario"), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    print(
        f"{path} is a scenario, {schema} completes it in an editor. Try: mrcbed check {path}; "
        f"mrcbed run {path} --world simulated"
    )


def write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet. Raises :class:`UserError`."""
    try:
        with open(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w", encoding="utf-8"
        ) as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"{path} exists and is left as it is: give another name") from None
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}: give another place") from None
