"""Derives fabrics for a scenario, and the figures printed with every run."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from msgspec import Struct, field
from msgspec.structs import asdict

from topologies import Fabric
from topologies.clos import ECMP, SOURCE
from topologies.structs import Doc, docs_of, text
from topologies.units import Duration

SINGLE_PATH = ("roce", "tcp")  # their queue pairs have one path each and can name it
_FABRIC = docs_of(Fabric)


def _as_in(key: str) -> Doc:
    return replace(_FABRIC[key], default="as in its fabric")


class QueueOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """A transport's ``fabric_options``: how queues behave and who chooses paths, never the shape.
    None stands for the fabric's value. ``name`` ends the variant's name, instead of what
    differs."""

    delay_ps: Annotated[Duration | None, _as_in("delay_ps")] = field(name="delay", default=None)
    hop_delay_ps: Annotated[Duration | None, _as_in("hop_delay_ps")] = field(
        name="hop_delay", default=None
    )
    cut_through: Annotated[bool | None, _as_in("cut_through")] = None
    buffer_bdp: Annotated[float | None, _as_in("buffer_bdp")] = None
    ecn: Annotated[bool | None, _as_in("ecn")] = None
    ecn_low_bdp: Annotated[float | None, _as_in("ecn_low_bdp")] = None
    ecn_high_bdp: Annotated[float | None, _as_in("ecn_high_bdp")] = None
    ecn_pmax: Annotated[float | None, _as_in("ecn_pmax")] = None
    last_hop_ecn: Annotated[bool | None, _as_in("last_hop_ecn")] = None
    trimming: Annotated[bool | None, _as_in("trimming")] = None
    trim_bdp: Annotated[float | None, _as_in("trim_bdp")] = None
    trim_last_hop_bdp: Annotated[float | None, _as_in("trim_last_hop_bdp")] = None
    pfc: Annotated[bool | None, _as_in("pfc")] = None
    pfc_xoff_bdp: Annotated[float | None, _as_in("pfc_xoff_bdp")] = None
    pool_mb_per_tbps: Annotated[float | None, _as_in("pool_mb_per_tbps")] = None
    pool_alpha: Annotated[float | None, _as_in("pool_alpha")] = None
    pool_alpha_lossless: Annotated[float | None, _as_in("pool_alpha_lossless")] = None
    routing: Annotated[str | None, _as_in("routing")] = None
    ecmp_hash: Annotated[str | None, _as_in("ecmp_hash")] = None
    name: Annotated[
        Annotated[str, text(r"[a-z0-9][\w-]{0,30}", "lower-case letters, digits, '-' or '_'")]
        | None,
        Doc("ends the name of the fabric so made", default="what differs", example='"deep"'),
    ] = None


def twin_of(fabric: Fabric) -> Fabric:
    """Return the same hosts and switches on a single plane with the same rate per host. A full
    packet takes as long as on the fabric: shorter links are lengthened, or transports would be
    compared over different distances."""
    rates = {
        key: getattr(fabric, key) * fabric.planes
        for key in ("nic_rate", "fabric_rate", "long_haul_rate")
    }
    twin = fabric.with_(name=f"{fabric.name}-1p", planes=1, **rates)
    crossing, local = (fabric.data_ps(under) - twin.data_ps(under) for under in (False, True))
    return twin.with_(
        delay_ps=fabric.delay_ps + crossing,
        hop_delay_ps=fabric.hop_delay_ps + (crossing - local) // 2,
    )


def usual_fabric(kind: str, base: Fabric) -> Fabric:
    """Return what a transport runs on without more words: for one with single-path queue pairs the
    twin, as such networks are built."""
    return routable(kind, twin_of(base) if kind in SINGLE_PATH and base.planes > 1 else base)


def routable(kind: str, fabric: Fabric) -> Fabric:
    """Where switches hash, all flows but MRC's are hashed by their 5-tuple."""
    return (
        variant_of(fabric, QueueOptions(routing=SOURCE))
        if kind != "mrc" and fabric.routing == ECMP
        else fabric
    )


def at_rate(fabric: Fabric, nic_rate: int) -> Fabric:
    """Return the fabric with NIC ports of ``nic_rate`` bits/s. Other rates scale with it and the
    delay inversely, so BDPs stay. Raises
    :class:`topologies.FabricError`."""
    if nic_rate == fabric.nic_rate:
        return fabric
    name = f"{fabric.name}-{nic_rate / 1e9:g}Gbit".replace(".", "_")
    factor = nic_rate / fabric.nic_rate
    rates = {key: round(getattr(fabric, key) * factor) for key in ("fabric_rate", "long_haul_rate")}
    delays = {
        key: round(getattr(fabric, key) / factor)
        for key in ("delay_ps", "hop_delay_ps", "long_haul_delay_ps")
    }
    pool = fabric.pool_mb_per_tbps / factor  # as many BDPs, too
    return fabric.with_(name=name, nic_rate=nic_rate, pool_mb_per_tbps=pool, **rates, **delays)


def variant_of(fabric: Fabric, options: QueueOptions) -> Fabric:
    """Return a fabric whose name ends in what differs. Raises :class:`topologies.FabricError`."""
    given = {
        key: value
        for key, value in sorted(asdict(options).items())
        if key != "name" and value is not None
    }
    changed = {key: value for key, value in given.items() if value != getattr(fabric, key)}
    suffixes = [options.name] if options.name else map(_suffix, changed.items())
    return fabric.with_(name="-".join([fabric.name, *suffixes]), **changed) if changed else fabric


def _suffix(change: tuple[str, Any]) -> str:
    key, value = change
    word = key.replace("_", "-")
    if key in ("routing", "ecmp_hash"):
        return str(value)
    if isinstance(value, bool):
        return word if value else f"no-{word}"
    return f"{word}-{value}".replace(".", "_")


def figures(fabric: Fabric) -> dict[str, object]:
    """Return times and thresholds, in ps and bytes; None for what is off."""
    low, high = fabric.ecn_bytes
    return {
        "nic_rate_bps": fabric.nic_rate,
        "base_rtt_ps": fabric.base_rtt_ps,
        "local_rtt_ps": fabric.local_rtt_ps,
        **({"haul_rtt_ps": fabric.haul_rtt_ps} if fabric.sites > 1 else {}),
        "delay_ps": fabric.delay_ps,
        "local_delay_ps": fabric.local_delay_ps,
        "plane_bdp_bytes": fabric.plane_bdp,
        "buffer_bytes": fabric.buffer_bytes,
        "ecn_bytes": [low, high] if fabric.ecn else None,
        "last_hop_ecn": fabric.ecn and fabric.last_hop_ecn,
        "trim_bytes": fabric.trim_bytes(False) if fabric.trimming else None,
        "trim_last_hop_bytes": fabric.trim_bytes(True) if fabric.trimming else None,
        **({"pool_bytes": list(fabric.pool_bytes)} if fabric.pool_mb_per_tbps else {}),
        "pfc_bytes": list(fabric.pfc_bytes) if fabric.pfc else None,
        "payload_share": fabric.payload_share,
        "routing": fabric.routing,
        "paths_per_pair": fabric.paths_per_pair,
    }
