"""The endpoint's counters, by name.

tx_packets = data_tx + acks_tx + naks_tx + cnps_tx; tx_refused and retransmitted are parts of those.
rx_packets is the sum of ``RX_PARTS``: every frame with our UDP port lies in exactly one. Others are
in rx_other alone.
"""

from __future__ import annotations

from typing import Final

RX_PARTS: Final = (
    "data_rx",
    "rx_duplicate",
    "rx_out_of_order_dropped",
    "rx_receiver_not_ready",
    "acks_rx",
    "naks_rx",
    "cnps_rx",
    "rx_stale_response",
    "rx_bad_length",
    "rx_bad_icrc",
    "rx_bad_address",
    "rx_bad_pkey",
    "rx_bad_qp",
    "rx_bad_source",
    "rx_bad_opcode",
    "rx_bad_request",
    "rx_bad_rkey",
    "rx_not_connected",
    "rx_qp_error",
)


class Counters:
    def __init__(self) -> None:
        self.data_tx: int = 0
        self.retransmitted: int = 0
        self.acks_tx: int = 0
        self.naks_tx: int = 0
        self.cnps_tx: int = 0
        self.tx_refused: int = 0
        self.tx_payload_bytes: int = 0
        self.go_backs: int = 0
        self.rtos: int = 0
        self.reroutes: int = 0
        self.rx_packets: int = 0
        self.rx_other: int = 0
        self.data_rx: int = 0  # placed
        self.rx_payload_bytes: int = 0
        self.rx_duplicate: int = 0
        self.rx_out_of_order_dropped: int = 0
        self.rx_receiver_not_ready: int = 0  # an immediate without a receive request
        self.acks_rx: int = 0
        self.naks_rx: int = 0
        self.cnps_rx: int = 0
        self.marked_rx: int = 0  # WRITE packets with CE in their outer header
        self.rx_stale_response: int = 0  # an ACK or NAK of something already settled, or never sent
        self.rx_bad_length: int = 0
        self.rx_bad_icrc: int = 0
        self.rx_bad_address: int = 0  # not to this host
        self.rx_bad_pkey: int = 0
        self.rx_bad_qp: int = 0
        self.rx_bad_source: int = 0  # not from the QP's peer
        self.rx_bad_opcode: int = 0
        self.rx_bad_request: int = 0  # lengths or order of a message's packets are wrong
        self.rx_bad_rkey: int = 0  # no such rkey, or outside its region
        self.rx_not_connected: int = 0  # the QP waits for its peer's parameters
        self.rx_qp_error: int = 0  # the QP is in ERROR

    def as_dict(self) -> dict[str, int]:
        return {
            "tx_packets": self.data_tx + self.acks_tx + self.naks_tx + self.cnps_tx,
            "data_tx": self.data_tx,
            "retransmitted": self.retransmitted,
            "acks_tx": self.acks_tx,
            "naks_tx": self.naks_tx,
            "cnps_tx": self.cnps_tx,
            "tx_refused": self.tx_refused,
            "tx_payload_bytes": self.tx_payload_bytes,
            "go_backs": self.go_backs,
            "rtos": self.rtos,
            "reroutes": self.reroutes,
            "rx_packets": self.rx_packets,
            "rx_other": self.rx_other,
            "data_rx": self.data_rx,
            "rx_payload_bytes": self.rx_payload_bytes,
            "rx_duplicate": self.rx_duplicate,
            "rx_out_of_order_dropped": self.rx_out_of_order_dropped,
            "rx_receiver_not_ready": self.rx_receiver_not_ready,
            "acks_rx": self.acks_rx,
            "naks_rx": self.naks_rx,
            "cnps_rx": self.cnps_rx,
            "marked_rx": self.marked_rx,
            "rx_stale_response": self.rx_stale_response,
            "rx_bad_length": self.rx_bad_length,
            "rx_bad_icrc": self.rx_bad_icrc,
            "rx_bad_address": self.rx_bad_address,
            "rx_bad_pkey": self.rx_bad_pkey,
            "rx_bad_qp": self.rx_bad_qp,
            "rx_bad_source": self.rx_bad_source,
            "rx_bad_opcode": self.rx_bad_opcode,
            "rx_bad_request": self.rx_bad_request,
            "rx_bad_rkey": self.rx_bad_rkey,
            "rx_not_connected": self.rx_not_connected,
            "rx_qp_error": self.rx_qp_error,
        }
