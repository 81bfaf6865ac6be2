"""The sender's half of an endpoint: what may go, losses, paths (sections 2, 6, 7).

Of the rules for losses it has *time*, *rto*, and trims by NACK. Windows are fixed; no hold,
backups, suspect planes or congestion control.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable

from tests.second import codec
from tests.second.codec import Packet
from tests.second.judge import Judge
from tests.second.model import (
    KEEP,
    Completion,
    Facts,
    Message,
    Out,
    Path,
    Peer,
    Plane,
    Qp,
    Sent,
    add,
    diff,
    unit_ps,
)

PACE = 0.98
WIRE_EXTRA = 24  # preamble, FCS and gap of a frame, bytes
CAUSES = {0x61: "invalid", 0x62: "access", 0x63: "operation"}


class Requester:
    def __init__(self, facts: Facts, seed: int = 0) -> None:
        self.facts = facts
        self.random = random.Random(seed * 1000003 + facts.host)
        self.violations: list[str] = []
        self.counters: Counter[str] = Counter()
        self.judge = Judge(facts, self.violations)
        self.unit = unit_ps(facts.base_rtt_ps)
        self.rto = 1_024_000 * 2**7  # 1.024 us x 2^7
        self.qps: dict[int, Qp] = {}
        self.peers: dict[int, Peer] = {}
        self.regions: dict[int, tuple[int, memoryview]] = {}
        self.ports = [True] * facts.planes
        self.free_at = [0] * facts.planes  # when all that a port was given has left, at its pace
        self.control: list[deque[Callable[[int], bytes]]] = [deque() for _ in range(facts.planes)]
        self.probing: list[deque[Callable[[int], bytes]]] = [deque() for _ in range(facts.planes)]
        self.done: list[Completion] = []
        self.turn = 0
        self.now = 0  # of the last transmit()

    # small things

    def stamp(self, now: int) -> int:
        return now // self.unit & 0xFFFF

    def frame(
        self, peer: int, ev: int, dscp: int, values: dict[str, int], payload: bytes = b""
    ) -> bytes:
        f, ecn = self.facts, 0 if dscp == codec.CONTROL else 2
        return codec.build(
            f.host, peer, ev, f.outer(peer, ev), dscp, ecn, f.udp_port, values, payload
        )

    def both_up(self, host: int, plane: int) -> bool:
        return self.ports[plane] and bool(self.peers[host].mask >> plane & 1)

    def path(self, qp: Qp, ev: int) -> Path | None:
        return next((path for plane in qp.planes for path in plane.paths if path.ev == ev), None)

    def usable(self, plane: Plane) -> list[Path]:
        return [
            one
            for one in plane.paths
            if plane.state == "USED" and one.state != "ASSUMED_BAD" and one.doubt_at is None
        ]

    def live(self, qp: Qp) -> list[int]:
        return [index for index, plane in enumerate(qp.planes) if self.usable(plane)]

    def start(self, now: int, qp: Qp) -> None:
        """A queue pair goes to RTS: all its EVs are in use, its rotation begins at a plane of its
        own."""
        evs = self.facts.evs(qp.peer)
        for index in range(self.facts.planes):
            qp.planes.append(Plane([Path(ev) for ev in evs if ev >> 16 == index]))
            self.random.shuffle(qp.planes[index].paths)
            self.check_plane(now, qp, index)
        qp.turns = [(self.facts.host + len(self.qps) + n) % self.facts.planes for n in range(2)]
        qp.reverse = self.random.randrange(self.facts.planes)
        qp.next_probe = qp.first % 32767 + 1
        qp.srtt, qp.state = self.facts.base_rtt_ps, "RTS"

    def post_write(
        self, qpn: int, wr_id: int, data: bytes, va: int, rkey: int, imm: int | None = None
    ) -> None:
        """Cut a message into packets (section 1): all full but the last, one for a message without
        bytes."""
        qp = self.qps[qpn]
        if qp.state != "RTS":
            self.done.append(Completion(qpn, wr_id, "write", "flushed", imm, len(data)))
            return
        for start in range(0, max(1, len(data)), self.facts.mtu):
            last = start + self.facts.mtu >= len(data)
            opcode = (
                (codec.LAST if start else codec.ONLY)
                if last
                else (codec.MIDDLE if start else codec.FIRST)
            )
            values = {
                "BTH.qpn": qp.rqpn,
                "BTH.psn": qp.next_psn,
                "METH.msn": qp.posted,
                "METH.rqmsn": qp.posted_imm,
            }
            values |= {
                "BTH.opcode": opcode,
                "RETH.va": va + start,
                "RETH.rkey": rkey,
                "RETH.dmalen": len(data),
            }
            if last and imm is not None:
                values |= {"BTH.opcode": opcode + 1, "Imm.imm": imm}
            qp.fresh.append(Out(qp.next_psn, values, data[start : start + self.facts.mtu]))
            qp.next_psn = add(qp.next_psn, 1)
        qp.posted, qp.posted_imm = add(qp.posted, 1), qp.posted_imm + (imm is not None)
        qp.messages.append(Message(wr_id, add(qp.next_psn, -1), len(data), imm))
        qp.ends[qp.posted] = add(qp.next_psn, -1)

    # what leaves

    def opens_at(self, plane: int) -> int:
        """Section 6: ports are paced at 98 % of line rate, with two packets of look-ahead."""
        return self.free_at[plane] - round(
            2 * (self.facts.mtu + 200) * 8e12 / (self.facts.nic_rate * PACE)
        )

    def leave(self, now: int, plane: int, frame: bytes) -> tuple[int, bytes]:
        self.free_at[plane] = max(self.free_at[plane], now) + round(
            (len(frame) + WIRE_EXTRA) * 8e12 / (self.facts.nic_rate * PACE)
        )
        return plane, frame

    def data(self, now: int, qp: Qp, rtx: int) -> tuple[int, bytes] | None:
        """The next packet of a queue pair, if window, immediates, paths and the port allow one."""
        out = (
            next((one for one in qp.flight.values() if one.lost), None)
            if rtx
            else next(iter(qp.fresh), None)
        )
        if qp.state != "RTS" or out is None or diff(out.psn, qp.edge) > 0:
            return None
        flying = Counter(one.tries[-1].ev for one in qp.flight.values() if not one.lost)
        if flying.total() >= self.facts.window_packets:
            return None
        live = self.live(qp)
        if rtx and len(live) > 1:  # on another plane than before
            live = [index for index in live if index != out.tries[-1].ev >> 16]
        if not live:
            return None
        index = min(live, key=lambda one: (one - qp.turns[rtx]) % self.facts.planes)
        plane = qp.planes[index]
        share = -(-self.facts.window_packets // (len(live) * len(self.usable(plane)))) + 1
        if not self.ports[index] or now < self.opens_at(index):
            return None
        path = self.choose(
            plane, [one for one in self.usable(plane) if rtx or flying[one.ev] < share]
        )
        if path is None:
            return None
        qp.turns[rtx] = (index + 1) % self.facts.planes
        return self.leave(now, index, self.send(now, qp, out, path, rtx))

    def choose(self, plane: Plane, fit: list[Path]) -> Path | None:
        """Section 2: round a lap in which two neighbours change places each time; a packet passes
        over one SKIP EV, which is GOOD then."""
        restored = False
        for _ in range(2 * len(plane.paths)):
            path = plane.paths[plane.turn]
            plane.turn = (plane.turn + 1) % len(plane.paths)
            if not plane.turn and len(plane.paths) > 2:
                n = self.random.randrange(len(plane.paths) - 1)
                plane.paths[n], plane.paths[n + 1] = plane.paths[n + 1], plane.paths[n]
            if path in fit and path.state == "GOOD":
                return path
            if path in fit and not restored:
                path.state, restored = "GOOD", True
        return None

    def send(self, now: int, qp: Qp, out: Out, path: Path, rtx: int) -> bytes:
        one = Sent(path.ev, self.stamp(now), rtx, now)
        out.lost = False
        out.tries.append(one)
        if not rtx:
            qp.flight[out.psn] = qp.fresh.popleft()
            qp.last_sent, qp.log[out.psn] = out.psn, out.tries
            qp.log.pop(add(out.psn, -KEEP), None)
        if qp.rto_at is None:
            qp.rto_at = now + self.rto
        if qp.silent_at is None:
            self.listen(now, qp)
        dscp = (
            (codec.TRIMMABLE_RETX if rtx else codec.TRIMMABLE)
            if self.facts.trimming
            else codec.NO_TRIM
        )
        self.counters["tx_rtx" if rtx else "tx_data"] += 1
        values = out.values | {
            "BTH.rtx": rtx,
            "BTH.a": int(not qp.fresh),
            "TSETH.timestamp": one.stamp,
        }
        return self.frame(qp.peer, path.ev, dscp, values, out.payload)

    def probe(self, qp: Qp, ev: int, path: Path | None = None) -> None:
        """Queue a Reliability Probe on `ev`; `path` is the EV that it is to prove. Ids count in the
        order of leaving."""

        def make(now: int) -> bytes:
            pid, stamp = qp.next_probe, self.stamp(now)
            qp.next_probe = pid % 32767 + 1
            qp.probes[pid], qp.waiting[pid] = Sent(ev, stamp, 0, now), path
            if len(qp.probes) > KEEP:
                old = next(iter(qp.probes))
                del qp.probes[old]
                qp.waiting.pop(old, None)
            values = {
                "BTH.opcode": codec.PROBE,
                "BTH.qpn": qp.rqpn,
                "PETH.id": pid,
                "PETH.timestamp": stamp,
            }
            self.counters["tx_probes"] += 1
            dscp = codec.TRIMMABLE if self.facts.trimming else codec.NO_TRIM
            return self.frame(
                qp.peer, ev, dscp, values | {"PETH.sender": qp.qpn, "PETH.receiver": qp.rqpn}
            )

        if self.ports[ev >> 16]:
            self.probing[ev >> 16].append(make)

    # time

    def tick_qp(self, now: int, qp: Qp) -> None:
        rtt = self.facts.base_rtt_ps
        for plane in qp.planes:
            if plane.state == "PROVING" and now >= plane.at:
                plane.at = now + rtt
                self.probe(qp, self.random.choice(plane.paths).ev)
            for path in plane.paths:
                if path.doubt_at is not None and now >= path.doubt_at:
                    self.give_up(now, qp, path)
                if path.state == "ASSUMED_BAD" and plane.state == "USED" and now >= path.probe_at:
                    path.probe_at = now + round(path.gap * self.random.uniform(0.75, 1.25))
                    path.gap = min(2 * path.gap, 4 * rtt)
                    self.probe(qp, path.ev, path)
        if not qp.flight and not any(diff(one.last, qp.last_sent) <= 0 for one in qp.messages):
            qp.rto_at = qp.silent_at = None
        if qp.silent_at is not None and now >= qp.silent_at:
            self.silence(now, qp)
        if qp.rto_at is not None and now >= qp.rto_at:
            self.timeout(now, qp)

    def times(self, qp: Qp) -> list[int | None]:
        """When tick_qp() has something to do."""
        times = [
            qp.silent_at,
            qp.rto_at,
            *(plane.at for plane in qp.planes if plane.state == "PROVING"),
        ]
        for plane in qp.planes:
            times += [path.doubt_at for path in plane.paths]
            times += [
                path.probe_at
                for path in plane.paths
                if path.state == "ASSUMED_BAD" and plane.state == "USED"
            ]
        return times

    def listen(self, now: int, qp: Qp) -> None:
        qp.silent_gap = 2 * qp.srtt
        qp.silent_at = now + qp.silent_gap

    def silence(self, now: int, qp: Qp) -> None:
        """Section 6: probes on the oldest packet's EV and on another plane, then after twice as
        long on other planes in turn."""
        used = next((out.tries[-1].ev for out in qp.flight.values()), None)
        if used is not None:
            self.probe(qp, used)
        others = [
            path.ev
            for plane in qp.planes
            for path in self.usable(plane)
            if used is None or path.ev >> 16 != used >> 16
        ]
        if others:
            self.probe(qp, self.random.choice(others))
        qp.silent_gap *= 2
        qp.silent_at = now + qp.silent_gap

    def timeout(self, now: int, qp: Qp) -> None:
        """Section 6, rule 4: seven firings at one interval, five doubling; the thirteenth, as far
        again as the last, is the end."""
        qp.firings += 1
        if qp.firings > 12:
            self.break_qp(qp, "retries")
            return
        self.counters["timeouts"] += 1
        qp.rto_at = now + self.rto * 2 ** min(max(0, qp.firings - 6), 5)
        oldest = next(iter(qp.flight.values()), None)
        if oldest is not None and not oldest.lost:
            self.lose(now, qp, oldest)

    # losses and paths

    def lose(self, now: int, qp: Qp, out: Out) -> None:
        """A verdict of loss. Where switches trim, the EV is given up only if no NACK comes; where
        not, the first loss may be congestion."""
        out.lost = True
        self.counters["verdicts"] += 1
        path = self.path(qp, out.tries[-1].ev)
        if path is None or path.state == "ASSUMED_BAD":
            return
        path.losses += 1
        if self.facts.trimming:
            path.doubt_at = now + max(1, qp.srtt // 4) if path.doubt_at is None else path.doubt_at
        elif path.losses == 1:
            path.state = "SKIP"
        else:
            self.give_up(now, qp, path)

    def give_up(self, now: int, qp: Qp, path: Path) -> None:
        """Section 7: out of use, but for the last quarter of the EVs on open planes."""
        path.doubt_at = None
        wanted = sum(len(plane.paths) for plane in qp.planes if plane.state == "USED")
        if sum(len(self.usable(plane)) for plane in qp.planes) - 1 < -(-wanted // 4):
            path.state = "SKIP"
            return
        path.state, path.bad_at, path.clean, path.gap = (
            "ASSUMED_BAD",
            now,
            0,
            self.facts.base_rtt_ps,
        )
        path.probe_at = now + qp.srtt
        self.counters["paths_bad"] += 1

    def check_plane(self, now: int, qp: Qp, index: int) -> None:
        """Section 7, planes: closed with either port, opened with both; what was in flight on a
        closed one goes again."""
        if index >= len(qp.planes):
            return
        plane, up = qp.planes[index], self.both_up(qp.peer, index)
        if not up and plane.state != "DOWN":
            plane.state = "DOWN"
            for out in qp.flight.values():
                out.lost |= out.tries[-1].ev >> 16 == index
            for path in plane.paths:
                path.doubt_at = None
        elif up and plane.state == "DOWN":
            alone = all(other.state != "USED" for other in qp.planes)
            plane.state, plane.at = (
                "PROVING",
                now if alone else now + 2 * qp.srtt * 2 ** min(plane.flaps, 6),
            )
            plane.flaps += 1

    def break_qp(self, qp: Qp, cause: str, flushed: str = "flushed") -> None:
        """ERROR: the first outstanding request gets the cause, all others are flushed (section
        1)."""
        qp.state = "ERROR"
        for message in qp.messages:
            self.done.append(
                Completion(qp.qpn, message.wr_id, "write", cause, message.imm, message.length)
            )
            cause = "flushed"
        for wr_id in qp.receives:
            self.done.append(Completion(qp.qpn, wr_id, "receive", flushed, None, 0))
            flushed = "flushed"
        for holder in (qp.messages, qp.receives, qp.fresh, qp.flight):
            holder.clear()

    # what comes back

    def progress(self, now: int, qp: Qp, moved: bool) -> None:
        """Something answered: the silence is over; if it brought anything new, the timer starts
        again, too."""
        if qp.silent_at is not None:
            self.listen(now, qp)
        if moved and qp.rto_at is not None:
            qp.firings, qp.rto_at = 0, now + self.rto

    def arrived(self, qp: Qp, out: Out) -> None:
        del qp.flight[out.psn]
        # which copy came is not known: the earliest
        qp.latest_arrival = max(qp.latest_arrival, out.tries[0].at)

    def on_sack(self, now: int, qp: Qp, p: Packet) -> None:
        self.judge.sack(now, qp, p)
        cum, count, bits, base = (
            p["SETH.cum"],
            p["CC_STATE.bytes"],
            p["SETH.bitmap"],
            diff(p["SETH.base"], 0, 16),
        )
        if diff(cum, qp.last_sent) > 0 or diff(cum, qp.first) < -1:
            self.counters["bad_sacks"] += 1
            return
        edge = add(cum, 128 * p["SETH.window"])
        if diff(edge, qp.edge) > 0:
            qp.edge = edge
        if p["SETH.pr"]:
            self.on_answer(now, qp, p)
        else:
            self.on_trigger(now, qp, p)
        shown = {add(cum, base + n): bits >> n & 1 for n in range(64)}
        come = [out for out in qp.flight.values() if diff(out.psn, cum) <= 0 or shown.get(out.psn)]
        for out in come:
            self.arrived(qp, out)
        self.progress(now, qp, bool(come))
        if qp.newest is None or diff(count, qp.newest) >= 0:
            qp.newest = count
            everything = (
                sum(bit for psn, bit in shown.items() if diff(psn, cum) > 0) == p["CC_STATE.ooo"]
            )
            self.verdicts(
                now,
                qp,
                [
                    out
                    for out in qp.flight.values()
                    if not out.lost and (everything or shown.get(out.psn) == 0)
                ],
            )

    def verdicts(self, now: int, qp: Qp, missing: list[Out]) -> None:
        """Section 6, rule 2: something sent later has arrived, and the packet is older than RTTs
        and reordering explain."""
        rtts, unit = qp.rtts or [qp.srtt], self.facts.base_rtt_ps
        patience = max(rtts) + min(max(max(rtts) - min(rtts), unit), 4 * unit)
        for out in missing:
            if out.tries[-1].at < qp.latest_arrival and now - out.tries[-1].at > patience:
                self.lose(now, qp, out)

    def on_trigger(self, now: int, qp: Qp, p: Packet) -> None:
        """A SACK's mark, RTT sample and proof that its trigger's EV works."""
        path = self.path(qp, p["SETH.ev"])
        if path is None:
            return
        qp.proven[path.ev] = now
        if p["SETH.m"] and path.state == "GOOD":
            path.state = "SKIP"
        if p["SETH.m"] == 2 and path.state != "ASSUMED_BAD":
            self.give_up(now, qp, path)
        elif not p["BTH.rtx"]:
            path.losses = 0
        out = qp.flight.get(add(p["SETH.cum"], diff(p["SETH.offset"], 0, 16)))
        if out is not None and len(out.tries) == 1 + p["BTH.rtx"] and out.tries[-1].ev == path.ev:
            rtt = max(1, diff(self.stamp(now), p["CC_STATE.timestamp"], 16)) * self.unit
            qp.rtts.append(rtt)
            qp.srtt += (rtt - qp.srtt) // 8

    def on_answer(self, now: int, qp: Qp, p: Packet) -> None:
        """A Reliability Probe came back: its plane works, and three clean answers in a row prove
        its EV."""
        pid = p["SETH.offset"]
        if pid not in qp.waiting or qp.probes[pid].ev != p["SETH.ev"]:
            return
        path, sent = qp.waiting.pop(pid), qp.probes[pid]
        plane = qp.planes[sent.ev >> 16]
        qp.proven[sent.ev] = now
        if plane.state == "PROVING":
            plane.state = "USED"
        # one that was not trimmed queued behind the data: something sent later has arrived
        if not p["SETH.m"]:
            qp.latest_arrival = max(qp.latest_arrival, sent.at)
        if path is not None and path.state == "ASSUMED_BAD" and sent.at > path.bad_at:
            path.clean = 0 if p["SETH.m"] else path.clean + 1
            path.probe_at = min(path.probe_at, now + self.facts.base_rtt_ps)
            if path.clean >= path.need or (path.clean and not self.usable(plane)):
                path.state, path.losses, path.need = "GOOD", 0, min(32, 2 * path.need)
                self.counters["paths_back"] += 1

    def on_nack(self, now: int, qp: Qp, p: Packet) -> None:
        self.judge.nack(qp, p)
        psn, reason, named = p["NETH.psn"], p["NETH.reason"], (p["NETH.ev"], p["NETH.timestamp"])
        out, path = qp.flight.get(psn), self.path(qp, named[0])
        latest = out is not None and (out.tries[-1].ev, out.tries[-1].stamp) == named
        if reason == 0x19:
            if latest or (psn in qp.waiting and (qp.probes[psn].ev, qp.probes[psn].stamp) == named):
                self.break_qp(qp, "unknown")
            else:
                self.counters["bad_nacks"] += 1
            return
        if (
            reason in (1, 2)
            and path is not None
            and any((one.ev, one.stamp) == named for one in qp.log.get(psn, []))
        ):
            path.doubt_at = None  # it was trimmed, not lost
        if out is not None and latest and not out.lost:
            out.lost = True
            self.counters["nacked"] += 1
            if reason == 1 and path is not None and path.state == "GOOD":
                path.state = "SKIP"
        self.progress(now, qp, False)

    def on_ack(self, now: int, qp: Qp, p: Packet) -> None:
        """Section 1: cumulative; with an error syndrome it ends the queue pair, if its PSN is one
        that can be."""
        self.judge.ack(qp, p)
        psn, msn = p["BTH.psn"], p["AETH.msn"]
        count = diff(msn, qp.done)
        beyond = diff(psn, qp.last_sent) > 0 or diff(psn, qp.last_done) < 0
        if (
            beyond
            or not 0 <= count <= len(qp.messages)
            or (count and diff(qp.messages[count - 1].last, psn) > 0)
        ):
            self.counters["old_or_bad_acks"] += 1
            return
        for _ in range(count):
            message = qp.messages.popleft()
            qp.done, qp.last_done = add(qp.done, 1), message.last
            qp.ends.pop(add(qp.done, -KEEP), None)
            self.done.append(
                Completion(qp.qpn, message.wr_id, "write", "ok", message.imm, message.length)
            )
        for out in [one for one in qp.flight.values() if diff(one.psn, qp.last_done) <= 0]:
            self.arrived(qp, out)
        self.progress(now, qp, count > 0)
        if p["AETH.syndrome"] in CAUSES:
            self.break_qp(qp, CAUSES[p["AETH.syndrome"]])
