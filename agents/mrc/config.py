"""What an MRC endpoint is told: the fabric's figures and the knobs, one frozen value.

Times are nanoseconds, sizes bytes. Real MRC's time constants belong to 100 Gb/s ports; here everything that is a time is
derived from the fabric's own base RTT or multiplied by its time scale (docs/time.md).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from typing import Any

from topologies.clos import Fabric

_ACCEPTED: dict[str, tuple[Any, str]] = {
    "int": (int, "whole number"), "float": ((int, float), "number"), "str": (str, "name"), "bool": (bool, "true or false"),
}  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Knobs of one endpoint; every default without a source is our own choice."""

    base_rtt: int  # ns, configured
    plane_bdp: int  # bytes
    port_rate: int  # bits/s
    mtu: int  # payload bytes
    scale: float  # time scale, 1.0 at 100 Gb/s ports
    trimming: bool  # switches trim: data asks for it
    congestion: str = "nscc"  # or "fixed", or "module:Class" (agents/mrc/congestion)
    receiver_penalty: int = 16  # while the last hop trims, what a SACK takes off its sender's window, in 1/128 of the bytes received
    window_bdp: float = 1.5  # of "fixed", in BDP over all live planes
    mpr: int = 1024  # most PSNs in flight to us; a multiple of 128, at most 255 * 128
    active_evs: int = 128  # most EVs in use per QP, shared equally by the planes (MRC paper: 128-256); fewer than planes: on so many planes
    max_wimm: int = 1024  # most immediates in flight (specification: at most 32767)
    sack_bytes: int = 16384  # a SACK after so much data
    sack_jitter: float = 0.25  # spread of that threshold, or strict rotation shows it one plane only
    timeout: int = 5  # RTO = 1.024 us * 2^timeout, scaled
    linear: int = 7  # firings at that interval; <= 7
    exponential: int = 7  # further firings, each doubled; 25 means for ever
    probe_cap_rtts: int = 4  # longest gap between Reliability Probes on a path that was given up, base RTTs
    probe_successes: int = 3  # clean answers in a row that bring it back; doubled with every flap
    forgive_rtts: int = 4096  # base RTTs of good conduct after which a path's or plane's flaps are forgotten
    ev_min_active: int = 0  # fewest EVs that verdicts of loss may leave in use; 0: a quarter of those wanted
    pace: float = 0.99  # of the port's rate: at all of it a queue that was once built on the way would never drain
    lookahead: int = 2  # packets a port may be ahead of its line rate, against timer slack
    # To be turned off by those who want to see what a mechanism is worth.
    skip: bool = True  # an ECN mark or a trim passes a path over once
    path_order: bool = True  # what is overtaken on its own path is lost (rule 1 of loss.py)
    oblivious: bool = False  # spray over all paths of open planes, whatever becomes of it: none is skipped, held or given up

    @property
    def rto(self) -> int:
        return int(1024 * (1 << self.timeout) * self.scale)

    @property
    def probe_cap(self) -> int:
        """Longest gap between unanswered probes, ns."""
        return self.probe_cap_rtts * self.base_rtt

    @property
    def ts_shift(self) -> int:
        """Timestamps count units of 2^ts_shift ns so that 16 bits wrap no sooner than 4x the largest RTT.

        Largest RTT: every one of a path's egress buffers full both ways, far above what the window allows.
        """
        longest = 64 * self.base_rtt
        return max(7, (4 * longest >> 16).bit_length())

    @classmethod
    def from_fabric(cls, fabric: Fabric, options: dict[str, Any]) -> Config:
        """The configuration for a fabric, with some knobs set. Raises ValueError naming the nearest knob."""
        derived = {"base_rtt", "plane_bdp", "port_rate", "mtu", "scale", "trimming"}
        # A field's type is its name in source and the type itself once compiled.
        kinds = {f.name: f.type if isinstance(f.type, str) else f.type.__name__ for f in fields(cls) if f.name not in derived}
        for key, value in options.items():
            if key not in kinds:
                near = difflib.get_close_matches(key, kinds, n=1, cutoff=0.0)[0]
                raise ValueError(f"transport mrc has no option {key!r}: did you mean {near!r}?")
            types, name = _ACCEPTED[kinds[key]]
            if not isinstance(value, types) or isinstance(value, bool) != (types is bool):
                article = "" if types is bool else "a "
                raise ValueError(f"transport mrc: {key} must be {article}{name}, not {value!r}")
        made = cls(fabric.base_rtt_ns, fabric.plane_bdp, fabric.nic_rate, fabric.mtu, fabric.time_scale, fabric.trimming, **options)
        for key, low, high in (
            ("mpr", 128, 255 * 128), ("active_evs", 1, 1 << 16), ("window_bdp", 0.1, 100.0), ("max_wimm", 1, 32767),
            ("linear", 0, 7), ("exponential", 0, 25), ("timeout", 0, 31), ("sack_bytes", 256, 1 << 24),
            ("sack_jitter", 0.0, 0.9), ("probe_successes", 1, 32), ("probe_cap_rtts", 1, 100000), ("lookahead", 1, 64), ("pace", 0.5, 1.0),
            ("receiver_penalty", 0, 127), ("forgive_rtts", 1, 1 << 30), ("ev_min_active", 0, 1 << 16),
        ):  # fmt: skip
            value = getattr(made, key)
            if not low <= value <= high:
                raise ValueError(f"transport mrc: {key} = {value} is outside {low}..{high}")
        if made.mpr % 128:
            raise ValueError(f"transport mrc: mpr = {made.mpr} must be a multiple of 128")
        return made
