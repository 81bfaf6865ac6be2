"""Modules that MRC and RoCE share: DSCPs, the headers before the BTH, the invariant CRC, PSN
arithmetic, registered memory."""
