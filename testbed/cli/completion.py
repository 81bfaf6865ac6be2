"""``mrcbed completion bash|zsh|fish``: a completion script that needs no Python when TAB is pressed.

Click's own completion starts this program at every TAB, and a command's options come with everything that the command imports. So the
script holds all commands and options, written out when it is made, and looks into two folders for names of scenarios and fabrics.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from testbed.cli import COMMANDS, group
from testbed.options import argument

SHELLS = ("bash", "zsh", "fish")
SCENARIOS, FABRICS, EITHER, FOLDERS, FILES, KEYS, ANY = "@scenarios @fabrics @either @folders @files @keys @any".split()
"""Words that a shell finds out for itself, or that are too many to repeat."""
_BY_NAME = {
    "scenario": SCENARIOS, "fabric": FABRICS, "names": SCENARIOS, "directory": FOLDERS, "directories": FOLDERS, "files": FILES,
    "trace": FILES, "program": FILES, "key": KEYS, "overrides": KEYS,
}  # fmt: skip


@dataclass(frozen=True)
class Option:
    """``values``: of its value, "" if it has none."""

    names: tuple[str, ...]
    help: str
    values: str


@dataclass(frozen=True)
class Command:
    """``path``: as typed, "denylist add"; ``arguments``: what each positional word may be, the last one repeated."""

    path: str
    help: str
    options: tuple[Option, ...]
    arguments: tuple[str, ...]
    commands: tuple[Command, ...] = field(default=())


def commands() -> tuple[Command, ...]:
    """Every command that there is, as click has it."""
    context = click.Context(group)
    found = ((name, group.get_command(context, name)) for name in group.list_commands(context))
    return tuple(_read(name, COMMANDS[name], command) for name, command in found if command is not None)


def _read(path: str, line: str, command: click.Command) -> Command:
    options = tuple(
        Option(tuple(p.opts), p.help or "", "" if p.is_flag else _values(path, p))
        for p in command.params
        if isinstance(p, click.Option) and not p.hidden
    )
    arguments = tuple(_values(path, p) for p in command.params if isinstance(p, click.Argument))
    inner = command.commands.items() if isinstance(command, click.Group) else ()
    below = tuple(_read(f"{path} {name}", own.get_short_help_str(80), own) for name, own in inner)
    return Command(path, line, (*options, Option(("--help",), "Show the help.", "")), arguments, below)


def _values(path: str, param: click.Parameter) -> str:
    """What a shell may offer for a value: words, or one of the names above."""
    assert param.name is not None
    metavar = param.metavar or ""
    if isinstance(param.type, click.Choice):
        return " ".join(param.type.choices)
    if path == "check" and param.name == "file":
        return EITHER
    if param.name in ("transport", "transports") and path in ("run", "check"):
        from scenarios.schema.scenario import KINDS

        return " ".join(KINDS)
    if param.name in _BY_NAME and path != "validate":
        return _BY_NAME[param.name]
    if re.fullmatch(r"\w+(\|\w+)+", metavar):
        return metavar.replace("|", " ")
    if metavar.startswith("DIR"):
        return FOLDERS
    return FILES if isinstance(param.type, click.Path) else ANY


def _keys() -> str:
    from scenarios.schema.key_search import named
    from scenarios.schema.keys import SCENARIO, keys

    return " ".join(dict.fromkeys(named(key) for key in keys(SCENARIO)))


def _folders() -> tuple[Path, Path]:
    from scenarios.schema.scenario import HERE
    from topologies.fabrics import HERE as NAMED

    return HERE, NAMED


def _every(found: tuple[Command, ...]) -> Iterator[Command]:
    for command in found:
        yield command
        yield from _every(command.commands)


def _quoted(words: str) -> str:
    return "'" + words.replace("'", "'\\''") + "'"


def _names(options: tuple[Option, ...]) -> str:
    return " ".join(name for option in options for name in option.names)


# --- scripts -------------------------------------------------------------------------------------------------------

HEAD = """\
# Completion of mrcbed for {of}, written by `mrcbed completion {of}`. Write it anew after an update.
"""
BASH = """\
_mrcbed_scenarios={scenarios}
_mrcbed_fabrics={fabrics}
_mrcbed_keys={keys}

