"""Queue-pair states, and which attributes each transition takes: InfiniBand volume 1, table 96
(RC), as ibv_modify_qp(3) repeats it."""

from __future__ import annotations

from typing import Final

RESET: Final = 0
INIT: Final = 1
RTR: Final = 2
RTS: Final = 3
ERROR: Final = 6
"""enum ibv_qp_state; 4 and 5, SQD and SQE, are refused."""

STATE: Final = 1 << 0
CUR_STATE: Final = 1 << 1
ACCESS: Final = 1 << 3
PKEY_INDEX: Final = 1 << 4
PORT: Final = 1 << 5
AV: Final = 1 << 7
PATH_MTU: Final = 1 << 8
TIMEOUT: Final = 1 << 9
RETRY_CNT: Final = 1 << 10
RNR_RETRY: Final = 1 << 11
RQ_PSN: Final = 1 << 12
MAX_RD_ATOMIC: Final = 1 << 13
ALT_PATH: Final = 1 << 14
MIN_RNR_TIMER: Final = 1 << 15
SQ_PSN: Final = 1 << 16
MAX_DEST_RD_ATOMIC: Final = 1 << 17
PATH_MIG_STATE: Final = 1 << 18
DEST_QPN: Final = 1 << 20
"""enum ibv_qp_attr_mask."""

_INIT: Final = PKEY_INDEX | PORT | ACCESS
_RTR: Final = AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER
_RTS: Final = TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_RD_ATOMIC
TRANSITIONS: Final = {
    (RESET, INIT): (_INIT, 0),
    (INIT, INIT): (0, _INIT),
    (INIT, RTR): (_RTR, ALT_PATH | ACCESS | PKEY_INDEX),
    (RTR, RTS): (_RTS, CUR_STATE | ALT_PATH | ACCESS | MIN_RNR_TIMER | PATH_MIG_STATE),
    (RTS, RTS): (0, CUR_STATE | ACCESS | ALT_PATH | MIN_RNR_TIMER | PATH_MIG_STATE),
}
"""(from, to): attributes that must be there, and those that may; beside STATE."""

FIELDS: Final = {
    CUR_STATE: ("cur_state",),
    ACCESS: ("access",),
    PKEY_INDEX: ("pkey_index",),
    PORT: ("port",),
    PATH_MTU: ("path_mtu",),
    TIMEOUT: ("timeout",),
    RETRY_CNT: ("retry_cnt",),
    RNR_RETRY: ("rnr_retry",),
    RQ_PSN: ("rq_psn",),
    SQ_PSN: ("sq_psn",),
    MAX_RD_ATOMIC: ("max_rd_atomic",),
    MAX_DEST_RD_ATOMIC: ("max_dest_rd_atomic",),
    MIN_RNR_TIMER: ("min_rnr_timer",),
    DEST_QPN: ("dest_qpn",),
    AV: ("dgid_first", "dgid_last", "is_global", "sgid_index", "hop_limit", "traffic_class"),
}


def permitted(before: int, after: int, mask: int) -> bool:
    given = mask & ~STATE
    if after in (RESET, ERROR):
        return given == 0
    must, may = TRANSITIONS.get((before, after), (-1, 0))
    return must >= 0 and given & must == must and given & ~(must | may) == 0
