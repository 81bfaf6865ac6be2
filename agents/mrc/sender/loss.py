"""When is a packet lost? The verdicts of one QP, called by the endpoint after every SACK and by its timers.

A verdict needs a SACK not older than the newest seen whose bitmap covers the packet and shows it missing, and one of [ours; the
sources say only that holes are loss and the timer is the backstop]:

1. *order*: something sent after it on the same EV has arrived. An SRv6 path is one FIFO.
2. *time*: something sent after it has arrived, and now >= sent + largest recent RTT + reo_wnd, with
   reo_wnd = clamp(spread of recent RTTs, base RTT, 4 base RTT), growing with verdicts that proved wrong. The largest of any plane: when an
   incast begins all planes' queues grow at once, and one plane's samples come later than another's.
3. *count*, only where nothing is trimmed: so many packets wait at the peer above its edge that the one at the edge must be lost (UET).
4. the retransmission timer.

Where switches trim, the NACK for a trimmed packet can be overtaken by the SACK that shows it missing: the packet goes again and its EV
rests at once, but the path is found guilty, and the window cut, only if no NACK came within a quarter of the smoothed RTT.

A dead path delivers nothing later, so there rule 2 decides; meanwhile path_set.py holds the overdue EV.
"""

from __future__ import annotations

from agents.mrc import wire
from agents.mrc.sender.requester import COUNT, ORDER, RTO, SENT, TIME, Requester
from agents.transport import NEVER


def reorder_window(r: Requester) -> int:
    """How long a packet may be later than its plane's slowest, ns."""
    base = r.config.base_rtt
    return min(max(r.rtt.spread(), base), 4 * base) + r.reo_extra


def too_many(r: Requester) -> int:
    """From how many packets above the peer's edge on rule 3 holds."""
    c = r.config
    largest = 1.5 * c.plane_bdp * max(1, r.paths.live_planes())
    return max(5, int(min(1.5 * r.congestion.cwnd / (c.mtu + wire.COUNTED), largest / (c.mtu + wire.COUNTED), c.mpr / 2)))


def verdicts(r: Requester, now: int, first: int, base: int, bits: int, waiting: int) -> None:
    """Judge what a fresh SACK showed missing: PSNs ``[base, base + bits)`` and ``first``, the one after its own cumulative edge.

    Not our ``una``: a D1 that overtook this SACK may have moved it past what the SACK knows. ``waiting``: its ooo_count.
    """
    if r.touched:
        for path in r.touched if r.config.path_order else ():
            q = path.outstanding
            high = path.seq_high
            while q:
                if r.in_flight_psn(q[0]) >= 0:
                    if q[0] >= high:
                        break
                    r.suspects.append(q[0])
                q.popleft()
        r.touched.clear()
    if r.order_at < r.seq_high:
        limit = r.rtt.largest() + reorder_window(r)
        while r.order_at < r.seq_high:
            psn = r.in_flight_psn(r.order_at)
            if psn >= 0:
                slot = psn % r.size
                if now - r.sent_ns[slot] < limit:
                    break
                r.overdue.append(r.order_at)
            r.order_at += 1
    if r.suspects:
        r.suspects = _judge(r, now, first, base, bits, r.suspects, ORDER, "order")
    if r.overdue:
        r.overdue = _judge(r, now, first, base, bits, r.overdue, TIME, "time")
    if not r.config.trimming and r.una <= first < r.next and waiting >= too_many(r) and r.count[first % r.size] == 1:
        r.lose(now, first, COUNT, "count", True)


def _judge(r: Requester, now: int, first: int, base: int, bits: int, candidates: list[int], rule: int, name: str) -> list[int]:
    left: list[int] = []
    for seq in candidates:
        psn = r.in_flight_psn(seq)
        if psn < 0:
            continue
        if psn == first or base <= psn < base + bits:
            r.lose(now, psn, rule, name, True)
        else:
            left.append(seq)
    return left


def probe_at(r: Requester) -> int:
    """When the next tail probes are due: 2 srtt after progress, then each time after twice as long; NEVER with nothing open."""
    if (r.una >= r.next and not r.messages) or r.starting:
        return NEVER
    return r.progress_ns + (2 * r.rtt.srtt << r.probes_since_progress)


def rto_at(r: Requester) -> int:
    """When the retransmission timer fires: ``linear`` times at a fixed interval, then doubling; NEVER with nothing open."""
    if (r.una >= r.next and not r.messages) or r.starting:
        return NEVER
    c = r.config
    n = r.firings
    # From the last firing, not from one start: a process that slept through several must not spend them all at once.
    since = r.progress_ns if r.progress_ns > r.fired_ns else r.fired_ns
    return since + (c.rto if n < c.linear else c.rto << min(n - c.linear + 1, 32))


def rto(r: Requester, now: int) -> bool:
    """The timer fired: the oldest packet in flight is lost, on another path again. False when the retries are used up."""
    r.firings += 1
    r.fired_ns = now
    c = r.config
    r.log.append((now, "rto", {"peer": r.peer, "psn": r.una & 0xFFFFFF, "firing": r.firings}))
    if r.firings > c.linear + c.exponential and c.exponential < 25:
        return False
    for psn in range(r.una, r.next):
        if r.state[psn % r.size] == SENT:
            r.lose(now, psn, RTO, "rto", True)
            break
    return True
