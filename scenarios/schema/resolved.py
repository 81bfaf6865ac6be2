"""Writes a resolved scenario as a file, for another machine that carries out a part of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from scenarios.schema.fault_tables import Fault, FaultTable
from scenarios.schema.iperf_tables import Background, Entry
from scenarios.schema.scenario_tables import ScenarioFile, TransportTable
from scenarios.schema.sweep import Settings
from scenarios.schema.workload_tables import TABLES, FlowTable, JobTable
from scenarios.schema.workloads import Workload
from testbed.faults.keys import Period
from testbed.faults.kinds import KINDS
from topologies import Fabric
from topologies.toml_files import FORMAT
from topologies.units import Duration, Span, written

if TYPE_CHECKING:
    from scenarios.schema.scenario import Scenario, Transport

_ENDS = ("", "_ps", "_s", "_bps", "_bytes", "s")  # on a name of ours, after the key of a file
_RENAMED = {"experts": "expert_bytes"}


def _name(record: Any, key: str) -> str:
    names = (_RENAMED.get(key, key), *(f"{key}{end}" for end in _ENDS))
    return next((name for name in names if hasattr(record, name)), key)


def _row(record: Any, form: type[Struct], **own: Any) -> dict[str, object]:
    row = {}
    for key in form.__struct_encode_fields__:
        name = _name(record, key)
        value = getattr(record, name, None)
        row[key] = written(value) if name == f"{key}_ps" and value is not None else value
    return {key: value for key, value in {**row, **own}.items() if value is not None}


def text_of(scenario: Scenario, settings: Settings) -> str:
    """Write a setting of a sweep with resolved times and rates, without checks on figures."""
    tables = _row(
        scenario,
        ScenarioFile,
        fabric=_fabric(scenario.fabric),
        workload=_workload(scenario.workload),
        expect=None,
        transport=[_transport(transport, scenario.fabric) for transport in scenario.transports],
        fault=[*map(_fault, scenario.faults)],
        background=[*map(_background, scenario.backgrounds)],
        setting=settings,
    )
    return "".join(
        f"{key} = {_toml(value)}\n" for key, value in {"format": FORMAT, **tables}.items()
    )


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)  # text, numbers and truth are alike in both


def _fabric(fabric: Fabric) -> dict[str, object]:
    return {
        key.removesuffix("_ps"): written(value)
        if key.endswith("_ps") and isinstance(value, int)
        else value
        for key, value in fabric.to_dict().items()
        if value is not None
    }


def _workload(work: Workload) -> dict[str, object]:
    form = TABLES[work.kind]
    inner = {
        "flow": [_row(flow, FlowTable) for flow in work.flows],
        "job": [_row(job, JobTable) for job in work.jobs],
    }
    return _row(
        work,
        form,
        **{key: rows for key, rows in inner.items() if key in form.__struct_encode_fields__},
    )


def _transport(transport: Transport, base: Fabric) -> dict[str, object]:
    wait, mapper = transport.reconvergence_ps, transport.clustermapper
    fabric = None if transport.fabric == base else _fabric(transport.fabric)
    waits = {"reconvergence": wait, "repair": transport.repair_ps}
    options = {
        **transport.options,
        "qps": transport.qps,
        **{key: written(ps) for key, ps in waits.items() if ps is not None},
    }
    return _row(
        transport,
        TransportTable,
        fabric=fabric,
        options=options,
        clustermapper=mapper and mapper.to_dict(),
    )


def _fault(fault: Fault) -> dict[str, object]:
    times = {key.name for key in KINDS[fault.kind].keys if key.kind in (Duration, Period, Span)}
    keys = {
        key: written(value) if key in times and type(value) is int else value
        for key, value in fault.keys.items()
    }
    return {**keys, **_row(fault, FaultTable)}


def _background(flow: Background) -> dict[str, object]:
    path = flow.path and "p{}/{}".format(*flow.path)
    congestion = flow.congestion if flow.protocol == "tcp" else None
    return _row(
        flow, Entry, src=f"h{flow.src}", dst=f"h{flow.dst}", path=path, congestion=congestion
    )