# What may follow a command: its commands, options, positional words.
_mrcbed_spec() {{
  _subs= _opts= _args=()
  case $1 in
    '') _subs={top} _opts='--help --version' ;;
{specs}
  esac
}}

# What an option's value may be; false if it has none.
_mrcbed_value() {{
  case "$1 $2" in
{values}
    *) return 1 ;;
  esac
}}

_mrcbed_names() {{
  local file
  for file in "$1"/*.toml; do
    file=${{file##*/}}
    _found+=" ${{file%.toml}}"
  done
}}

_mrcbed_walk() {{  # the words before the cursor: which command, which positional word, or which option's value
  local word
  _path= _place=0 _want=
  _mrcbed_spec ''
  while (($#)); do
    word=$1
    shift
    if [[ $word == '=' ]]; then
      (($#)) && shift
    elif [[ $word == -* ]]; then
      if _mrcbed_value "$_path" "$word"; then
        if (($#)); then shift; else _want=$_value; fi
      fi
    elif [[ " $_subs " == *" $word "* ]]; then
      _path="${{_path:+$_path }}$word"
      _mrcbed_spec "$_path"
    else
      _place=$((_place + 1))
    fi
  done
  return 0
}}
"""
BASH_END = """\

_mrcbed() {
  local cur=${COMP_WORDS[COMP_CWORD]} _subs _opts _args _path _place _want _value _found=
  _mrcbed_walk "${COMP_WORDS[@]:1:COMP_CWORD-1}"
  local last=$((${#_args[@]} - 1))
  if [[ -z $_want ]]; then
    if [[ $cur == -* ]]; then
      _want=$_opts
    elif [[ -n $_subs ]]; then
      _want=$_subs
    elif ((last >= 0)); then
      _want=${_args[_place < last ? _place : last]}
    fi
  fi
  local IFS=$' \\t\\n'
  case $_want in
    @scenarios | @fabrics | @either)
      [[ $_want != @fabrics ]] && _mrcbed_names "$_mrcbed_scenarios"
      [[ $_want != @scenarios ]] && _mrcbed_names "$_mrcbed_fabrics"
      compopt -o filenames 2>/dev/null
      COMPREPLY=($(compgen -W "$_found" -- "$cur") $(compgen -f -X '!*.toml' -- "$cur") $(compgen -d -- "$cur")) ;;
    @folders) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$cur")) ;;
    @files) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")) ;;
    @keys)
      if [[ $_path == explain ]]; then
        COMPREPLY=($(compgen -W "$_mrcbed_keys" -- "$cur"))
      else
        compopt -o nospace 2>/dev/null
        COMPREPLY=($(compgen -W "$_mrcbed_keys" -S = -- "$cur"))
      fi ;;
    @any) COMPREPLY=() ;;
    *) COMPREPLY=($(compgen -W "$_want" -- "$cur")) ;;
  esac
}
complete -F _mrcbed mrcbed
"""
ZSH_END = """\

_mrcbed() {
  local _subs _opts _path _place _want _value _found= cur=${words[CURRENT]}
  local -a _args described
  local -A about=(
%(about)s
  )
  _mrcbed_walk "${(@)words[2,CURRENT-1]}"
  if [[ -z $_want ]]; then
    if [[ $cur == -* ]]; then
      compadd -- ${=_opts}
      return
    elif [[ -n $_subs ]]; then
      local name
      for name in ${=_subs}; do described+=("$name:${about[${_path:+$_path }$name]}"); done
      _describe command described
      return
    fi
    ((${#_args})) && _want=${_args[_place < ${#_args} ? _place + 1 : ${#_args}]}
  fi
  case $_want in
    @scenarios | @fabrics | @either)
      [[ $_want != @fabrics ]] && _mrcbed_names "$_mrcbed_scenarios"
      [[ $_want != @scenarios ]] && _mrcbed_names "$_mrcbed_fabrics"
      compadd -- ${=_found}
      _files -g '*.toml' ;;
    @folders) _files -/ ;;
    @files) _files ;;
    @keys)
      if [[ $_path == explain ]]; then compadd -- ${=_mrcbed_keys}; else compadd -S = -- ${=_mrcbed_keys}; fi ;;
    @any | '') ;;
    *) compadd -- ${=_want} ;;
  esac
}
if [[ $funcstack[1] == _mrcbed ]]; then _mrcbed "$@"; else compdef _mrcbed mrcbed; fi
"""


def _functions(found: tuple[Command, ...]) -> str:
    """The part that bash and zsh share."""
    specs, values = [], []
    for command in _every(found):
        subs = " ".join(own.path.rpartition(" ")[2] for own in command.commands)
        arguments = " ".join(map(_quoted, command.arguments))
        specs.append(f"    {_quoted(command.path)}) _subs={_quoted(subs)} _opts={_quoted(_names(command.options))} _args=({arguments}) ;;")
        for option in command.options:
            if option.values:
                patterns = " | ".join(_quoted(f"{command.path} {name}") for name in option.names)
                values.append(f"    {patterns}) _value={_quoted(option.values)} ;;")
    scenarios, fabrics = _folders()
    return BASH.format(
        scenarios=_quoted(str(scenarios)), fabrics=_quoted(str(fabrics)), keys=_quoted(_keys()), specs="\n".join(specs),
        values="\n".join(values), top=_quoted(" ".join(command.path for command in found)),
    )  # fmt: skip


def bash(found: tuple[Command, ...]) -> str:
    """The script for bash 4 or later."""
    return HEAD.format(of="bash") + _functions(found) + BASH_END


def zsh(found: tuple[Command, ...]) -> str:
    """The script for zsh, to be sourced or to lie in a folder of ``fpath`` as ``_mrcbed``."""
    about = "\n".join(f"    {_quoted(command.path)} {_quoted(command.help)}" for command in _every(found))
    return "#compdef mrcbed\n" + HEAD.format(of="zsh") + _functions(found) + ZSH_END % {"about": about}


def fish(found: tuple[Command, ...]) -> str:
    """The script for fish 3 or later."""
    scenarios, fabrics = map(str, _folders())
    lines = [
        HEAD.format(of="fish").rstrip(),
        "function __mrcbed_names",
        "  for file in $argv/*.toml; basename $file .toml; end",
        "end",
        "function __mrcbed_files",
        "  for file in (commandline -ct)*.toml; echo $file; end",
        "end",
        f"set -g __mrcbed_keys {_keys()}",
        "complete -c mrcbed -f",
    ]
    offers = {
        SCENARIOS: f"-a '(__mrcbed_names {scenarios}; __mrcbed_files)'",
        FABRICS: f"-a '(__mrcbed_names {fabrics}; __mrcbed_files)'",
        EITHER: f"-a '(__mrcbed_names {scenarios}; __mrcbed_names {fabrics}; __mrcbed_files)'",
        FOLDERS: "-a '(__fish_complete_directories)'", FILES: "-F", KEYS: "-a '$__mrcbed_keys'", ANY: "",
    }  # fmt: skip

    def offer(values: str) -> str:
        return offers[values] if values in offers else f"-a {_quoted(values)}"

    lines += [f"complete -c mrcbed -n __fish_use_subcommand -a {command.path} -d {_quoted(command.help)}" for command in found]
    for command in _every(found):
        words = command.path.split()
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words)
        for own in command.commands:
            name = own.path.rpartition(" ")[2]
            lines.append(f"complete -c mrcbed -n {_quoted(seen)} -a {name} -d {_quoted(own.help)}")
        for option in command.options:
            flags = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = f"-x {offer(option.values)}" if option.values else ""
            lines.append(f"complete -c mrcbed -n {_quoted(seen)} {flags} {value} -d {_quoted(option.help)}".replace("-x -F", "-r -F"))
        lines += [f"complete -c mrcbed -n {_quoted(seen)} {offer(values)}" for values in dict.fromkeys(command.arguments) if offer(values)]
    return "\n".join(lines) + "\n"


@click.command(name="completion")
@argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script of a shell. Write it where the shell looks for such:

    \b
    bash: mrcbed completion bash > ~/.local/share/bash-completion/completions/mrcbed
    zsh:  mrcbed completion zsh > a folder of $fpath/_mrcbed
    fish: mrcbed completion fish > ~/.config/fish/completions/mrcbed.fish
    """
    sys.stdout.write({"bash": bash, "zsh": zsh, "fish": fish}[shell](commands()))
