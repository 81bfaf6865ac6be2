"""The judge: what a peer's frames say against the page. It never raises and changes nothing that
the endpoint decides by.

Nothing is judged that loss, reordering, duplication, trimming or falling ports could excuse. Each
line begins with the page's section.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.second import codec
from tests.second.codec import Packet
from tests.second.model import KEEP, Facts, Peer, Qp, Record, Sent, add, diff, unit_ps

DATA_FIELDS = (
    "BTH.opcode",
    "METH.rqmsn",
    "METH.msn",
    "RETH.va",
    "RETH.rkey",
    "RETH.dmalen",
    "Imm.imm",
)


@dataclass
class View:
    """What the judge remembers of one queue pair."""

    # count of bytes, cumulative PSN, window's edge of the newest SACK
    newest: tuple[int, int, int] | None = None
    # our PSN -> least count of a SACK that showed it
    arrived: dict[int, int] = field(default_factory=dict)
    # the peer's probes: id -> EV, timestamp
    probes: dict[int, tuple[int, int]] = field(default_factory=dict)
    before: Record | None = None  # the data packet before, in order
    va: int = 0  # where the next payload of this message belongs
    left: int = 0  # bytes of this message not seen yet


class Judge:
    def __init__(self, facts: Facts, violations: list[str]) -> None:
        self.facts, self.violations = facts, violations
        self.unit = unit_ps(facts.base_rtt_ps)
        self.views: defaultdict[int, View] = defaultdict(View)

    def say(self, text: str) -> None:
        if len(self.violations) < 10000:
            self.violations.append(text)

    def want(self, section: str, what: str, seen: int, *expected: int) -> None:
        if seen not in expected:
            self.say(
                f"{section}: {what} is {seen:#x}, expected "
                f"{' or '.join(f'{one:#x}' for one in expected)}"
            )

    def low_qpns(self, qp: Qp, p: Packet, name: str) -> None:
        self.want("4", f"{name}.sender", p[f"{name}.sender"], qp.rqpn & 0xFFFF)
        self.want("4", f"{name}.receiver", p[f"{name}.receiver"], qp.qpn & 0xFFFF)

    def held(self, now: int, what: str, stamp: int, sent: list[Sent]) -> None:
        """A timestamp echoed is one of those sent plus the time for which it was held; two units
        for rounding."""
        ages = [(now - one.at) // self.unit for one in sent]
        if max(ages) < 30000 and not any(
            -1 <= diff(stamp, one.stamp, 16) <= age + 2 for one, age in zip(sent, ages, strict=True)
        ):
            self.say(
                f"4: {what} echoes {stamp:#x}, which was sent {ages} units ago as "
                f"{[one.stamp for one in sent]}"
            )

    # any frame

    def arrival(self, plane: int, p: Packet, evs: list[int]) -> None:
        """Sections 3 and 4: addresses, hop limit, class and ECN of a frame that came in by
        `plane`."""
        for text in p.odd:
            self.say(text)
        self.want("3", "the plane that a frame came by", plane, p.ev >> 16)
        if p.ev not in evs:
            self.say(f"3: EV {p.ev:#x} is no path between the two hosts")
            return
        # as long as the way back; each uSID that is gone took one off the hop limit
        path = self.facts.outer(p.src, p.ev)
        whole, rest = (
            sum(a[i : i + 2] != b"\0\0" for i in range(4, 16, 2)) for a in (path, p.outer_dst)
        )
        last = codec.number(p.outer_dst[2 + 2 * rest : 4 + 2 * rest]) if rest else 0
        if p.outer_dst[:4] != path[:4] or last >> 10 != (p.ev >> 16) << 2 | 3:
            self.say(
                f"addressing: outer destination {p.outer_dst.hex()} is no downlink of plane "
                f"{p.ev >> 16} in block {path[:4].hex()}"
            )
        self.want(
            "addressing",
            f"outer hop limit with {rest} of {whole} uSIDs left",
            p.hops,
            64 - (whole - rest),
        )
        self.classes(p)

    def classes(self, p: Packet) -> None:
        """Section 4, DSCP classes; section 3, ECN. Retransmissions (and tail probes) may have the
        high class of section 6."""
        plain, again = (
            (codec.TRIMMABLE, codec.TRIMMABLE_RETX)
            if self.facts.trimming
            else (codec.NO_TRIM, codec.NO_TRIM)
        )
        dscps: tuple[int, ...] = (codec.CONTROL,)
        if p.opcode in codec.WRITES:
            dscps = (again, codec.RETX_HIGH) if p["BTH.rtx"] else (plain,)
        elif p.opcode == codec.PROBE:
            dscps = (plain, codec.RETX_HIGH)
        name, ecn = f"{p.opcode:#x}", 0 if dscps == (codec.CONTROL,) else 2
        self.want("4", f"inner DSCP of {name}", p.inner_class >> 2, *dscps)
        self.want("3", f"inner ECN of {name}", p.inner_class & 3, ecn)
        self.want("3", f"outer ECN of {name}", p.ecn, ecn, ecn and 3)
        if not p.trimmed:
            self.want("3", f"outer DSCP of {name}", p.dscp, p.inner_class >> 2)
        elif not self.facts.trimming:
            self.say("4: a trimmed packet on a fabric that does not trim")

    # the peer's data, and its probes

    def write(self, now: int, qp: Qp, p: Packet) -> None:
        """A data packet, before the responder looks at it."""
        psn, rtx, stamp = p["BTH.psn"], p["BTH.rtx"], p["TSETH.timestamp"]
        if diff(psn, qp.cum) > qp.mpr or diff(psn, qp.rfirst) < 0:
            self.say(
                f"6: PSN {psn:#x}: the first was {qp.rfirst:#x}, the cumulative one is "
                f"{qp.cum:#x}, the window told {qp.mpr}"
            )
        record = qp.records.get(psn)
        if record is None:
            return
        if not p.trimmed and (
            len(p.payload) != record.length
            or any(p.values.get(f) != record.values.get(f) for f in DATA_FIELDS)
        ):
            self.say(f"6: PSN {psn:#x} came again and is another packet")
        for other, was, ev, at in record.copies:
            late = diff(stamp, was, 16)
            if now - at > 64 * self.facts.base_rtt_ps:
                continue
            if not rtx and not other and (late, p.ev) != (0, ev):
                self.say(
                    f"4: PSN {psn:#x} was sent twice without rtx, on EVs {ev:#x} and {p.ev:#x}, "
                    f"{late} units apart"
                )
            if (not rtx and other and late > 0) or (rtx and not other and late < 0):
                self.say(f"4: PSN {psn:#x} has rtx in its first transmission")

    def order(self, qp: Qp, record: Record) -> None:
        """A valid data packet whose turn it is by PSN: address, rkey and length go on; first
        transmissions leave in this order."""
        view, values, length = self.views[qp.qpn], record.values, record.length
        before = view.before
        if values["BTH.opcode"] in codec.STARTS:
            view.va, view.left = values["RETH.va"], values["RETH.dmalen"]
        elif before is not None:
            self.want("1", "rkey within a message", values["RETH.rkey"], before.values["RETH.rkey"])
            self.want(
                "1", "dmalen within a message", values["RETH.dmalen"], before.values["RETH.dmalen"]
            )
        self.want("1", "va, which advances with the PSN,", values["RETH.va"], view.va)
        if values["BTH.opcode"] in codec.ENDS:
            self.want("1", "length of a message's last packet", length, view.left)
        view.va, view.left, view.before = view.va + length, max(0, view.left - length), record
        if before is not None:
            (rtx0, stamp0, _, at0), (rtx1, stamp1, _, at1) = before.copies[0], record.copies[0]
            if (
                not rtx0
                and not rtx1
                and abs(at1 - at0) < 64 * self.facts.base_rtt_ps
                and diff(stamp1, stamp0, 16) < 0
            ):
                self.say(f"4: timestamps run backwards, {stamp0:#x} then {stamp1:#x} one PSN later")

    def probe(self, qp: Qp, p: Packet) -> None:
        self.want("4", "PSN of a Reliability Probe", p["BTH.psn"], 0)
        self.low_qpns(qp, p, "PETH")
        probes, pid, mine = self.views[qp.qpn].probes, p["PETH.id"], (p.ev, p["PETH.timestamp"])
        last = next(reversed(probes), qp.rfirst % 32767 + 1)
        if not 1 <= pid <= 32767 or abs(diff(pid, last, 15)) > 1000:
            self.say(f"4: Reliability Probe {pid} does not count on from {last}")
        if probes.setdefault(pid, mine) != mine:
            self.say(f"4: id {pid} was given to two Reliability Probes")
        if len(probes) > 1000:
            del probes[next(iter(probes))]

    # what answers our data

    def sack(self, now: int, qp: Qp, p: Packet) -> None:
        view, cum, count, ooo = (
            self.views[qp.qpn],
            p["SETH.cum"],
            p["CC_STATE.bytes"],
            p["CC_STATE.ooo"],
        )
        self.want("4", "cumulative PSN in the SETH", cum, p["BTH.psn"])
        self.low_qpns(qp, p, "SETH")
        self.want("4", "SETH.m", p["SETH.m"], 0, 1, 2)
        if diff(cum, qp.last_sent) > 0 or diff(cum, qp.first) < -1:
            self.say(
                f"4: cumulative PSN {cum:#x} is outside of what was sent, {qp.first:#x} to "
                f"{qp.last_sent:#x}"
            )
            return
        if p["SETH.pr"]:
            self.probe_answer(now, qp, p)
        else:
            self.trigger(now, qp, p)
        here = self.bitmap(qp, view, p)
        known = {
            psn
            for psn, since in view.arrived.items()
            if diff(psn, cum) > 0 and diff(count, since) > 0
        } | here
        most = max(0, diff(qp.last_sent, cum) - 1)
        if not len(known) <= ooo <= most:
            self.say(f"4: {ooo} packets above the cumulative PSN, expected {len(known)} to {most}")
        self.progress(view, cum, count, add(cum, 128 * p["SETH.window"]))
        for psn in here:
            if psn not in view.arrived or diff(count, view.arrived[psn]) < 0:
                view.arrived[psn] = count
        for psn in [psn for psn in view.arrived if diff(psn, cum) < -KEEP]:
            del view.arrived[psn]

    def bitmap(self, qp: Qp, view: View, p: Packet) -> set[int]:
        """PSNs above the cumulative one that the bitmap shows; what it says must agree with itself
        and with older SACKs."""
        cum, base, bits, here = p["SETH.cum"], diff(p["SETH.base"], 0, 16), p["SETH.bitmap"], set()
        if base < 1:
            self.say(f"10: the bitmap begins at {base} from the cumulative PSN")
        for offset in range(max(base, 1), base + 64):
            psn = add(cum, offset)
            if bits >> (offset - base) & 1:
                here.add(psn)
                if offset == 1 or diff(psn, qp.last_sent) > 0:
                    self.say(
                        f"5: the bitmap shows PSN {psn:#x}, which was not sent or is next to the "
                        "cumulative one"
                    )
            elif psn in view.arrived and diff(p["CC_STATE.bytes"], view.arrived[psn]) > 0:
                self.say(f"5: the bitmap misses PSN {psn:#x}, which an older SACK showed")
        return here

    def progress(self, view: View, cum: int, count: int, edge: int) -> None:
        """Section 5: the count of bytes orders SACKs; cumulative PSN and window's edge only
        advance."""
        old = view.newest or (count, cum, edge)
        later, more = diff(count, old[0]), diff(cum, old[1])
        if later * more < 0:
            self.say(
                f"5: cumulative PSN {cum:#x} at count {count}, but {old[1]:#x} at count {old[0]}"
            )
        if later > 0 and diff(edge, old[2]) < 0:
            self.say(f"5: the receive window's edge was taken back from {old[2]:#x} to {edge:#x}")
        if later > 0 or (later == 0 and more > 0) or view.newest is None:
            view.newest = count, cum, edge

    def trigger(self, now: int, qp: Qp, p: Packet) -> None:
        """EV, rtx and timestamp of a SACK are of one transmission of the trigger. Offset 0 may be
        any trigger that does not fit."""
        offset, ev, rtx = diff(p["SETH.offset"], 0, 16), p["SETH.ev"], p["BTH.rtx"]
        psn = add(p["SETH.cum"], offset)
        if offset and (diff(psn, qp.last_sent) > 0 or diff(psn, qp.first) < 0):
            self.say(f"4: a SACK's trigger is PSN {psn:#x}, which was not sent")
            return
        fits = [one for one in qp.log.get(psn, []) if (one.ev, one.rtx) == (ev, rtx)]
        if not fits and psn in qp.log and (offset or diff(qp.last_sent, qp.first) < 32768):
            self.say(
                f"4: a SACK names EV {ev:#x}, rtx {rtx} for PSN {psn:#x}, which was never sent so"
            )
        elif fits:
            self.held(now, "a SACK", p["CC_STATE.timestamp"], fits)

    def probe_answer(self, now: int, qp: Qp, p: Packet) -> None:
        probe = qp.probes.get(p["SETH.offset"])
        if probe is None:
            self.say(f"4: an answer to Reliability Probe {p['SETH.offset']}, which was never sent")
            return
        self.want("4", "EV that an answer to a probe names", p["SETH.ev"], probe.ev)
        self.want("4", "EV by which an answer to a probe comes", p.ev, probe.ev)
        self.held(now, "an answer to a probe", p["CC_STATE.timestamp"], [probe])

    def nack(self, qp: Qp, p: Packet) -> None:
        """A NACK names one transmission of a packet, or a probe, by PSN or id, EV and timestamp."""
        psn, reason = p["NETH.psn"], p["NETH.reason"]
        self.want("4", "PSN in the NETH", psn, p["BTH.psn"])
        self.want(
            "4",
            "reason of a NACK",
            reason,
            *((1, 2) if self.facts.trimming else ()),
            6,
            7,
            10,
            11,
            25,
        )
        self.low_qpns(qp, p, "NETH")
        tries = qp.log.get(psn, []) + (
            [qp.probes[psn]] if psn in qp.probes and reason == 25 else []
        )
        old = diff(psn, qp.last_sent) < -KEEP // 2 and diff(psn, qp.first) >= 0
        if not old and all(
            (one.ev, one.stamp) != (p["NETH.ev"], p["NETH.timestamp"]) for one in tries
        ):
            self.say(
                f"4: a NACK names PSN {psn:#x} on EV {p['NETH.ev']:#x} at "
                f"{p['NETH.timestamp']:#x}, which was never sent so"
            )

    def ack(self, qp: Qp, p: Packet) -> None:
        """Section 4: an ACK's PSN is the last of the last message completed, and its MSN counts
        those completed."""
        psn, msn = p["BTH.psn"], p["AETH.msn"]
        self.want("4", "syndrome of an ACK", p["AETH.syndrome"], 0x1F, 0x61, 0x62, 0x63)
        if diff(msn, qp.posted) > 0:
            self.say(f"1: an ACK of {msn} messages, {qp.posted} were posted")
        elif msn in qp.ends or not msn:
            self.want(
                "4", f"PSN of an ACK of {msn} messages", psn, qp.ends.get(msn, add(qp.first, -1))
            )

    # endpoint operations

    def request(self, plane: int, p: Packet) -> None:
        self.want("4", "QPN of an endpoint request", p["BTH.qpn"], 2)
        self.want(
            "4", "operation of a request with such an id", p["ERTH.operation"], p["BTH.psn"] >> 15
        )
        if not p["BTH.psn"] >> 15 and not p["ERTH.mask"] >> plane & 1:
            self.say(f"7: a Port Status Update came over plane {plane}, whose port it says is down")

    def response(self, now: int, peer: Peer, p: Packet) -> None:
        self.want("4", "QPN of an endpoint response", p["BTH.qpn"], 2)
        self.want("4", "operation of an endpoint response", p["EETH.operation"], p["BTH.psn"] >> 15)
        copies = [one for one in peer.asked.get(p["BTH.psn"], []) if one.ev == p.ev]
        if copies:
            self.held(now, "an endpoint response", p["EETH.timestamp"], copies)
        else:
            self.say(
                f"4: an endpoint response to {p['BTH.psn']:#x} on EV {p.ev:#x}, which was never "
                "asked so"
            )
