"""Files of a command belong to who called sudo: what the command made, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mrcbed import cli
from testbed.machine.caller import give_back, written
from testbed.machine.sandbox import caller_uid
from tests.scenarios.small import undrawn

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
USER = 54321


@pytest.fixture(autouse=True)
def sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(USER))


def owners(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.lstat().st_uid for path in sorted(folder.rglob("*"))
    }


def test_what_was_made_is_given_with_the_folders_on_the_way(tmp_path: Path) -> None:
    place = written(tmp_path / "a" / "b")
    (place / "c").mkdir(parents=True)
    (place / "c" / "file").touch()
    give_back()
    assert owners(tmp_path) == dict.fromkeys(("a", "a/b", "a/b/c", "a/b/c/file"), USER)
    assert os.stat(tmp_path).st_uid == 0 and os.stat(place / "c" / "file").st_gid == USER


def test_what_was_there_keeps_its_owner(tmp_path: Path) -> None:
    for name, owner in (("roots", 0), ("anothers", 7), ("replaced", 7)):
        (tmp_path / name).touch()
        os.chown(tmp_path / name, owner, owner)
    written(tmp_path)
    (tmp_path / "new").touch()
    (tmp_path / "replaced").unlink()
    (tmp_path / "replaced").touch()
    (tmp_path / "strangers").touch()
    os.chown(tmp_path / "strangers", 7, 7)  # who may write there meanwhile
    give_back()
    assert owners(tmp_path) == {
        "roots": 0,
        "anothers": 7,
        "replaced": USER,
        "new": USER,
        "strangers": 7,
    }
    assert os.stat(tmp_path).st_uid == 0


def test_results_that_are_gone_on_with_are_given_whole(tmp_path: Path) -> None:
    (tmp_path / "results" / "raw").mkdir(parents=True)
    written(tmp_path / "results", whole=True)
    give_back()
    assert (
        owners(tmp_path) == {"results": USER, "results/raw": USER} and os.stat(tmp_path).st_uid == 0
    )


def test_links_lead_nowhere(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "secret").touch()
    out = tmp_path / "out"
    written(out)
    out.mkdir()
    (out / "to-file").symlink_to(other / "secret")
    (out / "to-folder").symlink_to(other)
    os.link(other / "secret", out / "second-name")
    give_back()
    assert owners(other) == {"secret": 0} and other.stat().st_uid == 0
    assert owners(out) == {"second-name": 0, "to-file": USER, "to-folder": USER}


def test_a_folder_behind_a_link_is_the_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    written(tmp_path / "link")
    (tmp_path / "link" / "file").touch()
    give_back()
    assert owners(tmp_path)["real/file"] == USER


@pytest.mark.parametrize("number", ["", "0", "-1", "root", "99999999999", "4294967295", "1\n"])
def test_without_a_caller_files_stay_as_they_are(
    number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", number)
    written(tmp_path / "file").touch()
    give_back()
    assert owners(tmp_path) == {"file": 0} and not caller_uid()


LAUNCHED = "from agents.communicator import Communicator\nCommunicator.open().barrier()\n"
RESULTS = (
    "run",
    "smoke",
    "--world",
    "simulated",
    "-t",
    "mrc",
    "--set",
    "workload.steps=8",
    "--out",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run left, without figures; not to be written to."""
    out = tmp_path_factory.mktemp("caller") / "results"
    with undrawn():
        assert cli.execute([*RESULTS, str(out)]) == 0
    return out


@pytest.mark.parametrize(
    ("commands", "made"),
    [
        (
            [
                ("fabric", "graph", "tiny", "--out", "x.svg"),
                ("fabric", "graph", "tiny", "--out", "new/x.svg"),
            ],
            ["x.svg", "new", "new/x.svg"],
        ),
        ([("tools", "init", "mine")], ["mine.toml", "mrcbed-scenario.schema.json"]),
        ([("fabric", "size", "--plot", "x.png")], ["x.png"]),
        (
            [
                (
                    "fabric",
                    "fluid",
                    "--nics",
                    "1024",
                    "--planes",
                    "8",
                    "--draws",
                    "1",
                    "--plot",
                    "x.png",
                )
            ],
            ["x.png"],
        ),
        (
            [("tools", "bench", "schedules", "--count", "1", "--jobs", "1", "--keep", "kept")],
            ["kept"],
        ),
        (
            [("launch", "--world", "simulated", "--fabric", "tiny", "--log", "a/logs", "p.py")],
            ["a", "a/logs", "a/logs/h0.jsonl"],
        ),
        (
            [
                (*RESULTS, "deep/r"),
                ("results", "export", "deep/r", "--format", "perfetto"),
                ("results", "export", "deep/r", "--format", "csv", "--out", "c"),
                ("results", "view", "deep/r"),
                ("results", "plot", "deep/r"),
                ("results", "report", "deep/r"),
            ],
            [
                "deep",
                "deep/r",
                "c",
                *(
                    f"deep/r/{name}"
                    for name in ("perfetto", "replay.html", "report.html", "plots/figure.png")
                ),
            ],
        ),
    ],
    ids=lambda value: " ".join(value[0][:2]) if value and isinstance(value[0], tuple) else "",
)
def test_every_command_gives_back_what_it_writes(
    commands: list[tuple[str, ...]],
    made: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def draw_all(directory: Path) -> list[Path]:
        (directory / "plots").mkdir(exist_ok=True)
        (directory / "plots" / "figure.png").touch()
        return []

    monkeypatch.setattr("scenarios.show.plots.draw_all", draw_all)  # real ones take seconds
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.py").write_text(LAUNCHED)
    for command in commands:
        assert cli.execute(list(command)) == 0, capsys.readouterr().err
    found = owners(tmp_path)
    assert found.pop("p.py") == 0
    assert set(made) <= set(found) and set(found.values()) <= {USER}, found


@pytest.mark.parametrize(
    "place", ["file/x", "loop", "dangling", "dangling/x", "n" * 300, "/proc/x"]
)
def test_a_place_that_cannot_be_written_is_one_line(
    place: str,
    results: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere/x")
    (tmp_path / "p.py").write_text(LAUNCHED)
    for command in (
        ("fabric", "graph", "tiny", "--out", place),
        ("results", "view", str(results), "--out", place),
        ("tools", "bench", "schedules", "--count", "1", "--jobs", "1", "--keep", place),
        ("launch", "--world", "simulated", "--fabric", "tiny", "--log", place, "p.py"),
        (
            "train",
            "--world",
            "simulated",
            "--fabric",
            "tiny",
            "--steps",
            "8",
            "-t",
            "mrc",
            "--out",
            place,
        ),
    ):
        assert cli.execute(list(command)) == 2, command
        assert len(capsys.readouterr().err.splitlines()) == 1, command


def test_a_plot_of_no_known_format_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.execute(["fabric", "size", "--plot", str(tmp_path / "x.foo")]) == 2
    assert "Format 'foo' is not supported" in capsys.readouterr().err
