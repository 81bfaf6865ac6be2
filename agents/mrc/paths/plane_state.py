"""Defines the life of one plane towards one peer as a table [ours; that hosts are told of ports is
the specification's].

Theory of operation. A plane reaches a peer over two NIC ports, ours and the peer's; the EVs in
between live by ``ev_state.py``. Ports are known, not guessed: ours by its carrier, the peer's by
its Port Status Updates.

1. Only a USED plane carries data.
2. If either port is down, the plane is DOWN within the same tick. What was in flight on it is sent
   again; no EV is blamed for a port.
3. When both ports are up again, the plane is PROVING. After a hold-down, longer with every flap,
   one probe has to come back, on any EV of the plane: a port has its carrier before its switch
   forwards.
4. An answered probe makes it USED, with the EVs it had.

A pair that is not in the table cannot happen, and raises ValueError. docs/why/protocol.md draws it.
A plane that is dead although both ports are up, because its T0 is silent, shows only in the fate of
its EVs: ``suspicion.py``.
"""

from __future__ import annotations

from typing import Final

USED: Final = 0
DOWN: Final = 1
PROVING: Final = 2
STATE_NAMES: Final = ("USED", "DOWN", "PROVING")

CLOSED: Final = 0  # the port at one end went down, by its carrier or the peer's word
OPENED: Final = 1  # the ports at both ends are up
ANSWERED: Final = 2  # a probe came back
EVENT_NAMES: Final = ("closed", "opened", "answered")

TRANSITIONS: Final[dict[tuple[int, int], int]] = {
    (USED, CLOSED): DOWN,
    (PROVING, CLOSED): DOWN,
    (DOWN, OPENED): PROVING,
    (PROVING, ANSWERED): USED,
}


def next_state(state: int, event: int) -> int:
    after = TRANSITIONS.get((state, event))
    if after is None:
        raise ValueError(f"a plane that is {STATE_NAMES[state]} cannot be {EVENT_NAMES[event]}")
    return after
