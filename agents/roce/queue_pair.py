"""A queue pair: its two halves, its state, and the one path of all its packets.

States follow the InfiniBand specification, volume 1, section 10.3. RTR and RTS are one step here,
because both ends connect before either sends:

====== =================================== =====================================================
state  may                                 leaves it by
====== =================================== =====================================================
INIT   post receives; packets are dropped  connect -> RTS
RTS    everything                          fatal NAK sent or got, retries exhausted -> ERROR
ERROR  nothing; requests get a NAK         never: make a new queue pair
====== =================================== =====================================================
"""

from __future__ import annotations

from typing import Final

from agents.packets.dscp import ECT0, NOT_ECT
from agents.packets.headers import head, icrc_of_head
from agents.roce.congestion import NotificationPoint
from agents.roce.requester import Requester
from agents.roce.responder import Responder
from agents.roce.wire import DATA_DSCP
from agents.transport import LONG_AGO, NEVER
from topologies.addressing import inner_address

INIT: Final = 0
RTS: Final = 1
ERROR: Final = 2
STATES: Final = ("INIT", "RTS", "ERROR")
_CACHE: Final = 64


class QueuePair:
    def __init__(
        self,
        qpn: int,
        peer: int,
        address: bytes,
        ports: tuple[int, int],
        flow: int,
        tx: Requester,
        rx: Responder,
        notification: NotificationPoint,
    ) -> None:
        self.qpn: int = qpn
        self.peer: int = peer
        self.address: bytes = address
        self.peer_address: bytes = inner_address(peer)
        self.sport, self.dport = ports
        self.flow: int = flow  # what ECMP hashes it to
        self.tx: Requester = tx
        self.rx: Responder = rx
        self.notification: NotificationPoint = notification
        self.state: int = INIT
        self.cause: str = ""
        self.remote_qpn: int = 0
        self.remote_sport: int = 0
        self.ev: int = 0
        self.port: int = 0
        self.dead: bool = False  # the network knows no living path for it
        self.scheduled: bool = False  # in its port's queue
        # when its rate or its receiver lets it return to its port's queue
        self.wake_at: int = NEVER
        self.answering: bool = False  # in the queue of answers
        self.cnp_due: bool = False  # a CNP is among them
        self.refused_at: int = LONG_AGO  # last NAK from ERROR
        self.tx_packets: int = 0
        self.rx_packets: int = 0
        self.last_data_ps: int = LONG_AGO
        self._outer: bytes = b""
        self._heads: dict[int, tuple[bytes, int]] = {}
        self._seeds: dict[int, int] = {}

    def take_path(self, ev: int, port: int, outer: bytes) -> None:
        self.ev = ev
        self.port = port
        self._outer = outer
        self._heads = {}

    def head(self, dscp: int, after_udp: int) -> tuple[bytes, int]:
        """``after_udp``: bytes from the BTH to the iCRC inclusive."""
        key = after_udp << 1 | (dscp == DATA_DSCP)
        entry = self._heads.get(key)
        if entry is None:
            if len(self._heads) >= _CACHE:
                self._heads = {}
            ecn = ECT0 if dscp == DATA_DSCP else NOT_ECT
            frame_head = head(
                (self.address, self._outer),
                (self.address, self.peer_address),
                self.sport,
                dscp,
                ecn,
                after_udp,
                self.dport,
            )
            entry = (frame_head, icrc_of_head(frame_head))
            self._heads[key] = entry
        return entry

    def seed_from_peer(self, after_udp: int) -> int:
        seed = self._seeds.get(after_udp)
        if seed is None:
            if len(self._seeds) >= _CACHE:
                self._seeds = {}
            frame_head = head(
                (self.peer_address, self.address),
                (self.peer_address, self.address),
                self.remote_sport,
                0,
                0,
                after_udp,
                self.dport,
            )
            seed = icrc_of_head(frame_head)
            self._seeds[after_udp] = seed
        return seed
