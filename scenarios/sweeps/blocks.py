"""A *block*: one seed, setting, placement and fabric with all its transports, as text that another machine can carry out.

They stay together because a fault may hit the path that an earlier transport used, and because a drift of the machine must hit all
transports alike. A block is JSON and is checked in full when it is read: with ``sudo`` it is root who reads it. It holds the resolved
scenario, so that no file has to be at the far end, and nobody there resolves it in another way.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, to_builtins

from agents.clustermapper.options import Options
from scenarios.run.one_run import OneRun, Spec, serves_again
from scenarios.run.planning import MAX_KEY
from scenarios.run.runner import WorldFactory
from scenarios.run.simulate import check_simulable
from scenarios.schema.dilation import check_emulable
from scenarios.schema.resolved import place
from scenarios.schema.scenario import USED_BY_QP, Scenario, Transport, read_again
from testbed.errors import UserError
from testbed.faults.kinds import target_of
from testbed.simulated import SIMULATED, WORLDS
from testbed.streams import printable
from topologies.fabrics import MAX_DILATION
from topologies.structs import Refused, convert, join, plain
from topologies.toml_files import MAX_WHOLE, check_values

MAX_BYTES = 1 << 20
"""The longest block as text; those of the shipped scenarios have some kilobytes [ours]."""
MAX_LINE = 300
"""Letters of a refusal: some of them show the value [ours]."""
_KEY = re.compile(r"[A-Za-z0-9][\w.,=+@-]*")
_Text = Annotated[str, Meta(max_length=MAX_KEY, description=f"text of {MAX_KEY} letters at most")]


class BringUpFailed(UserError):
    """The world of a block did not come up on this machine. Another machine, or another time, may do better."""


class Block(Struct, frozen=True, forbid_unknown_fields=True):
    """What to carry out. ``mrcbed``: the version that wrote it; ``transports``: names, in the order of the runs. ``dilation``: None in the
    simulated world."""

    mrcbed: str
    world: str
    scenario: dict[str, Any]
    transports: tuple[str, ...]
    placement: str
    seed: Annotated[int, Meta(le=MAX_WHOLE)]
    settings: Annotated[dict[_Text, _Text | int | float | bool], Meta(max_length=MAX_KEY)] = {}
    used: dict[int, str] = {}
    dilation: Annotated[float, Meta(ge=1.0, le=MAX_DILATION)] | None = None


def written(specs: Sequence[Spec], world: str, version: str, dilation: float | None = None) -> str:
    """Return the block of these runs as one line of JSON."""
    first = specs[0]
    scenario = _as_plain(replace(first.scenario, seeds=(first.seed,), swept=(), expects=(), description="", file="scenario", text=""))
    names = tuple(spec.transport.name for spec in specs)
    block = Block(version, world, scenario, names, first.placement, first.seed, first.settings, dict(first.used), dilation)
    return json.dumps(to_builtins(block, str_keys=True))


def _as_plain(scenario: Scenario) -> dict[str, Any]:
    data = plain(scenario)
    for transport in data["transports"]:
        mapper = transport["clustermapper"]
        transport["clustermapper"] = None if mapper is None else plain(mapper)
    return data


def read(text: str | bytes, version: str, world: str | None = None) -> tuple[Block, list[Spec]]:
    """Read a block and return it with its runs. ``world``: the only one that may be asked for. Raises :class:`UserError`, one line."""
    if len(text) > MAX_BYTES:
        raise UserError(f"block: longer than {MAX_BYTES} bytes: give one that mrcbed sweep wrote")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"block: no JSON ({error}): give one that mrcbed sweep wrote") from None
    if not isinstance(data, dict):
        raise UserError("block: no JSON object: give one that mrcbed sweep wrote")
    try:
        check_values(data)
        if data.get("mrcbed") != version:
            there = str(data.get("mrcbed"))[:40]
            raise UserError(f"written by mrcbed {there}, here is {version}: install the same version on both machines")
        block = convert(data, Block, strict=False)
        if block.world not in (WORLDS if world is None else (world,)):
            raise Refused("world", f"= {block.world!r} must be {world or ' or '.join(WORLDS)}")
        scenario = _scenario(block.scenario)
        specs = _specs(block, scenario)
        _check(block, scenario, specs)
    except (UserError, ValueError) as error:  # ValueError: Refused, and those of options, workloads and faults
        line = printable(f"block: {error}", line=True)
        raise UserError(line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 3]}...") from None
    return block, specs


def _scenario(data: dict[str, Any]) -> Scenario:
    """The scenario of a block. The clustermapper's options are a compiled class, which only its own ``read`` may make."""
    tables = data.get("transports")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise Refused("scenario.transports", "must be a list of tables")
    mappers = [table.get("clustermapper") for table in tables]
    bare = {**data, "transports": [{**table, "clustermapper": None} for table in tables]}
    try:
        scenario = msgspec.convert(bare, Scenario)
    except msgspec.ValidationError as error:
        raise Refused("scenario", f": {error}") from None
    transports = []
    for i, (transport, mapper) in enumerate(zip(scenario.transports, mappers, strict=True)):
        try:
            transports.append(replace(transport, clustermapper=None if mapper is None else Options.read(mapper)))
        except Refused as error:
            raise Refused(join(f"scenario.transports[{i}].clustermapper", error.key), error.text) from None
    return replace(scenario, transports=tuple(transports))


