"""The scenario by which the fluid model and packets are compared."""

from __future__ import annotations

from collections.abc import Sequence

SLICES = 4
_RING = """
format = 3
description = "A ring all-reduce across T1s; cables may be dead from the start."
fabric = "{fabric}"
seeds = [1]
timeout = "300s"

[workload]
kind = "ring-allreduce"
placement = ["interleaved"]
message_bytes = {size}
dtype = "int32"
steps = {steps}
warmup_steps = 1
slices = {slices}

[[transport]]
kind = "mrc"
"""
_DEAD = """
[[fault]]
name = "dead{number}"
kind = "link"
on = "{link}"
before = true
"""


def ring(fabric: str, size: int, steps: int = 3, dead: Sequence[str] = ()) -> str:
    """A scenario as TOML; ``size`` in bytes a rank, ``dead``: names of links."""
    faults = (_DEAD.format(number=number, link=link) for number, link in enumerate(dead))
    return _RING.format(fabric=fabric, size=size, steps=steps, slices=SLICES) + "".join(faults)
