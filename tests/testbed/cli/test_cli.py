"""What goes wrong at the command line is one line and an exit status, never a traceback."""

from __future__ import annotations

import types

import click
import pytest

from testbed import cli
from testbed.errors import UserError
from topologies import FabricError


def fails_with(monkeypatch: pytest.MonkeyPatch, error: BaseException | int) -> None:
    @click.command(name="doctor")
    def command() -> int:
        if isinstance(error, int):
            return error
        raise error

    monkeypatch.setattr(cli.importlib, "import_module", lambda name: types.SimpleNamespace(command=command))


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (UserError("no such cable"), 2, "mrcbed: no such cable\n"),
        (FabricError("too wide"), 2, "mrcbed: too wide\n"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            ZeroDivisionError("of\nall"),
            70,
            "mrcbed: internal error (please report): ZeroDivisionError: of (MRCBED_DEBUG=1 shows the traceback)\n",
        ),
        (SystemExit(3), 3, ""),
        (SystemExit("text"), 1, "text\n"),
        (3, 3, ""),
        (0, 0, ""),
    ],
)
def test_exit_statuses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException | int, status: int, said: str
) -> None:
    monkeypatch.delenv("MRCBED_DEBUG", raising=False)
    fails_with(monkeypatch, error)
    assert cli.execute(["doctor"]) == status
    stderr = capsys.readouterr().err
    assert said in stderr
    assert "Traceback" not in stderr
    assert len(stderr.strip().splitlines()) <= 1


def test_debug_shows_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCBED_DEBUG", "1")
    fails_with(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        cli.execute(["doctor"])


def test_a_misspelt_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["doctro"]) == 2
    assert capsys.readouterr().err == "mrcbed: no command 'doctro': did you mean doctor?\n"


def test_a_missing_argument_says_where_to_look(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["report"]) == 2
    assert capsys.readouterr().err == "mrcbed: Missing argument 'DIR' (see mrcbed report --help)\n"


def test_a_misspelt_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["doctor", "--jsn"]) == 2
    assert "No such option" in capsys.readouterr().err


def test_help_imports_no_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.importlib, "import_module", lambda name: pytest.fail(f"imported {name}"))
    assert cli.execute(["--help"]) == 0
    assert "doctor" in capsys.readouterr().out