def _specs(block: Block, scenario: Scenario) -> list[Spec]:
    by_name = {transport.name: transport for transport in scenario.transports}
    unknown = [name for name in block.transports if name not in by_name]
    if unknown or not block.transports or len(set(block.transports)) < len(block.transports):
        raise Refused("transports", f"= {list(block.transports)!r} must name transports of the scenario ({', '.join(by_name)}), each once")
    transports: list[Transport] = [by_name[name] for name in block.transports]
    if len({transport.fabric.name for transport in transports}) > 1:
        raise Refused("transports", "must share a fabric")
    used = dict(block.used)
    return [Spec(scenario, transport, block.placement, block.seed, used, block.settings) for transport in transports]


def _check(block: Block, scenario: Scenario, specs: Sequence[Spec]) -> None:
    """Check what types do not say: names that become files, every value as in a scenario file, and what the world can do."""
    if block.seed < 0:
        raise Refused("seed", f"= {block.seed} must be 0 or more")
    if scenario.seeds != (block.seed,):
        raise Refused("scenario.seeds", f"must be the block's, [{block.seed}]")
    if block.placement not in scenario.workload.placement:
        raise Refused("placement", f"= {block.placement!r} is none of the scenario's ({', '.join(scenario.workload.placement)})")
    for spec in specs:
        if not _KEY.fullmatch(spec.key) or len(spec.key.encode()) > MAX_KEY:
            raise Refused("scenario", f"gives a run the name {spec.key[:80]!r}, which is no name of a file")
        transport = spec.transport
        if block.world != SIMULATED and ":" in str(transport.options.get("congestion", "")):
            name = transport.options["congestion"]
            raise Refused("scenario", f"has congestion = {name!r}: root imports no module that a block names; run it with mrcbed run")
    try:
        again = read_again(replace(scenario, description="", file="scenario", text=""))
    except Refused as error:
        raise Refused(f"scenario.{place(scenario, error.key)}", error.text) from None
    strange = _difference(block.scenario, json.loads(json.dumps(_as_plain(again))), "scenario")
    if strange:
        raise Refused(strange, "is nothing that a scenario file makes: give a block that mrcbed sweep wrote")
    for number, on in block.used.items():
        if not 0 <= number < len(scenario.faults) or scenario.faults[number].on != USED_BY_QP:
            raise Refused("used", f"names fault {number}, which is not on {USED_BY_QP!r}")
        target_of(specs[0].transport.fabric, scenario.faults[number].kind, on, scenario.faults[number].keys, block.seed)
    if (block.dilation is None) != (block.world == SIMULATED):
        raise Refused("dilation", f"= {block.dilation!r} must be a number for emulated runs, and null for others")
    if block.dilation is None:
        check_simulable(scenario)
    else:
        check_emulable(scenario, block.dilation)


def _difference(there: Any, here: Any, where: str) -> str:
    """The dotted key of the first value in which plain data differ; "" if they are the same."""
    if isinstance(there, dict) and isinstance(here, dict):
        inner = (
            (there.get(key), here.get(key), join(where, key)) if key in here else (0, 1, join(where, key)) for key in {**here, **there}
        )
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        inner = ((a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(there, here, strict=True)))
    else:
        return "" if there == here else where
    return next(filter(None, (_difference(*pair) for pair in inner)), "")


def carry_out(specs: Sequence[Spec], directory: Path, factory: WorldFactory, report: Callable[[str], None] = lambda line: None) -> None:
    """Carry out the runs of a block into ``directory``/raw, on one emulated fabric, or each on a simulated one of its own.

    Raises :class:`BringUpFailed` if a world does not come up, and whatever stops a run.
    """
    cluster: Any = None
    try:
        for spec in specs:
            if cluster is None:
                cluster = factory(spec.transport.fabric)
                try:
                    cluster.start()
                except Exception as error:
                    raise BringUpFailed(f"{spec.transport.fabric.name} did not come up: {type(error).__name__}: {error}") from error
            report(spec.key)
            outcome = OneRun(cluster, spec, directory / "raw" / spec.key, lambda share, trouble: None).go()
            if serves_again(cluster, outcome):
                cluster.heal()
            else:
                cluster.stop()
                cluster = None
                gc.collect()
    finally:
        if cluster is not None:
            cluster.stop()
