"""Reads the settings of a ``[sweep]``, and makes short names of them for runs."""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from scenarios.schema.values import ScenarioError
from topologies.structs import Refused, convert
from topologies.toml_files import MAX_DEPTH, parse_toml

MAX_SETTINGS = 1000  # A file with more is probably wrong [ours].
FIXED = (
    "name",
    "description",
    "seeds",
    "dilation",
    "setting",
    "transport",
    "expect",
    "sweep",
    "workload.placement",
)
"""A sweep cannot vary these: they vary elsewhere, or runs of different settings would have the same
name."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")

_VALUES: Any = Annotated[
    list[Annotated[str | int | float | bool, Meta(description="text, a number, true or false")]],
    Meta(min_length=1, description="a list of values"),
]

Settings = dict[str, str | int | float | bool]  # by dotted key


def assign(data: dict[str, object], dotted: str, value: Any, source: str) -> None:
    """Set ``workload.steps``, ``transport.roce.options.qps``, ``fault.0.at``: lists by number, name
    or kind. ``source``, an option or table as written, begins the error. Raises
    :class:`ScenarioError`."""
    *parents, last = dotted.split(".")
    if len(parents) >= MAX_DEPTH:
        raise ScenarioError(f"{_shortened(source)}: a key has at most {MAX_DEPTH} parts")
    table: Any = data
    for key in parents:
        if isinstance(table, list):
            table = _list_entry(table, key, source)
        elif isinstance(table, dict):
            table = table.setdefault(key, {})
    if isinstance(table, list):
        raise ScenarioError(f"{source}: say which one, like {'.'.join(parents)}.0.{last}")
    if not isinstance(table, dict):
        raise ScenarioError(f"{source}: {'.'.join(parents)!r} holds no further keys")
    table[last] = value


def _list_entry(entries: list[Any], key: str, source: str) -> Any:
    if key.isascii() and key.isdigit() and int(key) < len(entries):
        return entries[int(key)]
    for field in ("name", "kind"):
        for entry in entries:
            if isinstance(entry, dict) and entry.get(field) == key:
                return entry
    raise ScenarioError(f"{source}: there is no {key!r} in a list of {len(entries)}")


def override(data: dict[str, object], item: str) -> None:
    """Apply one ``--set``, ``KEY=VALUE``; a swept key then has only this value. Raises
    :class:`ScenarioError`."""
    dotted, equals, raw = item.partition("=")
    if not equals:
        raise ScenarioError(f"--set {item}: write it like --set workload.steps=3")
    try:
        value = parse_toml(f"x = {raw}")["x"]
    except tomllib.TOMLDecodeError:
        value = raw
    except ValueError as error:
        raise ScenarioError(f"--set {_shortened(item)}: {error}") from None
    pin(data, dotted, value, f"--set {item}")


def pin(data: dict[str, object], dotted: str, value: Any, source: str) -> None:
    """Set a key for all settings; a swept key keeps this one value."""
    swept = data.get("sweep")
    if isinstance(swept, dict) and dotted in swept:
        swept[dotted] = [value]
    else:
        assign(data, dotted, value, source)


def read_sweep(
    file: str, data: Any, file_table: Any
) -> tuple[list[Settings], dict[str, list[Any]]]:
    """Return (settings, one without keys if there is no sweep; key -> values that checks may name).
    The last key varies fastest. ``file_table``: before the command line changed it; checks on its
    other values do not apply. Raises :class:`ScenarioError`."""
    for table in (file_table, data):
        _check(file, table)
    count = math.prod(map(len, data.values()))
    if count > MAX_SETTINGS:
        raise ScenarioError(
            f"{file}: sweep makes {count} settings, the limit is {MAX_SETTINGS}: shorten a list"
        )
    known_values = {
        key: list(dict.fromkeys([*data.get(key, ()), *file_table.get(key, ())]))
        for key in {**file_table, **data}
    }
    return [
        dict(zip(data, values, strict=True)) for values in itertools.product(*data.values())
    ], known_values


def _check(file: str, data: Any) -> None:
    if not isinstance(data, dict):
        raise ScenarioError(
            f'{file}: sweep must be a table of lists, like "workload.message_bytes" = ["64KiB", '
            '"1MiB"]'
        )
    for key, values in data.items():
        where = f'{file}: sweep."{key}"'
        if isinstance(values, dict):
            dotted = f"{key}.{next(iter(values), 'x')}"
            raise ScenarioError(
                f"{file}: sweep.{key} holds a table: write the whole key in quotes, like "
                f'"{dotted}" = [1, 2]'
            )
        if key in FIXED or re.fullmatch(r"(transport|expect)\.[^.]+(\.name|\.kind)?", key):
            raise ScenarioError(
                f"{where} cannot be swept: seeds, placements, transports and checks have lists "
                "of their own"
            )
        try:
            convert(values, _VALUES, where)
        except Refused as error:
            raise ScenarioError(str(error)) from None
        duplicate = next((value for i, value in enumerate(values) if value in values[:i]), None)
        # 2 and 2.0, or 1 and true: tables would merge them into one setting
        if duplicate is not None:
            raise ScenarioError(
                f"{where} has {_plain_text(duplicate)} twice: each setting stands in a sweep "
                "once, seeds repeat it"
            )
        names = [_file_name_part(value) for value in values]
        duplicate_name = next((name for name in names if names.count(name) > 1), None)
        if duplicate_name is not None:
            raise ScenarioError(
                f"{where} has {duplicate_name!r} twice, as a file's name would say it: runs "
                "could not be told apart"
            )


def spelled(settings: Mapping[str, object]) -> str:
    """Write ``workload.message_bytes = 1MiB, fault.0.probability = 0.01``."""
    return ", ".join(f"{key} = {_plain_text(value)}" for key, value in settings.items())


def suffix(settings: Mapping[str, object]) -> str:
    """Write ``-message_bytes=1MiB-probability=0.01``, for file names."""
    return "".join(
        f"-{_UNSAFE.sub('_', short)}={_file_name_part(settings[key])}"
        for key, short in short_keys(list(settings)).items()
    )


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Return dotted key -> the fewest of its last parts that no other key ends in."""
    short = {}
    for key in keys:
        parts = key.split(".")
        tails = [".".join(parts[-n:]) for n in range(1, len(parts) + 1)]
        short[key] = next(
            (t for t in tails if sum(other == t or other.endswith(f".{t}") for other in keys) == 1),
            key,
        )
    return short


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _plain_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _file_name_part(value: Any) -> str:
    return _UNSAFE.sub("_", _plain_text(value))
