"""Clustermapper: hosts probe their own corner of the fabric and say which cable loses packets.

What MRC cannot tell by itself is whether a lossy NIC-T0 link is to blame for a path's losses, since every path of that plane takes it at
one end. A host that sends probes to its own T0s and back, and to T1s and back, can (MRC paper: Clustermapper). ``probes`` says which and
when, ``mapper`` sends and judges them, ``localise`` turns counts into links, ``policy`` links into denylist entries. All of it is
sans-IO; the host process and the runner drive it.
"""
