"""Checks that results directories are complete. Each error is one line with the file and the
fix."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from scenarios.figures.measure import TABLES
from scenarios.figures.stored import Stored
from scenarios.run.manifest import FORMAT
from testbed.results.manifest import Manifest
from testbed.results.reading import ResultsError, read_plain
from testbed.results.record import Record, read_record
from testbed.results.summary import Run, Summary

NEEDED = (
    "scenario",
    "fabrics",
    "seeds",
    "machine",
    "versions",
    "started",
    "switch",
    "engine",
    "kernel",
    "notes",
)
OF_A_SCENARIO = ("name", "fabric", "transports", "faults", "variants")


class Whole:
    """Raises :class:`ResultsError`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        if not directory.is_dir():
            raise ResultsError(f"{directory} is no directory: give those that mrcbed run wrote")
        self.stored = Stored(directory)
        self.summary, self.manifest = self._summary(), self._manifest()
        self.stored.judge()
        self.tables = {name: self._table(name) for name in TABLES}
        for run in self.runs:
            self._judge(run)

    @property
    def runs(self) -> list[Run]:
        return self.summary.runs

    @cached_property
    def scenario(self) -> dict[str, Any]:
        return dict(self.manifest["scenario"])

    def fail(self, name: str, what: str) -> ResultsError:
        return self.stored.fail(name, what)

    def _manifest(self) -> dict[str, Any]:
        manifest = read_plain(self.directory / "manifest.json", Manifest)
        if (found := self.stored.manifest.format) != FORMAT:
            written = found or "none, as of earlier versions"
            raise self.fail(
                "manifest.json",
                f"has format {written}, this mrcbed compares format {FORMAT}: run it again",
            )
        missing = next((key for key in NEEDED if key not in manifest), None)
        if missing is not None:
            raise self.fail(
                "manifest.json", f"has no {missing!r}: it is not complete, take it from a copy"
            )
        missing_key = next((key for key in OF_A_SCENARIO if key not in manifest["scenario"]), None)
        if missing_key is not None:
            raise self.fail(
                "manifest.json",
                f"has a scenario without {missing_key!r}, as of an earlier version: run it again",
            )
        return manifest

    def _summary(self) -> Summary:
        if (
            not (self.directory / "summary.json").is_file()
            and (self.directory / "manifest.json").is_file()
        ):
            raise self.fail(
                "summary.json",
                "is missing: if the run was killed, mrcbed run --resume --out goes on with it",
            )
        summary = self.stored.summary
        if not summary.runs:
            raise self.fail("summary.json", "has no runs: there is nothing to compare")
        return summary

    def _table(self, name: str) -> pd.DataFrame:
        if not (self.directory / f"{name}.parquet").is_file():
            raise self.fail(
                f"{name}.parquet",
                f"is missing: mrcbed results plot --tables {self.directory} makes it again from "
                "raw/",
            )
        return self.stored.unjudged_table(name)

    def _judge(self, run: Run) -> None:
        if not run.steps and any(flow.bytes for flow in run.flows.values()):
            self.stored.judge_rows("flows", run)
        key = run.run
        raw = self.directory / "raw"
        if raw.is_dir():  # absent if only tables were copied
            record = read_whole(raw / key / "run.json")
            if record.key != key or record.outcome != run.outcome:
                raise self.fail(
                    f"raw/{key}/run.json",
                    "is of another run than summary.json: take both from one copy",
                )


def read_whole(path: Path) -> Record:
    """Raises :class:`ResultsError`."""
    if not path.is_file():
        raise ResultsError(
            f"{path} is missing: take it from a copy, or do that run again with mrcbed run "
            "--resume --out"
        )
    return read_record(
        path, "take it from a copy, or do that run again with mrcbed run --resume --out"
    )
