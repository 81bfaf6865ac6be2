"""What goes wrong at the command line is one line and an exit status, never a traceback."""

from __future__ import annotations

import types

import click
import pytest

from mrcbed import cli
from testbed.errors import UserError
from tests.mrcbed.cli.conftest import Said
from topologies import FabricError


def fails_with(monkeypatch: pytest.MonkeyPatch, error: BaseException | int) -> None:
    @click.command(name="doctor")
    def command() -> int:
        if isinstance(error, int):
            return error
        raise error

    monkeypatch.setattr(
        cli.importlib, "import_module", lambda name: types.SimpleNamespace(command=command)
    )


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (UserError("no such cable"), 2, "mrcbed: no such cable\n"),
        (FabricError("too wide"), 2, "mrcbed: too wide\n"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            ZeroDivisionError("of\nall"),
            70,
            (
                "internal error (please report): ZeroDivisionError: of (MRCBED_DEBUG=1 shows the "
                "traceback)\n"
            ),
        ),
        (SystemExit(3), 3, ""),
        (SystemExit("text"), 1, "text\n"),
        (3, 3, ""),
        (0, 0, ""),
    ],
)
def test_exit_statuses(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException | int,
    status: int,
    said: str,
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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("doctro", "no command 'doctro': did you mean mrcbed doctor?"),
        ("plot", "no command 'plot': it is mrcbed results plot"),
        ("sweep", "no command 'sweep': it is mrcbed run"),
        ("fabric worker", "no command 'fabric worker': it is dask worker (docs/how/sweeps.md)"),
        ("plott", "no command 'plott': did you mean mrcbed results plot?"),
        ("results lnks", "no command 'results lnks': did you mean mrcbed fabric links?"),
        ("fabric plott", "no command 'fabric plott': did you mean mrcbed results plot?"),
        ("tools run", "no command 'tools run': it is mrcbed run"),
        ("results qqq", "no command 'results qqq': see mrcbed results --help"),
        ("fabric --qqq", "No such option --qqq: see mrcbed fabric --help"),
        ("results report", "Missing argument 'DIR' (see mrcbed results report --help)"),
        ("run smoke --wrold simulated", "No such option --wrold: did you mean --world?"),
        ("run smoke --qqq", "No such option --qqq: see mrcbed run --help"),
        ("run smoke --world simulatd", "did you mean simulated?"),
        ("list fabricks", "did you mean fabrics?"),
        ("up demo --transport RoCEv2", "did you mean roce?"),
        ("replay x --transport rocce", "did you mean roce?"),
        ("tools bench speed", "see mrcbed tools bench --help"),
    ],
)
def test_an_unknown_word_is_answered_with_the_nearest(words: str, says: str, mrcbed: Said) -> None:
    line = mrcbed.refused(*words.split())
    assert line.endswith(says) or f"({says})" in line


def test_help_imports_no_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cli.importlib, "import_module", lambda name: pytest.fail(f"imported {name}")
    )
    assert cli.execute([]) == 0
    assert len(capsys.readouterr().out.splitlines()) <= 12
    assert cli.execute(["--help"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.partition("\nSweeps:\n")[0].splitlines()) < 40
    for words, sections in cli.COMMANDS.items():
        assert cli.execute([*words.split()[1:], "--help"]) == 0
        shown = capsys.readouterr().out
        for title, section in sections.items():
            rows = shown.partition(f"\n{title}:\n")[2].splitlines()
            assert [" ".join(row.split()) for row in rows[: len(section)]] == [
                f"{name} {entry.does}" for name, entry in section.items()
            ]
