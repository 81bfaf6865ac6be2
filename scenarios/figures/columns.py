"""Reads a Parquet table of results: no larger than its file can hold, with the columns that
something reads and their types.

Checked once, here; nothing behind looks again. docs/reference/tables.md explains the columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from testbed.results.values import FAR, MOST
from topologies.files import FileError, opened

ROOM, TIMES = 256 << 20, 400
"""Limit of a table's values: ``ROOM`` bytes plus ``TIMES`` its file's size [ours]; those of the
paper's figures take up to 205 times as much (``evs`` of seven runs of 16 hosts) [measured]."""
LONGEST = 1 << 14  # in bytes [ours]
BATCH = 1 << 15
_OWN = "run:s "
_BINS = "t_ns:f bin_ns:p "
COLUMNS = {
    "steps": _OWN + "transport:s? rank:n step:i warmup:b start_ns:f end_ns:f ok:b?",
    "transfers": _OWN + "start_ns:f end_ns:f",
    "events": _OWN
    + (
        "t_ns:f host:i kind:s peer:n? ev:n? plane:n? uplink:n? to:s? cause:s? count:n? phase:s? "
        "detail:s?"
    ),
    "counters": _OWN
    + "port:s admitted_bytes:n? met_packets:n? backlog_mean_bytes:f? raised_peak_bytes:f?",
    "goodput": _OWN + _BINS + "host:n plane:n tx_bytes:n rx_bytes:n",
    "agents": _OWN + "host:n counter:s value:f",
    "flows": _OWN + _BINS + "host:n flow:s? rx_bytes:n",
    "messages": _OWN + "flow:s number:n start_ns:f end_ns:f",
    "queues": _OWN + "t_ns:f port:s bytes:n",
    "evs": _OWN + _BINS + "host:n peer:n ev:n tx_packets:n",
    "cwnd": _OWN
    + "host:n flow:s? t_ns:f qpn:n? cwnd_bytes:n? in_flight_bytes:n? srtt_ns:a? rate_bps:a?",
    "comparison": (
        "transport:s fabric:s figure:s unit:s? n:n median:f? low:f? high:f? ideal:f? degraded:f? "
        "doubtful:n?"
    ),
    "runs": "",
}
"""Table -> its columns that are read, with types: (s)tring, (b)ool, (i)nteger, (n)one below 0,
(f)loat, (a)mount, (p)ositive; "?": may have gaps, and older tables may lack it."""
_LEAST = {"i": -FAR, "n": 0, "f": -MOST, "a": 0, "p": 1e-3}
_FLOATS = dict.fromkeys("fap", lambda kind: pa.types.is_floating(kind) or pa.types.is_integer(kind))
_IS = {"s": pa.types.is_string, "b": pa.types.is_boolean, **_FLOATS}


def read_table(path: Path) -> pd.DataFrame:
    """Raises :class:`FileError`, OSError, ValueError."""
    with opened(path) as raw, pq.ParquetFile(raw, pre_buffer=False) as file:
        room = ROOM + TIMES * path.stat().st_size
        texts = [
            field.name
            for field in file.schema_arrow
            if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
        ]
        if file.metadata.num_rows * max(1, len(file.schema_arrow)) > room:
            raise _too_large(path)
    # Texts stay in their dictionary until they are measured: a million rows may all hold one text
    # of a megabyte. Only in this thread: if Arrow cannot start a thread (for lack of memory), it
    # waits for ever and ignores signals.
    with opened(path) as raw, pq.ParquetFile(raw, pre_buffer=False, read_dictionary=texts) as file:
        batches = []
        for batch in file.iter_batches(BATCH, use_threads=False):
            columns = [_plain(path, column) for column in batch.columns]
            room -= sum(column.nbytes for column in columns)
            if room < 0:
                raise _too_large(path)
            batches.append(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
        schema = pa.schema(
            [
                field.with_type(pa.string()) if field.name in texts else field
                for field in file.schema_arrow
            ]
        )
        table = pa.Table.from_batches(batches, schema) if batches else schema.empty_table()
    _check(path, table)
    try:
        return cast(
            pd.DataFrame,
            table.replace_schema_metadata(file.schema_arrow.metadata).to_pandas(use_threads=False),
        )
    except (pa.ArrowException, KeyError, TypeError) as error:
        # what pandas noted there of the columns is not so
        raise FileError(f"damaged: columns in {path}: {error}") from None


def _too_large(path: Path) -> FileError:
    return FileError(f"damaged: rows in {path}: more than a file of its size can hold")


def _plain(path: Path, column: Any) -> Any:
    if not pa.types.is_dictionary(column.type):
        return column
    if (pc.max(pc.binary_length(column.dictionary)).as_py() or 0) > LONGEST:
        raise FileError(f"damaged: a text in {path} has more than {LONGEST:,} bytes")
    return column.cast(pa.string())


def _check(path: Path, table: Any) -> None:
    """Raise :class:`FileError` for what is wrong with a column. A table without rows has no
    types."""
    for word in COLUMNS.get(path.stem, "").split() if table.num_rows else ():
        name, kind = word.rstrip("?").split(":")
        if table.column_names.count(name) != 1:
            if word.endswith("?") and name not in table.column_names:
                continue
            raise FileError(f"damaged: {name} in {path}: there is no such column")
        column = table.column(name)
        if pa.types.is_null(column.type) and word.endswith("?"):
            continue
        if not _IS.get(kind, pa.types.is_integer)(column.type):
            raise FileError(f"damaged: {name} in {path}: {column.type}")
        if column.null_count and not word.endswith("?"):
            raise FileError(
                f"damaged: {name} in {path}: row {pc.index(pc.is_null(column), True).as_py()} "
                "has none"
            )
        if kind in _LEAST:
            low, high = pc.min_max(column).as_py().values()
            if low is not None and not (
                _LEAST[kind] <= low and high <= (MOST if kind in _FLOATS else FAR)
            ):
                raise FileError(f"damaged: {name} in {path}: {low} to {high}")
    columns = set(table.column_names)
    if (
        table.num_rows
        and {"start_ns", "end_ns"} <= columns
        and pc.any(pc.less(table["end_ns"], table["start_ns"])).as_py()
    ):
        raise FileError(f"damaged: end_ns in {path}: it is before start_ns")
