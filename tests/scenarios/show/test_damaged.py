"""Damaged results: every command says so in one line, whatever lies there, and none waits, fills
memory or has an internal error."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mrcbed.cli import execute
from scenarios.figures.columns import LONGEST, read_table
from scenarios.run.runner import Runner
from tests.scenarios.fakes import FakeCluster
from tests.scenarios.small import changed, small, undrawn
from topologies.files import FileError

KEY = "mrc-tiny-interleaved-s1"
RAW = f"raw/{KEY}"
VALUES = (
    None,
    True,
    -1,
    0,
    1e308,
    10**18,
    2**64,
    "",
    "\x1b[31m",
    "x" * 10_000,
    "../../x",
    [],
    {},
    [[]],
    ["x"],
    float("nan"),
)
COMMANDS = (
    ["results", "report"],
    ["results", "view"],
    ["results", "top", "--once"],
    ["results", "plot", "--tables"],
    ["results", "export", "--format", "perfetto"],
    ["results", "export", "--format", "csv"],
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole")
    with undrawn():
        Runner(
            small(directory.parent, seeds=(1,), transports=("mrc",)), directory, FakeCluster
        ).run()
    (directory / "plots").mkdir()  # which a report asks for
    return directory


@pytest.fixture
def results(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to break, of which no figures are drawn."""
    monkeypatch.setattr("scenarios.show.plots.draw_all", lambda directory: [])
    # which cannot be taken back: every later test would wait for all others
    monkeypatch.setattr(os, "nice", lambda more: None)
    return Path(shutil.copytree(shared, tmp_path / "out"))


def line(name: str, kind: str, **values: Any) -> Callable[[Path], None]:
    """The first line of a kind, with other values."""

    def harm(directory: Path) -> None:
        path = directory / RAW / name
        lines = path.read_text().splitlines()
        place = next(
            i for i, text in enumerate(lines) if f'"kind":"{kind}"' in text.replace(" ", "")
        )
        lines[place] = json.dumps({**json.loads(lines[place]), **values})
        path.write_text("\n".join(lines) + "\n")

    return harm


def column(name: str, edit: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Path], None]:
    return lambda directory: edit(pd.read_parquet(directory / name)).to_parquet(directory / name)


