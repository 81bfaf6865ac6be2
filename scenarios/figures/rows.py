"""Writes runs as rows of one flat table: independent variables first, then all figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scenarios.figures.writing import replacing
from testbed.results.summary import Run
from topologies.structs import plain

VARIABLES = ("scenario", "transport", "kind", "fabric", "workload", "placement", "seed")
FIRST_FIGURE = "ranks"
Scalar = str | int | float | bool | None


def row(run: Run, scenario_name: str) -> dict[str, Scalar]:
    """Make one flat row. Nested figures get dotted names, lists of strings are joined by "; ",
    others are dropped."""
    variables: dict[str, Scalar] = {
        "scenario": scenario_name,
        **{key: getattr(run, key) for key in VARIABLES[1:]},
        **run.settings,
    }
    figures: dict[str, Scalar] = {FIRST_FIGURE: run.ranks}
    _flatten(
        {
            key: value
            for key, value in plain(run).items()
            if key not in VARIABLES and key != "settings"
        },
        "",
        figures,
    )
    return {**variables, **{key: value for key, value in figures.items() if key not in variables}}


def _flatten(tree: Mapping[str, Any], prefix: str, flat: dict[str, Scalar]) -> None:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            _flatten(value, f"{prefix}{key}.", flat)
        elif isinstance(value, (list, tuple)):
            if all(isinstance(item, str) for item in value):
                flat[f"{prefix}{key}"] = "; ".join(value)
        else:
            flat[f"{prefix}{key}"] = value


def settings_of(frame: pd.DataFrame) -> list[str]:
    columns = [str(column) for column in frame.columns]
    return (
        columns[columns.index("seed") + 1 : columns.index(FIRST_FIGURE)]
        if FIRST_FIGURE in columns
        else []
    )


def table(rows: Sequence[Mapping[str, Scalar]], floats: Sequence[str] = ()) -> pd.DataFrame:
    """Return a frame that Parquet accepts: one type per column (text if runs differ). ``floats``:
    floating-point columns, even if all values are whole."""
    columns: dict[str, Any] = {}
    for key in dict.fromkeys(key for r in rows for key in r):
        values = [r.get(key) for r in rows]
        known = [value for value in values if value is not None and value == value]
        types = {type(value) for value in known}
        complete = len(known) == len(values)
        if key in floats or (float in types and types <= {int, float}):
            columns[key] = np.array(values, "float64")
        elif types == {int}:
            columns[key] = (
                np.array(values)
                if complete
                else pd.Series(values, dtype="object").astype("Int64").array
            )
        elif types == {bool}:
            columns[key] = (
                np.array(values)
                if complete
                else pd.Series(values, dtype="object").astype("boolean").array
            )
        elif types:
            texts = [None if value is None or value != value else str(value) for value in values]
            columns[key] = pd.array(texts, dtype=pd.StringDtype(na_value=np.nan))
        else:
            columns[key] = np.array(values, object)
    return pd.DataFrame(columns)


def write_table(frame: pd.DataFrame, directory: Path, name: str) -> None:
    """Write .csv and .parquet, each whole or not at all: an interruption leaves the earlier
    file."""
    for ending in ("csv", "parquet"):
        with replacing(directory / f"{name}.{ending}") as part:
            if ending == "csv":
                frame.to_csv(part, index=False)
            else:
                frame.to_parquet(part, index=False)


def write_rows(entries: Sequence[Run], scenario_name: str, directory: Path) -> pd.DataFrame:
    frame = table([row(entry, scenario_name) for entry in entries])
    write_table(frame, directory, "runs")
    return frame
