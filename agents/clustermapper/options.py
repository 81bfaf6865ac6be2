"""The options of a Clustermapper: how often to probe, what counts as lossy, what is done about it.
Every default is [ours]."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from msgspec import Meta

from topologies.structs import Doc, Refused, given, one_of, options_of

POLICIES = ("nic-links", "report", "all")


@dataclass(frozen=True)
class Options:
    interval: float = 2.0
    share: float = 0.0
    threshold: float = 0.01
    policy: str = "nic-links"
    hold: float = 100.0
    start_check: float = 0.0

    @classmethod
    def read(cls, data: Any) -> Options:
        """True stands for the defaults. Raises :class:`topologies.structs.Refused`."""
        if data is not True and not isinstance(data, dict):
            raise Refused("", f"= {data!r} must be true, false or a table")
        return cls(**given({} if data is True else data, OPTIONS))

    def __reduce__(self) -> tuple[type[Options], tuple[Any, ...]]:
        """Make the value anew on unpickling: the compiled class refuses pickle's way of setting a
        frozen value."""
        return Options, tuple(self.to_dict().values())

    def to_dict(self) -> dict[str, str | float]:
        return asdict(self)


_RTTS: Final = "base RTTs"
KEYS: Final = {
    "interval": (
        Meta(ge=0.1, le=10_000.0),
        Doc(
            "time in which every plane gets a probe to its T0 and one to a T1 of the host's share",
            _RTTS,
        ),
    ),
    "share": (
        Meta(ge=0.0, le=1.0),
        Doc(
            "share of a plane's T1s that a host probes at a time; 0: as few as cover every T0-T1 "
            "link twice"
        ),
    ),
    "threshold": (
        Meta(ge=0.001, le=0.5),
        Doc("least loss rate, there and back together, that makes a link lossy"),
    ),
    "policy": (
        one_of(POLICIES),
        Doc(
            "nic-links: lossy NIC-T0 links are denied; all: every link named; report: none",
            example='"report"',
        ),
    ),
    "hold": (
        Meta(ge=0.0, le=1_000_000.0),
        Doc(
            "time that a denied link must be clear before it is allowed again; doubles with "
            "every denial",
            _RTTS,
        ),
    ),
    "start_check": (
        Meta(ge=0.0, le=10_000.0),
        Doc("probing alone, before the workload begins", _RTTS, example="200.0"),
    ),
}
OPTIONS: Final = options_of(Options, KEYS)