def instead(name: str, make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def harm(directory: Path) -> None:
        (directory / name).unlink()
        make(directory / name)

    return harm


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


SUMMARY, MANIFEST, RECORD = "summary.json", "manifest.json", f"{RAW}/run.json"
REPORT, VIEW, TABLES = ["results", "report"], ["results", "view"], ["results", "plot", "--tables"]
Harm = Callable[[Path], None]
DAMAGE: dict[str, tuple[list[str], Harm, str]] = {
    "a number that is text": (
        REPORT,
        changed(SUMMARY, lambda s: s["runs"][0].update(base_rtt_ns="x")),
        "runs[0].base_rtt_ns",
    ),
    "a rtt of 0": (
        REPORT,
        changed(SUMMARY, lambda s: s["runs"][0].update(base_rtt_ns=0)),
        "runs[0].base_rtt_ns",
    ),
    "a name that is a path": (
        REPORT,
        changed(SUMMARY, lambda s: s["runs"][0].update(run="../x")),
        "runs[0].run in",
    ),
    "no options": (
        REPORT,
        changed(MANIFEST, lambda m: m["scenario"]["transports"][0].update(fabric=1)),
        "transports[0].fabric",
    ),
    "a fabric of no shape": (
        REPORT,
        changed(MANIFEST, lambda m: m["fabrics"]["tiny"].update(planes=0)),
        "fabrics in",
    ),
    "NaN": (
        REPORT,
        changed(SUMMARY, lambda s: s["runs"][0].update(wrong=float("nan"))),
        "summary.json is not JSON",
    ),
    "a host beyond the fabric": (
        VIEW,
        changed(RECORD, lambda r: r.update(ranks=[0, 99])),
        "ranks in",
    ),
    "a network too fast": (
        VIEW,
        changed(RECORD, lambda r: r["fabric"].update(nic_rate=10**14)),
        "nic_rate",
    ),
    "counters that are text": (
        TABLES,
        changed(RECORD, lambda r: r["counters_after"][0].update(marked="x")),
        "counters_after in",
    ),
    "a step of no rank": (TABLES, line("h0.jsonl", "step", rank=99), "rank in"),
    "a step that ends before": (
        ["results", "export", "--format", "perfetto"],
        line("h0.jsonl", "step", end_ps=0),
        "end_ps in",
    ),
    "a line of a log": (TABLES, line("runner.jsonl", "fault", links=7), "links in"),
    "a column that is gone": (
        REPORT,
        column("steps.parquet", lambda f: f.drop(columns="rank")),
        "rank in",
    ),
    "a column of another type": (
        REPORT,
        column("goodput.parquet", lambda f: f.astype({"rx_bytes": str})),
        "rx_bytes in",
    ),
    "a hole in a column": (
        REPORT,
        column("steps.parquet", lambda f: f.assign(step=f["step"].where(f["rank"] > 0))),
        "step in",
    ),
    "a time beyond all": (
        REPORT,
        column("events.parquet", lambda f: f.assign(t_ns=2**63 - 1)),
        "t_ns in",
    ),
    "a run that no summary has": (
        REPORT,
        column("steps.parquet", lambda f: f.assign(run="other")),
        "has rows of run other",
    ),
    "a host of no fabric": (
        REPORT,
        column("goodput.parquet", lambda f: f.assign(host=77)),
        "has a host beyond",
    ),
    "bins at the end of time": (
        REPORT,
        column("goodput.parquet", lambda f: f.assign(t_ns=[*f["t_ns"][:-1], 10**17])),
        "has times that",
    ),
    "a FIFO of a summary": (REPORT, instead("summary.json", os.mkfifo), "is no regular file"),
    "an endless manifest": (REPORT, instead("manifest.json", endless), "is no regular file"),
    "a FIFO of a log": (VIEW, instead(f"{RAW}/h0.jsonl", os.mkfifo), "is no regular file"),
    "an endless log": (
        ["results", "top", "--once"],
        instead(f"{RAW}/h1.jsonl", endless),
        "is no regular file",
    ),
    "a log that leads nowhere": (
        TABLES,
        instead(f"{RAW}/h0.jsonl", lambda path: path.symlink_to(path.name)),
        "is no regular file",
    ),
    "an endless journal": (TABLES, instead(f"{RAW}/runner.jsonl", endless), "is no regular file"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_one_line_with_key_and_file(
    results: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, harm, said = DAMAGE[case]
    harm(results)
    assert execute([*command, str(results)]) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1 and "do not fit together" not in told


def test_a_small_file_that_is_large_inside_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scenarios.figures.columns.ROOM", 1 << 20)
    path = tmp_path / "steps.parquet"
    with pq.ParquetWriter(path, pa.schema([("step", pa.int64())]), compression="zstd") as writer:
        rows = pa.table({"step": pa.array(np.full(100_000, 7))})
        for _ in range(5):
            writer.write_table(rows)
    with pytest.raises(FileError, match="damaged: rows in"):
        read_table(path)
    long = "x" * (LONGEST + 1)
    pq.write_table(
        pa.table({"run": pa.DictionaryArray.from_arrays(np.zeros(9, np.int32), [long])}),
        path,
        compression="zstd",
    )
    with pytest.raises(FileError, match="a text in .* has more than"):
        read_table(path)


def test_a_large_table_of_a_long_run_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run's name in each row, and times in order, take little room in the file."""
    monkeypatch.setattr("scenarios.figures.columns.ROOM", 0)
    rows, path = 200_000, tmp_path / "others.parquet"
    name = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [KEY]).cast(pa.string())
    table = pa.table({"run": name, "t_ns": np.arange(rows) // 64 * 100})
    pq.write_table(table, path)
    assert table.nbytes > 100 * path.stat().st_size, "as small in the file as those of real runs"
    assert len(read_table(path)) == rows


def harmed(value: Any, draw: random.Random) -> None:
    """Some value in ``value`` is another, or gone."""
    places = [(value, key) for key in (value if isinstance(value, dict) else range(len(value)))]
    for holder, key in places:
        if isinstance(holder[key], (dict, list)):
            places += [
                (holder[key], inner)
                for inner in (
                    holder[key] if isinstance(holder[key], dict) else range(len(holder[key]))
                )
            ]
    holder, key = draw.choice(places)
    if draw.random() < 0.2:
        del holder[key]
    else:
        holder[key] = draw.choice(VALUES)


def spoil(directory: Path, draw: random.Random) -> tuple[Path, bytes]:
    """Cut, change or scramble one of the files of results; returns which, and what it held."""
    path = draw.choice(
        [
            *sorted(directory.glob("*.parquet")),
            *[directory / SUMMARY, directory / MANIFEST] * 5,
            *sorted((directory / RAW).glob("*.json*")) * 3,
        ]
    )
    whole = path.read_bytes()
    text = whole.splitlines() if path.suffix == ".jsonl" else [whole]
    place = draw.randrange(len(text)) if text else 0
    if not whole or draw.random() < 0.2:
        text[place:] = [line[: draw.randrange(len(line) + 1)] for line in text[place : place + 1]]
    elif path.suffix == ".parquet":
        raw = bytearray(whole)
        for _ in range(draw.choice((1, 3, 30))):
            raw[draw.randrange(len(raw))] = draw.randrange(256)
        text = [bytes(raw)]
    else:
        told = json.loads(text[place])
        harmed(told, draw)
        text[place] = json.dumps(told).encode()
    path.write_bytes(b"\n".join(text) + b"\n" * (path.suffix == ".jsonl"))
    return path, whole


def test_no_damage_is_an_internal_error(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A few; `make soak` tries thousands (tests/soak/test_damaged.py)."""
    draw = random.Random(1)
    for _ in range(40):
        path, whole = spoil(results, draw)
        status = execute([*draw.choice(COMMANDS), str(results)])
        said = capsys.readouterr()
        assert status in (0, 2), said.err
        assert said.err.count("\n") <= 1 and "\x1b" not in said.out + said.err
        path.write_bytes(whole)
