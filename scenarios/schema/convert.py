"""Rewrites a fabric or scenario file of before format 3, whose rates and times were those of this machine's slower network.

Only values change: comments, order and layout stay. What is written is read again and compared with what was meant. docs/time.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from scenarios.schema.network_time import BPS, NS, RATE, TIME, changed, is_amount
from scenarios.schema.values import ScenarioError
from testbed.units import parse_duration
from topologies.clos import DATA_HEADERS, ICRC, SACK_BYTES
from topologies.fabrics import NIC_RATE, load_fabric, parse_delay, parse_rate
from topologies.toml_files import FORMAT, parse_toml, read_toml

EARLIER = {"rack16": NIC_RATE / 3e6, "wide": NIC_RATE / 4e6}
"""Dilation of shipped fabrics that ran slower than today when older files were written."""
_TIMES = ("at", "for", "start", "duration", "victim_alone", "reconvergence", "delay", "period", "reboot")
_RATES = ("rate", "nic_rate", "fabric_rate")
_NUMBERS = {"rto_ns": NS, "rnr_ns": NS, "rate_limit": BPS}
_LITERAL = r"\"[^\"\n]*\"|'[^'\n]*'|\d[\w.]*"
_ENTRY = re.compile(rf"(?P<key>[\w\"'.-]+)(?P<is>\s*=\s*)(?P<value>-?{_LITERAL}|\[[^\]\n]*\])")
_BOUND = re.compile(r"(?P<left>[\"'][\w.\[\]]+_(?P<unit>ns|bps)(?:\.\w+)?\s*(?:<=|>=|<|>|==)\s*)(?P<number>\d[\d_.e+]*)(?=[\"'])")
_CODE = re.compile(r"(?:[^#\"']|\"[^\"]*\"|'[^']*')*")
"""What stands before a line's comment."""


def converted(path: Path) -> tuple[str, float]:
    """(new text, dilation) of an older file. Raises :class:`ScenarioError` if it has a format already or cannot be rewritten."""
    try:
        text, data = read_toml(path)
    except ValueError as error:
        raise ScenarioError(f"{path} {error}") from None
    if "format" in data:
        raise ScenarioError(f"{path} has format = {data['format']!r} already: nothing to convert")
    is_fabric = "workload" not in data
    dilation = NIC_RATE / parse_rate(data.get("nic_rate", "10Mbit")) if is_fabric else _dilation(data, path)
    dilation = float(f"{dilation:.10g}")  # as it is written
    added = {"dilation": dilation, **_usual_delay(data)} if is_fabric else {}
    new = _rewritten(text, dilation, added)
    meant = {**data, "format": FORMAT, **added}
    meant = _fabric(meant, dilation) if is_fabric else changed(meant, dilation, _CHANGES)
    if _normal(parse_toml(new)) != _normal(meant):
        raise ScenarioError(
            f"{path} is written in a way that cannot be rewritten here: divide its times and multiply its rates by {dilation:g}"
        )
    return new, dilation


def _dilation(data: dict[str, Any], path: Path) -> float:
    name = str(data.get("fabric", ""))
    return EARLIER.get(name) or load_fabric(name, path.parent).dilation


def _usual_delay(data: dict[str, Any]) -> dict[str, str]:
    """What a file without a delay meant then, on the machine's clock: as much as made a plane's BDP ten full packets."""
    if "delay" in data:
        return {}
    nic = parse_rate(data.get("nic_rate", "10Mbit"))
    frame = DATA_HEADERS + data.get("mtu", 4096) + ICRC
    serialised = (frame + SACK_BYTES) * 8e9 * 2 * (1 / nic + 1 / (parse_rate(data.get("fabric_rate", 0)) or nic))
    return {"delay": f"{max(0.0, (10 * frame * 8e9 / nic - serialised) / 2):.0f}ns"}


def _rewritten(text: str, dilation: float, added: dict[str, Any]) -> str:
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), len(lines))
    head = [f"format = {FORMAT}"]
    for key, value in added.items():
        head.append(f"{key} = {value:.10g}" if key == "dilation" else _line(f'{key} = "{value}"', dilation))
    return "\n".join([*lines[:first], *head, *(_line(line, dilation) for line in lines[first:])])


def _line(line: str, dilation: float) -> str:
    code = _CODE.match(line)
    end = code.end() if code else 0
    return _ENTRY.sub(lambda found: _entry(found, dilation), line[:end]) + line[end:]


def _entry(found: re.Match[str], dilation: float) -> str:
    key = found["key"].strip("\"'").split(".")[-1]
    value = found["value"]
    if key in _TIMES or key in _RATES:
        change = _time if key in _TIMES else _rate
        value = re.sub(_LITERAL, lambda literal: _literal(literal[0], change, dilation), value)
    elif key in _NUMBERS:
        value = re.sub(r"\d+", lambda literal: str(_CHANGES[_NUMBERS[key]](int(literal[0]), dilation, "")), value)
    elif key == "check":
        value = _BOUND.sub(lambda bound: bound["left"] + _number(float(bound["number"]), bound["unit"], dilation), value)
    return f"{found['key']}{found['is']}{value}"


def _number(value: float, unit: str, dilation: float) -> str:
    return f"{value / dilation if unit == 'ns' else value * dilation:.6g}"


def _literal(text: str, change: Any, dilation: float) -> str:
    quoted = text[0] in "\"'"
    if change is _rate and not quoted and "." in text:
        return text  # the share of a port's rate that a slow link keeps
    made = change(text.strip("\"'") if quoted else float(text) if "." in text else int(text), dilation, "")
    return f'"{made}"' if isinstance(made, str) else text


def _time(value: Any, dilation: float, where: str) -> Any:
    try:
        ns = parse_duration(value) / dilation
    except ValueError:
        return value
    return _with_unit(ns, {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0})


def _rate(value: Any, dilation: float, where: str) -> Any:
    try:
        real = parse_rate(value) * dilation
    except ValueError:
        return value
    return _with_unit(real, {"Gbit": 1e9, "Mbit": 1e6, "kbit": 1e3, "bit": 1.0})


def _with_unit(value: float, units: dict[str, float]) -> str:
    """With the largest unit that keeps it at 1 or more, else the last."""
    unit = next((name for name, scale in units.items() if value >= scale), list(units)[-1])
    return f"{value / units[unit]:.6g}{unit}"


def _ns(value: Any, dilation: float, where: str) -> Any:
    return round(value / dilation) if is_amount(value) else value


def _bps(value: Any, dilation: float, where: str) -> Any:
    return round(value * dilation) if is_amount(value) else value


_CHANGES = {TIME: _time, RATE: _rate, NS: _ns, BPS: _bps}


def _fabric(data: dict[str, Any], dilation: float) -> dict[str, Any]:
    rates: dict[str, Any] = {key: _rate(data[key], dilation, "") for key in ("nic_rate", "fabric_rate") if key in data}
    return {**data, **rates, **({"delay": _time(f"{parse_delay(data['delay'])}ns", dilation, "")} if "delay" in data else {})}


def _normal(data: Any) -> Any:
    """Without the parts that only name values of others, and the same for every spelling of a number."""
    if isinstance(data, dict):
        return {key: _normal(value) for key, value in data.items() if key not in ("sweep", "setting", "check")}
    if isinstance(data, list):
        return [_normal(value) for value in data]
    return round(data, 6) if isinstance(data, float) else data
