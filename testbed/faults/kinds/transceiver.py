"""Neighbouring ports that share a transceiver."""

from __future__ import annotations

import random
import re
from typing import Any, ClassVar

from testbed.faults import draws
from testbed.faults.base import Cycle, Drawn
from testbed.faults.keys import DUTY, PERIOD, FaultError, Key, Keys
from testbed.faults.targets import Target
from topologies.clos import Fabric, FabricError
from topologies.structs import Written
from topologies.theory import links_of_switch


class Links(metaclass=Written):
    """A number of links, or their names, as a list or as one word with commas."""

    words = "a number of links from 1 on, or a list of links' names"
    schema: ClassVar[dict[str, object]] = {
        "type": ["integer", "string", "array"],
        "minimum": 1,
        "minLength": 1,
        "minItems": 1,
        "items": {"type": "string"},
    }
    example = "4"

    @staticmethod
    def read(value: Any) -> int | tuple[str, ...]:
        if isinstance(value, str):
            value = int(value) if value.isascii() and value.isdigit() else value.split(",")
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        if (
            isinstance(value, (list, tuple))
            and value
            and all(isinstance(name, str) for name in value)
        ):
            return tuple(value)
        raise ValueError("must be a number of links from 1 on, or a list of links' names")


LINKS = Key(
    "links", Links, "how many, the first by port, or a list of names; default: half of them",
    lambda links: str(links) if isinstance(links, int) else ",".join(links),
)  # fmt: skip


class Transceiver(Cycle):
    name, on = "transceiver", "host or switch"
    doc = "several links of one host or switch go together; with period and duty they flap together"
    keys = (LINKS.optional(), PERIOD.optional(), DUTY.optional())
    takes = True

    def resolve(self, fabric: Fabric, on: str, keys: Keys) -> Target:
        """Without names, take the first links by port: neighbours share a transceiver."""
        if re.fullmatch(r"h[0-9]+", on):
            fabric.host_number(on)
            every = tuple(link.name for link in fabric.links if link.a.node == on)
        else:
            every = links_of_switch(fabric, on)
        selection = keys.get("links", max(1, len(every) // 2))
        if isinstance(selection, int):
            if selection > len(every):
                raise FabricError(f"{on} has {len(every)} links, not {selection}")
            return Target(self.name, on, keys, every[:selection])
        names = tuple(dict.fromkeys(fabric.link(name).name for name in selection))
        foreign = [name for name in names if name not in every]
        if foreign:
            raise FaultError(
                "links", f"= {foreign[0]!r} is no link of {on}: it has {', '.join(every)}"
            )
        return Target(self.name, on, keys, names)

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        on = rng.choice([*fabric.hosts, *fabric.switches])
        has = sum(on in (link.a.node, link.b.node) for link in fabric.links)
        return on, {
            "links": rng.randint(1, has),
            **(draws.cycle(rng) if rng.random() < 0.5 else {}),
        }
