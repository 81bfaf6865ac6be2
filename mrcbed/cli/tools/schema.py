"""``mrcbed tools schema [FILE]``: JSON Schema of a file."""

from __future__ import annotations

import json

import click

from testbed.options import argument


@click.command(name="schema")
@argument(
    "file",
    type=click.Choice(["scenario", "fabric", "summary", "manifest", "record", "log"]),
    default="scenario",
)
def command(file: str) -> None:
    """Print the JSON Schema of a scenario or fabric file (draft 7), for an editor that completes
    TOML, or of a file of results.

    Taplo, which is behind most editors' TOML support, reads it where the file's first line is
    "#:schema scenario.schema.json".
    """
    from scenarios.schema.json_schema import json_schema
    from scenarios.schema.result_keys import FILES, results_schema

    print(
        json.dumps(
            results_schema(file) if file in FILES else json_schema(file),
            indent=2,
            ensure_ascii=False,
        )
    )
