"""Writes a resolved scenario as the tables of a file that says the same. Blocks of sweeps are read that way (scenarios/sweeps/blocks.py):
whoever has written one, each of its values passes the checks of a scenario file. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from scenarios.schema.fault_tables import Fault, FaultTable
from scenarios.schema.iperf_tables import Background, Entry
from scenarios.schema.scenario_tables import ScenarioFile, TransportTable
from scenarios.schema.workload_tables import TABLES, FlowTable, JobTable
from scenarios.schema.workloads import Workload
from testbed.faults.keys import Period
from testbed.faults.kinds import KINDS
from topologies.structs import Refused, there_are
from topologies.units import Duration, written

if TYPE_CHECKING:
    from scenarios.schema.scenario import Scenario, Transport

_ENDS = ("", "_ps", "_s", "_bps", "_bytes", "s")
"""Endings that a name of ours may have after the key of a file."""
_RENAMED = {"experts": "expert_bytes"}


def _name(record: Any, key: str) -> str:
    """Find the field of a resolved record that a file's key makes; the key itself if there is none of a like name."""
    names = (_RENAMED.get(key, key), *(f"{key}{end}" for end in _ENDS))
    return next((name for name in names if hasattr(record, name)), key)


def _row(record: Any, form: type[Struct], **own: Any) -> dict[str, Any]:
    """Make a table of a file: the fields of a record that have a key there, but for those in ``own``."""
    row = {}
    for key in form.__struct_encode_fields__:
        name = _name(record, key)
        value = getattr(record, name, None)
        row[key] = written(value) if name == f"{key}_ps" and value is not None else value
    return {key: value for key, value in {**row, **own}.items() if value is not None}


def tables_of(scenario: Scenario) -> dict[str, Any]:
    """Make what :class:`ScenarioFile` reads, with times and rates as they are resolved; without checks on figures."""
    return _row(
        scenario, ScenarioFile, fabric=scenario.fabric.name, workload=_workload(scenario.workload), expect=None,
        transport=[*map(_transport, scenario.transports)], fault=[*map(_fault, scenario.faults)],
        background=[*map(_background, scenario.backgrounds)],
    )  # fmt: skip


def _workload(work: Workload) -> dict[str, Any]:
    form = TABLES.get(work.kind)
    if form is None:
        raise Refused("workload.kind", f"= {work.kind!r}: {there_are(work.kind, TABLES)}")
    inner = {"flow": [_row(flow, FlowTable) for flow in work.flows], "job": [_row(job, JobTable) for job in work.jobs]}
    return _row(work, form, **{key: rows for key, rows in inner.items() if key in form.__struct_encode_fields__})


def _transport(transport: Transport) -> dict[str, Any]:
    wait, mapper = transport.reconvergence_ps, transport.clustermapper
    options = {**transport.options, "qps": transport.qps, **({} if wait is None else {"reconvergence": written(wait)})}
    return _row(transport, TransportTable, fabric=None, options=options, clustermapper=mapper and mapper.to_dict())


def _fault(fault: Fault) -> dict[str, Any]:
    kind = KINDS.get(fault.kind)  # none: what reads the table refuses it
    times = {key.name for key in kind.keys if key.kind in (Duration, Period)} if kind else set()
    keys = {key: written(value) if key in times and type(value) is int else value for key, value in fault.keys.items()}
    return {**keys, **_row(fault, FaultTable)}


def _background(flow: Background) -> dict[str, Any]:
    path = flow.path and "p{}/{}".format(*flow.path)
    congestion = flow.congestion if flow.protocol == "tcp" else None
    return _row(flow, Entry, src=f"h{flow.src}", dst=f"h{flow.dst}", path=path, congestion=congestion)


def place(scenario: Scenario, key: str) -> str:
    """Name a file's key, dotted, as a resolved scenario does: ``faults[0].at_ps`` for ``fault[0].at``."""
    at: Any = scenario
    parts = []
    for key_, number in re.findall(r"([^.\[\]]+)(?:\[(\d+)\])?", key):
        name = _name(at, key_)
        at = getattr(at, name, None)
        if number:
            at = at[int(number)] if isinstance(at, (list, tuple)) and int(number) < len(at) else None
        parts.append(f"{name}[{number}]" if number else name)
    return ".".join(parts)
