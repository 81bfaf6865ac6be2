"""``mrcbed explain [KEY]``: what a key of a scenario, a fabric file or of results means."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import groupby
from typing import Any

import click
from rich.text import Text

from testbed import terminal
from testbed.errors import UserError
from testbed.options import argument, option


@click.command(
    name="explain",
    help="Explain KEY of a scenario or fabric file, like workload.steps, fault.at or "
    "fabric.planes, or of results, like busbw_bps or summary.runs.failovers; without KEY "
    "list those of files that you write.",
)
@argument("key", required=False)
@option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(key: str | None, as_json: bool) -> None:
    """A key is written with dots, as for --set; which entry of a list may be left out."""
    from scenarios.schema.key_search import find, nearest_keys
    from scenarios.schema.keys import keys, of_kinds
    from scenarios.schema.result_keys import NAMES, find_results

    named, table = find(key) if key is not None else ((), keys())
    results, result_table = (
        find_results(key) if key is not None and not named and not table else ((), ())
    )
    if key is not None and not (named or table or results or result_table):
        near = nearest_keys(key)
        raise UserError(
            f"{key} is not a key: did you mean {' or '.join(near)}? 'mrcbed explain' lists all"
        )
    if as_json:
        print(
            json.dumps(
                [*map(_record, (*named, *table)), *map(asdict, (*results, *result_table))], indent=2
            )
        )
        return
    out = terminal.console(120)
    for one in named:
        _show(one, out)
    for (file, path), group in groupby(table, lambda k: (k.file, k.path)):
        title = f"{'of' if named else 'Keys of'} {path or f'a {file} file'}"
        rows = [(k.name, of_kinds(k), k.default or "required", k.meaning) for k in group]
        out.print(
            terminal.table(
                ["key", "of kind", "default", "meaning"],
                rows,
                title=title,
                words=("of kind", "default", "meaning"),
            )
        )
    for found in results:
        out.print(
            Text(f"{found.file}.{found.dotted}", style="bold")
            + Text(f"  {NAMES[found.file]}", style="dim")
        )
        lines = {
            "means": found.meaning,
            "is": f"{found.form}{', may be missing' if found.optional else ''}",
            "unit": found.unit,
        }
        out.print(
            terminal.fields([f"  {head}" for head in lines], list(lines.values()), style="cyan")
        )
        out.print()
    for (file, path), keys_of in groupby(result_table, lambda k: (k.file, k.path)):
        rows_of = [(k.name, k.form, k.unit, k.meaning) for k in keys_of]
        title = f"Keys of {path or 'the top'} in {NAMES[file]}"
        out.print(
            terminal.table(
                ["key", "is", "unit", "meaning"],
                rows_of,
                title=title,
                words=("is", "unit", "meaning"),
            )
        )


def _record(key: Any) -> dict[str, Any]:
    from scenarios.schema.key_search import example_of_set, named

    return {
        "key": named(key),
        "file": key.file,
        "table": key.path,
        "kinds": list(key.kinds),
        "must_be": key.must,
        "unit": key.unit or None,
        "required": key.required,
        "default": key.default or None,
        "meaning": key.meaning,
        "example": key.example or None,
        "set": example_of_set(key) or None,
    }


def _show(key: Any, out: Any) -> None:
    from scenarios.schema.key_search import example_in_file, example_of_set, named
    from scenarios.schema.keys import of_kinds

    of = f", of kind {of_kinds(key)}" if key.kinds else ""
    out.print(Text(named(key), style="bold") + Text(f"  {key.file} file{of}", style="dim"))
    lines = {
        "means": key.meaning,
        "must be": key.must,
        "unit": key.unit,
        "default": key.default or "none: the key is required",
        "write": example_in_file(key),
        "or": example_of_set(key),
    }
    out.print(terminal.fields([f"  {head}" for head in lines], list(lines.values()), style="cyan"))
    out.print()
