"""``mrcbed tools schema [scenario|fabric]``: JSON Schema of a file, for editors."""

from __future__ import annotations

import json

import click

from testbed.options import argument


@click.command(name="schema")
@argument("file", type=click.Choice(["scenario", "fabric"]), default="scenario")
def command(file: str) -> None:
    """Print the JSON Schema (draft 7) of a scenario or fabric file, for an editor that completes TOML.

    Taplo, which is behind most editors' TOML support, reads it where the file's first line is "#:schema scenario.schema.json".
    """
    from scenarios.schema.json_schema import json_schema

    print(json.dumps(json_schema(file), indent=2, ensure_ascii=False))
