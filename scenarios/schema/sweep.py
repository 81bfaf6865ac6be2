"""Settings of a scenario: what its ``[sweep]`` varies, key by key, and the short names that runs get from it.

Called by scenarios.schema.scenario, which reads a scenario once per setting, and by the runner for the names. Pure. docs/scenarios.md is
the manual.
"""

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

MAX_SETTINGS = 1000
"""More are a mistake in the file rather than a wish [ours]."""
FIXED = ("name", "description", "seeds", "transport", "expect", "sweep", "workload.placement")
"""What a sweep cannot vary as a whole: it is varied elsewhere already, or runs of different settings could not be told apart."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")

_VALUES: Any = Annotated[
    list[Annotated[str | int | float | bool, Meta(description="text, a number, true or false")]],
    Meta(min_length=1, description="a list of values"),
]

Settings = dict[str, Any]
"""Dotted key -> value."""


def assign(data: dict[str, Any], dotted: str, value: Any, said: str) -> None:
    """Set ``workload.steps``, ``transport.roce.options.qps``, ``fault.0.at``: lists by number, name or kind.

    ``said`` begins the error: whoever asked for it, as written. Raises :class:`ScenarioError`.
    """
    *parents, last = dotted.split(".")
    if len(parents) >= MAX_DEPTH:
        raise ScenarioError(f"{_brief(said)}: a key has at most {MAX_DEPTH} parts")
    at: Any = data
    for key in parents:
        if isinstance(at, list):
            at = _of_list(at, key, said)
        elif isinstance(at, dict):
            at = at.setdefault(key, {})
    if isinstance(at, list):
        raise ScenarioError(f"{said}: say which one, like {'.'.join(parents)}.0.{last}")
    if not isinstance(at, dict):
        raise ScenarioError(f"{said}: {'.'.join(parents)!r} holds no further keys")
    at[last] = value


def _of_list(entries: list[Any], key: str, said: str) -> Any:
    if key.isdigit() and int(key) < len(entries):
        return entries[int(key)]
    for which in ("name", "kind"):
        for entry in entries:
            if isinstance(entry, dict) and entry.get(which) == key:
                return entry
    raise ScenarioError(f"{said}: there is no {key!r} in a list of {len(entries)}")


def override(data: dict[str, Any], item: str) -> None:
    """One ``--set``: ``KEY=VALUE``. A key that the scenario sweeps has that one value then. Raises :class:`ScenarioError`."""
    dotted, equals, raw = item.partition("=")
    if not equals:
        raise ScenarioError(f"--set {item}: write it like --set workload.steps=3")
    try:
        value = parse_toml(f"x = {raw}")["x"]
    except tomllib.TOMLDecodeError:
        value = raw
    except ValueError as error:
        raise ScenarioError(f"--set {_brief(item)}: {error}") from None
    pin(data, dotted, value, f"--set {item}")


def pin(data: dict[str, Any], dotted: str, value: Any, said: str) -> None:
    """Set a key for all settings: as :func:`assign`, but if it is swept, by leaving that one value."""
    swept = data.get("sweep")
    if isinstance(swept, dict) and dotted in swept:
        swept[dotted] = [value]
    else:
        assign(data, dotted, value, said)


def read_sweep(file: str, data: Any, in_file: Any) -> tuple[list[Settings], dict[str, list[Any]]]:
    """(every setting of a ``[sweep]`` table, the last key varying fastest, or one without keys; key -> values that checks may name).

    ``in_file``: the table before the command line changed it; its values stay known to checks, which are then not asked.
    Raises :class:`ScenarioError`.
    """
    for table in (in_file, data):
        _check(file, table)
    count = math.prod(map(len, data.values()))
    if count > MAX_SETTINGS:
        raise ScenarioError(f"{file}: sweep makes {count} settings, the limit is {MAX_SETTINGS}: shorten a list")
    varied = {key: list(dict.fromkeys([*data.get(key, ()), *in_file.get(key, ())])) for key in {**in_file, **data}}
    return [dict(zip(data, values, strict=True)) for values in itertools.product(*data.values())], varied


def _check(file: str, data: Any) -> None:
    if not isinstance(data, dict):
        raise ScenarioError(f'{file}: sweep must be a table of lists, like "workload.message_bytes" = ["64KiB", "1MiB"]')
    for key, values in data.items():
        where = f'{file}: sweep."{key}"'
        if isinstance(values, dict):
            whole = f"{key}.{next(iter(values), 'x')}"
            raise ScenarioError(f'{file}: sweep.{key} holds a table: write the whole key in quotes, like "{whole}" = [1, 2]')
        if key in FIXED or re.fullmatch(r"(transport|expect)\.[^.]+(\.name|\.kind)?", key):
            raise ScenarioError(f"{where} cannot be swept: seeds, placements, transports and checks have lists of their own")
        try:
            convert(values, _VALUES, where)
        except Refused as error:
            raise ScenarioError(str(error)) from None
        same = next((value for i, value in enumerate(values) if value in values[:i]), None)
        if same is not None:  # 2 and 2.0, or 1 and true: tables take them for one setting
            raise ScenarioError(f"{where} has {_plain(same)} twice: each setting stands in a sweep once, seeds repeat it")
        names = [_shown(value) for value in values]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ScenarioError(f"{where} has {twice!r} twice, as a file's name would say it: runs could not be told apart")


def spelled(settings: Mapping[str, Any]) -> str:
    """For an error or a title: ``workload.message_bytes = 1MiB, fault.0.probability = 0.01``."""
    return ", ".join(f"{key} = {_plain(value)}" for key, value in settings.items())


def suffix(settings: Mapping[str, Any]) -> str:
    """For file names: ``-message_bytes=1MiB-probability=0.01``; as many words of a key as tell it from the others."""
    return "".join(f"-{_UNSAFE.sub('_', short)}={_shown(settings[key])}" for key, short in short_keys(list(settings)).items())


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Dotted key -> the least of its last words that no other key ends in."""
    out = {}
    for key in keys:
        words = key.split(".")
        tails = [".".join(words[-n:]) for n in range(1, len(words) + 1)]
        out[key] = next((t for t in tails if sum(other == t or other.endswith(f".{t}") for other in keys) == 1), key)
    return out


def _brief(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: Any) -> str:
    return _UNSAFE.sub("_", _plain(value))
