"""Results directories that can be believed to be whole: everything that figures are made of is there, readable and of one piece.

Called before runs made apart are put side by side. Reads only. Whatever is wrong is one line with the file and the fix.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from scenarios.manifest import FORMAT
from scenarios.measure import TABLES
from scenarios.plots.stored import VERDICTS, ResultsError, Stored, read_json

NEEDED = ("scenario", "fabrics", "seeds", "machine", "versions", "started", "switch", "engine", "kernel", "notes")
"""Of the manifest, beside the format and the verdicts."""
OF_A_RUN = ("run", "transport", "kind", "fabric", "workload", "placement", "seed", "settings", "ranks", "outcome", "verdict", "steps")


class Whole:
    """One directory. Making it reads and judges everything; raises :class:`ResultsError`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        if not directory.is_dir():
            raise ResultsError(f"{directory} is no directory: give those that mrcbed run wrote")
        self.stored = Stored(directory)
        self.summary, self.manifest = self._summary(), self._manifest()
        self.tables = {name: self._table(name) for name in TABLES}
        for run in self.runs:
            self._judge(run)

    @property
    def runs(self) -> list[dict[str, Any]]:
        return list(self.summary["runs"])

    @cached_property
    def scenario(self) -> dict[str, Any]:
        return dict(self.manifest["scenario"])

    def fail(self, name: str, what: str) -> ResultsError:
        return ResultsError(f"{self.directory / name} {what}")

    def _manifest(self) -> dict[str, Any]:
        found = self.stored.manifest
        if found.get("format") != FORMAT:
            told = found.get("format", "none, as of earlier versions")
            raise self.fail("manifest.json", f"has format {told}, this mrcbed compares format {FORMAT}: run it again")
        missing = next((key for key in NEEDED if key not in found), None)
        if missing is not None:
            raise self.fail("manifest.json", f"has no {missing!r}: it is not complete, take it from a copy")
        if "fidelity" not in found:
            raise self.fail("manifest.json", "has no fidelity verdicts: the run did not end, mrcbed run --resume --out goes on with it")
        return found

    def _summary(self) -> dict[str, Any]:
        if not (self.directory / "summary.json").is_file() and (self.directory / "manifest.json").is_file():
            raise self.fail("summary.json", "is missing: if the run was killed, mrcbed run --resume --out goes on with it")
        found = self.stored.summary
        if not found["runs"]:
            raise self.fail("summary.json", "has no runs: there is nothing to compare")
        return found

    def _table(self, name: str) -> pd.DataFrame:
        if not (self.directory / f"{name}.parquet").is_file():
            raise self.fail(f"{name}.parquet", f"is missing: mrcbed plot --tables {self.directory} makes it again from raw/")
        return self.stored.table(name)

    def _judge(self, run: dict[str, Any]) -> None:
        missing = next((key for key in OF_A_RUN if key not in run), None)
        if missing is not None:
            raise self.fail("summary.json", f"has a run without {missing!r}: it is not complete, take it from a copy")
        key = run["run"]
        told = self.manifest["fidelity"].get(key, {})
        if told.get("verdict") not in VERDICTS:
            what = f"has no fidelity verdict of run {key}, so nobody can say what its figures are worth"
            raise self.fail("manifest.json", f"{what}: run it again")
        if told["verdict"] != run["verdict"]:
            unlike = f"says {told['verdict']!r} of run {key}, summary.json {run['verdict']!r}"
            raise self.fail("manifest.json", f"{unlike}: take both from one copy")
        if run["fabric"] not in self.manifest["fabrics"]:
            raise self.fail("manifest.json", f"does not know the fabric {run['fabric']!r} of run {key}: take it from a copy")
        expected = "steps" if run["steps"] else "flows" if any(f.get("bytes") for f in run.get("flows", {}).values()) else None
        if expected and not self._has(expected, key):
            again = f"mrcbed plot --tables {self.directory} makes it again from raw/"
            raise self.fail(f"{expected}.parquet", f"has no rows of run {key}, which summary.json has: {again}")
        raw = self.directory / "raw"
        if raw.is_dir():  # where only tables were copied there is none
            record = read_whole(raw / key / "run.json")
            if record.get("key") != key or record.get("outcome") != run["outcome"]:
                raise self.fail(f"raw/{key}/run.json", "is of another run than summary.json: take both from one copy")

    def _has(self, name: str, key: str) -> bool:
        table = self.tables[name]
        return "run" in table and bool((table["run"] == key).any())


def read_whole(path: Path) -> dict[str, Any]:
    """A JSON file that must be there. Raises :class:`ResultsError`."""
    if not path.is_file():
        raise ResultsError(f"{path} is missing: take it from a copy, or do that run again with mrcbed run --resume --out")
    return read_json(path, "take it from a copy, or do that run again with mrcbed run --resume --out")
