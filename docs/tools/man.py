"""The man page docs/reference/mrcbed.1, written from the commands themselves: ``python -m
docs.tools.man`` (`make man`) writes it anew.

Stored, not made while a wheel is built: reading the commands needs everything that they import.
Form: man-pages(7).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from mrcbed.cli import COMMANDS, Commands, group

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "mrcbed.1"
STATUS = {
    "0": "success",
    "1": "a check, a sum or a comparison failed",
    "2": "bad input, or the machine lacks something; one line says what, where and the fix",
    "3": "the run is done, but its figures are not trustworthy",
    "70": "an internal error",
    "130": "stopped by Ctrl-C or SIGTERM; what was measured so far is written",
}
FILES = {
    "results/": "in the current folder: a directory for every run",
    "/var/cache/mrcbed/calibration.json": "what a packet costs on this machine",
    "PREFIX/share/doc/mrcbed/": "the documents that came with a wheel",
}


def commands(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    """The command, then those below it, each with a context that knows its full name."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from commands(inner, click.Context(inner, info_name=name, parent=context))


def escaped(text: str) -> str:
    """Text as roff has it: backslashes, hyphens that are to be copied, and no line that begins as a
    request does."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


def paragraphs(text: str) -> str:
    """A docstring; a block marked with \\b keeps its lines, as in click's help."""
    blocks = []
    for block in inspect.cleandoc(text).split("\n\n"):
        kept = block.startswith("\b\n")
        blocks.append(f".nf\n{escaped(block[2:])}\n.fi" if kept else escaped(block))
    return "\n.PP\n".join(blocks)


def listed(records: dict[str, str]) -> str:
    return "\n".join(
        f".TP\n.B {escaped(name)}\n{escaped(meaning)}" for name, meaning in records.items()
    )


def options(command: click.Command, context: click.Context) -> dict[str, str]:
    """Option and meaning. Not by ``get_params``: the option for help that click keeps there is that
    of whatever asked first."""
    own = [option for option in command.params if isinstance(option, click.Option)]
    records = dict(
        record for option in own if (record := option.get_help_record(context)) is not None
    )
    return records | {", ".join(context.help_option_names): "Show this message and exit."}


def section(command: click.Command, context: click.Context) -> str:
    """One command: its usage, what it does, its options."""
    usage = " ".join(command.collect_usage_pieces(context))
    return "\n".join([
        f".SS {escaped(context.command_path)} {escaped(usage)}",
        paragraphs(command.help or ""),
        listed(options(command, context)),
    ])  # fmt: skip


def chapters(group: Commands, context: click.Context) -> Iterator[str]:
    """Headings and commands, as the help has them; those of a noun follow its own line."""
    for title, names in COMMANDS[group.path].items():
        head = f"{context.command_path}: {title}".removeprefix("mrcbed: ").removeprefix("mrcbed ")
        yield f".SH {escaped(head.upper())}"
        inners = [inner for name in names if (inner := group.get_command(context, name))]
        found = [
            (inner, click.Context(inner, info_name=inner.name, parent=context)) for inner in inners
        ]
        yield from (
            listed({below.command_path: inner.help or ""})
            for inner, below in found
            if isinstance(inner, Commands)
        )
        for inner, below in found:
            yield from (
                chapters(inner, below)
                if isinstance(inner, Commands)
                else (section(*one) for one in commands(inner, below))
            )


def page() -> str:
    version = (ROOT / "VERSION").read_text().strip()
    context = click.Context(group, info_name="mrcbed", **group.context_settings)
    parts = [
        f'.TH MRCBED 1 "" "mrcbed {version}"',
        (
            ".SH NAME\nmrcbed \\- a testbed for MRC (Multipath Reliable Connection) on one Linux "
            "machine"
        ),
        ".SH SYNOPSIS\n.B mrcbed\n.RI [ options ]\n.I command\n.RI [ arguments ]",
        f".SH DESCRIPTION\n{paragraphs(group.help or '')}",
        f".SH OPTIONS\n{listed(options(group, context))}",
        *chapters(group, context),
        f".SH EXIT STATUS\n{listed(STATUS)}",
        f".SH FILES\n{listed(FILES)}",
        ".SH SEE ALSO\n.BR tshark (1),\n.BR tc (8),\n.BR bpftool (8)",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
