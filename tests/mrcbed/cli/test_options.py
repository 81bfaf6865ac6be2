"""Every option and argument of every command: what makes no sense is refused before the command
sees it, in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from docs.tools.man import commands
from mrcbed.cli import group
from mrcbed.prompt import iperf
from testbed.errors import explain
from testbed.options import Argument, Option
from tests.mrcbed.cli.conftest import Said

NO_NUMBERS = (
    "nan",
    "-nan",
    "inf",
    "Infinity",
    "1e300",
    "1e400",
    "9" * 30,
    "9" * 5000,
    "１０",
    "٣",
    "²",
    "1_000",
    "0x10",
    "+1",
    " 5",
    "5\n",
    "",
)
STRANGE = {"no UTF-8": os.fsdecode(b"a\xff"), "empty": " "}


def every() -> list[tuple[str, click.Command, click.Parameter]]:
    _, *found = commands(group, click.Context(group, info_name="mrcbed"))
    typed = [(context.command_path.removeprefix("mrcbed "), command) for command, context in found]
    return [
        (f"{path} {p.opts[-1]}", c, p)
        for path, c in [*typed, ("iperf3", iperf._arguments)]
        for p in c.params
    ]


EVERY = every()


def give(command: click.Command, param: click.Parameter, value: object) -> object:
    """As the parser hands a value over that was typed."""
    context = click.Context(command)
    assert param.name is not None
    param.handle_parse_result(context, {param.name: value}, [])
    return context.params.get(param.name)


def shaped(param: click.Parameter, *words: str) -> object:
    return words if getattr(param, "multiple", False) or param.nargs == -1 else words[0]


def test_every_option_and_argument_is_checked() -> None:
    assert len(EVERY) > 230
    unchecked = [name for name, _, param in EVERY if not isinstance(param, (Option, Argument))]
    assert not unchecked, "use testbed.options.option and argument, not click's own"


NUMBERS = [
    one
    for one in EVERY
    if isinstance(one[2].type, (click.types.FloatParamType, click.types.IntParamType))
]


@pytest.mark.parametrize(("name", "command", "param"), NUMBERS, ids=[one[0] for one in NUMBERS])
def test_a_number_is_written_in_our_digits(
    name: str, command: click.Command, param: click.Parameter
) -> None:
    for word in NO_NUMBERS:
        with pytest.raises(click.BadParameter):
            give(command, param, shaped(param, word))
    least = getattr(param.type, "min", None)
    assert give(command, param, shaped(param, str(8 if least is None else least))) is not None


@pytest.mark.parametrize("why", STRANGE)
def test_a_name_is_text(why: str) -> None:
    for name, command, param in EVERY:
        if isinstance(param.type, (click.types.BoolParamType, click.types.UnprocessedParamType)):
            continue
        with pytest.raises(click.BadParameter, match=why):
            give(command, param, shaped(param, STRANGE[why]))
            pytest.fail(name)


def test_what_is_given_twice_is_refused() -> None:
    several = [
        one
        for one in EVERY
        if isinstance(shaped(one[2], ""), tuple)
        and one[2].type in (click.STRING, click.UNPROCESSED)
    ]
    assert len(several) > 10
    for _, command, param in several:
        if param.type is click.UNPROCESSED:  # of a user's program
            assert give(command, param, ("a", "a")) == ("a", "a")
            continue
        with pytest.raises(click.BadParameter, match="'a' is given twice: give it once"):
            give(command, param, ("a", "b", "a"))


@pytest.mark.parametrize(
    "line",
    [
        "results packets /",
        "results packets missing",
        "results packets file/below",
        "results packets loop",
        "fabric graph tiny --out loop",
        "fabric graph tiny --out file/below",
        "fabric size --plot file/below",
        "fabric size --oversubscription 1_0",
        "fabric size --oversubscription １",
        "run smoke --world simulated --dilation １０",
        "run smoke --seeds １",
        "run smoke --seeds 1,1",
        "run smoke --seed 1 --seeds 1-2",
        "replay t --within １０s",
        "fabric fluid --message １KB",
        "perf all_reduce -b １",
        "run smoke --on tls://[::1",
        "fabric graph fifo.toml",
        "paper --list 1-99999999999",
        "fabric graph ./fifo",
        "results packets fifo",
        "fabric graph tiny --out fifo",
        "fabric graph --format= tiny",
    ],
)
def test_bad_values_are_one_line(line: str, monkeypatch: pytest.MonkeyPatch, mrcbed: Said) -> None:
    monkeypatch.setattr("topologies.toml_files.WRITER_S", 0.1)
    Path("file").touch()
    Path("loop").symlink_to("loop")
    os.mkfifo("fifo")
    os.mkfifo("fifo.toml")
    mrcbed.refused(*line.split())


def test_a_working_directory_that_is_gone_is_one_line(tmp_path: Path) -> None:
    line = (
        f"mkdir gone; cd gone; rmdir ../gone; exec {sys.executable} -m mrcbed fabric graph tiny "
        "--out x"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    ended = subprocess.run(
        ["sh", "-c", line],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (
        2,
        "mrcbed: the working directory is gone: cd to another\n",
    )


def test_an_error_that_names_no_place_is_still_ours() -> None:
    assert explain(FileNotFoundError(2, "No such file"))[1] == 70
    assert explain(FileNotFoundError(2, "No such file", "x")) == (
        "x: No such file or directory: give another place",
        2,
    )
