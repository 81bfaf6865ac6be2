"""The one table of DSCP classes. MRC names the classes; their values are the operator's, here
ours."""

from __future__ import annotations

from typing import Final

# SACK, NACK, ACK, probe answers, endpoint operations: high class on every egress, never trimmed
CONTROL: Final = 48
TRIMMABLE: Final = 10  # data that a switch may trim
NO_TRIM: Final = 12  # data and Reliability Probes where trimming is off
TRIMMABLE_RETX: Final = 14  # retransmitted data that a switch may trim
TRIMMED: Final = 18  # a trimmed packet
TRIMMED_LASTHOP: Final = 20  # one trimmed on its last hop
# retransmitted data before other data, in the class of CONTROL; trimmed where that class is long
RETX_HIGH: Final = 22
ROCE: Final = 26  # the baseline's data: never trimmed, marked on every hop

NAMES: Final = {
    CONTROL: "CONTROL",
    TRIMMABLE: "TRIMMABLE",
    NO_TRIM: "NO_TRIM",
    TRIMMABLE_RETX: "TRIMMABLE_RETX",
    TRIMMED: "TRIMMED",
    RETX_HIGH: "RETX_HIGH",
    TRIMMED_LASTHOP: "TRIMMED_LASTHOP",
    ROCE: "ROCE",
}

ECT0: Final = 2
NOT_ECT: Final = 0
CE: Final = 3
