"""What a Clustermapper is told, one frozen value: how often to probe, what counts as lossy, what is done about it.

Called by the host process (what an agent needs) and by scenarios (the same, and the policy). Every default is our own choice [ours].
"""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass, fields
from typing import Any

POLICIES = ("nic-links", "report", "all")
BOUNDS = {"interval": (0.1, 10_000.0), "share": (0.0, 1.0), "threshold": (0.001, 0.5), "hold": (0.0, 1_000_000.0)}


@dataclass(frozen=True)
class Options:
    """Times in base RTTs."""

    interval: float = 2.0  # in which every plane gets a probe to its T0 and one to a T1 of the host's share
    share: float = 0.0  # of a plane's T1s that a host probes at a time; 0: as few as cover every T0-T1 link twice
    threshold: float = 0.01  # least loss rate, there and back together, that makes a link lossy
    policy: str = "nic-links"  # "nic-links": lossy NIC-T0 links are denied; "all": every link named; "report": none
    hold: float = 100.0  # a denied link must be clear so long before it is allowed again; doubles with every denial

    @classmethod
    def read(cls, data: Any) -> Options:
        """From a scenario's value: true for the defaults, or a table. Raises ValueError, one line, naming the nearest key or the bounds."""
        if data is True:
            return cls()
        if not isinstance(data, dict):
            raise ValueError(f"= {data!r} must be true, false or a table")
        known = [f.name for f in fields(cls)]
        for key in data:
            if key not in known:
                raise ValueError(f"has no key {key!r}: did you mean {difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]!r}?")
        for key, (low, high) in BOUNDS.items():
            value = data.get(key, low)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
                raise ValueError(f"{key} = {value!r} must be a number in {low:g}..{high:g}")
        if data.get("policy", POLICIES[0]) not in POLICIES:
            raise ValueError(f"policy = {data['policy']!r}: there are {', '.join(POLICIES)}")
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that :meth:`read` turns back into an equal value."""
        return asdict(self)
