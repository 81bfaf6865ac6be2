"""Clustermapper: hosts probe their own corner of the fabric and say which cable loses packets.

MRC alone cannot tell whether a NIC-T0 link is to blame: every path of its plane takes it (MRC
paper; docs/why/clustermapper.md).
"""
