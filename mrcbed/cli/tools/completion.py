"""``mrcbed tools completion bash|zsh|fish``: click's own, which starts this program at every
TAB."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

from testbed import options
from testbed.options import argument

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_MRCBED_COMPLETE"  # in the environment at a TAB


def offers(ctx: click.Context, param: click.Parameter) -> Iterable[str | CompletionItem[str]]:
    from scenarios.schema.key_search import named
    from scenarios.schema.keys import SCENARIO, keys
    from scenarios.schema.scenario import KINDS, named_scenarios
    from topologies import named_fabrics

    command, metavar = ctx.info_name, param.metavar or ""
    if (
        param.name in ("trace", "program")
        or isinstance(param.type, click.Path)
        or metavar.startswith("DIR")
    ):
        return [CompletionItem("", "dir" if metavar.startswith("DIR") else "file")]
    if command == "check" and param.name == "file":
        return [CompletionItem("", "file"), *named_scenarios(), *named_fabrics()]
    if param.name == "scenario" or (command == "seeds" and param.name == "names"):
        return [CompletionItem("", "file"), *named_scenarios()]
    if param.name == "fabric":
        return [CompletionItem("", "file"), *named_fabrics()]
    if param.name in ("key", "overrides"):
        return [
            f"{name}{'=' * (param.name == 'overrides')}"
            for name in dict.fromkeys(named(key) for key in keys(SCENARIO))
        ]
    if param.name in ("transport", "transports") and command in ("run", "check"):
        return KINDS
    return metavar.split("|") if re.fullmatch(r"\w+(\|\w+)+", metavar) else ()


def complete() -> None:
    options.offers.append(offers)


@click.command(name="completion")
@argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script of a shell. Write it where the shell looks for such:

    \b
    bash: mrcbed tools completion bash > ~/.local/share/bash-completion/completions/mrcbed
    zsh:  mrcbed tools completion zsh > a folder of $fpath/_mrcbed
    fish: mrcbed tools completion fish > ~/.config/fish/completions/mrcbed.fish
    """
    from mrcbed.cli import group

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(group, {}, "mrcbed", VARIABLE).source())
