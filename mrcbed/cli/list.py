"""``mrcbed list WHAT``: names with a line each, from the place that defines them."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import click

from testbed import terminal
from testbed.options import argument, option


def scenarios() -> dict[str, str]:
    from scenarios.schema.scenario import HERE, named_scenarios
    from topologies.toml_files import read_toml

    return {
        name: " ".join(str(read_toml(HERE / f"{name}.toml")[1].get("description", "")).split())
        for name in named_scenarios()
    }


def fabrics() -> dict[str, str]:
    from topologies.fabrics import HERE, named_fabrics

    return {
        name: (HERE / f"{name}.toml")
        .read_text(encoding="utf-8")
        .partition("\n")[0]
        .removeprefix("# ")
        for name in named_fabrics()
    }


def faults() -> dict[str, str]:
    from testbed.faults.kinds import KINDS

    return {name: f"{kind.doc} (on: {kind.on})" for name, kind in KINDS.items()}


def collectives() -> dict[str, str]:
    """Return first sentences from modules' sources: compiled modules have none."""
    from agents import collectives as package
    from agents.collectives.registry import collectives as kinds

    def sentence(module: str) -> str:
        source = Path(package.__path__[0]) / f"{module.rpartition('.')[2]}.py"
        words = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
        return words.partition("\n")[0].partition(". ")[0].rstrip(".")

    return {name: sentence(kind.__module__) for name, kind in kinds().items()}


def transports() -> dict[str, str]:
    from scenarios.schema.scenario import TRANSPORTS

    return TRANSPORTS


WHAT: dict[str, Callable[[], dict[str, str]]] = {
    "scenarios": scenarios,
    "fabrics": fabrics,
    "faults": faults,
    "collectives": collectives,
    "transports": transports,
}


@click.command(name="list")
@argument("what", type=click.Choice(list(WHAT)), required=False)
@option("--json", "as_json", is_flag=True, help="Print JSON: name to line.")
def command(what: str | None, as_json: bool) -> None:
    """List what there is, a name and a line each; without WHAT all names."""
    lists = {name: found() for name, found in WHAT.items() if what in (None, name)}
    if as_json:
        print(json.dumps(lists[what] if what else lists, indent=2, ensure_ascii=False))
    elif what:
        terminal.console(140).print(
            terminal.table(["name", "is"], list(lists[what].items()), words=("is",))
        )
    else:
        rows = [(f"{name} ({len(found)})", ", ".join(found)) for name, found in lists.items()]
        terminal.console(140).print(terminal.table(["list", "names"], rows, words=("names",)))
        print(
            "A line about each: mrcbed list scenarios. A key of a scenario: mrcbed explain fault."
        )
