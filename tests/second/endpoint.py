"""The endpoint: memory, queue pairs, ports, the responder (section 5) and the endpoint operations
(section 7).

Frames and nanoseconds in, frames and deadlines out; nothing here waits or reads a clock. The
sender's half is in requester.py.
"""

from __future__ import annotations

from tests.second import codec
from tests.second.codec import Packet
from tests.second.model import KEEP, Completion, Facts, Peer, Qp, Record, Sent, Trigger, add, diff
from tests.second.requester import CAUSES, Requester

__all__ = ["Completion", "Endpoint", "Facts"]


class Endpoint(Requester):
    def register(self, memory: bytearray | memoryview) -> tuple[int, int]:
        """Let peers write to `memory`: its virtual address and rkey."""
        rkey = next(
            key
            for key in iter(lambda: self.random.randrange(1, 1 << 32), 0)
            if key not in self.regions
        )
        va = (len(self.regions) + 1) << 44 | self.random.randrange(1 << 20) << 12
        self.regions[rkey] = va, memoryview(memory).cast("B")
        return va, rkey

    def create_qp(self, peer: int) -> dict[str, int]:
        """A queue pair in INIT, and what the peer is to be told of it (section 1)."""
        qpn = next(
            one
            for one in iter(lambda: self.random.randrange(16, 1 << 24), 0)
            if one not in self.qps
        )
        self.qps[qpn] = qp = Qp(peer, qpn, self.random.randrange(1 << 24))
        self.peers.setdefault(peer, Peer(peer))
        return {"host": self.facts.host, "qpn": qpn, "psn": qp.first, "mpr": qp.mpr}

    def connect_qp(self, now: int, qpn: int, remote: dict[str, int]) -> None:
        qp = self.qps[qpn]
        if qp.state != "INIT" or remote["host"] != qp.peer:
            raise ValueError(
                "connect_qp needs a queue pair in INIT and the peer that it was made for"
            )
        qp.rqpn, qp.rfirst = remote["qpn"], remote["psn"]
        qp.cum = qp.completed_psn = add(qp.rfirst, -1)
        qp.next_psn, qp.last_sent = qp.first, add(qp.first, -1)
        qp.last_done, qp.edge = qp.last_sent, add(qp.last_sent, remote["mpr"])
        self.start(now, qp)
        if not all(self.ports):
            self.announce(now, self.peers[qp.peer])

    def post_recv(self, qpn: int, wr_id: int) -> None:
        if self.qps[qpn].state == "ERROR":
            self.done.append(Completion(qpn, wr_id, "receive", "flushed", None, 0))
        else:
            self.qps[qpn].receives.append(wr_id)

    def completions(self) -> list[Completion]:
        """What has completed since the last call."""
        done, self.done = self.done, []
        return done

    def port_state(self, now: int, plane: int, up: bool) -> None:
        """Our port to `plane` has gained or lost its carrier (section 7: planes, Port Status
        Update)."""
        if self.ports[plane] == up:
            return
        self.ports[plane] = up
        self.control[plane].clear()
        self.probing[plane].clear()
        for qp in self.qps.values():
            self.check_plane(now, qp, plane)
        for peer in self.peers.values():
            self.announce(now, peer)

    # time

    def transmit(self, now: int) -> tuple[int, bytes] | None:
        """Section 6: control first, then probes, retransmissions, new data; queue pairs take
        turns."""
        self.now = now
        qps = list(self.qps.values())
        for qp in qps:
            if qp.state == "RTS":
                if qp.trigger is not None and now >= qp.sack_at:
                    self.sack(now, qp, qp.trigger)
                self.tick_qp(now, qp)
        for peer in self.peers.values():
            self.tick_peer(now, peer)
        for queues in (self.control, self.probing):
            for plane, queue in enumerate(queues):
                if queue and now >= self.opens_at(plane):
                    return self.leave(now, plane, queue.popleft()(now))
        for rtx in (1, 0):
            for step in range(len(qps)):
                going = self.data(now, qps[(self.turn + step) % len(qps)], rtx)
                if going is not None:
                    self.turn = (self.turn + step + 1) % len(qps)
                    return going
        return None

    def deadline(self) -> int | None:
        """The next time at which transmit() may have something to do."""
        times = [at for peer in self.peers.values() for at in (peer.round_at, peer.probe_at)]
        waiting = any(self.control) or any(self.probing)
        for qp in self.qps.values():
            if qp.state == "RTS":
                waiting = waiting or bool(qp.fresh) or any(one.lost for one in qp.flight.values())
                times += self.times(qp) + ([qp.sack_at] if qp.trigger is not None else [])
        if waiting:
            times += [
                at
                for plane, up in enumerate(self.ports)
                if up and (at := self.opens_at(plane)) > self.now
            ]
        return min((time for time in times if time is not None), default=None)

    # what arrives

    def receive(self, now: int, plane: int, frame: bytes) -> None:
        try:
            p = codec.parse(frame, self.facts.udp_port)
        except ValueError as error:
            self.counters["rx_malformed"] += 1
            self.judge.say(f"4: not a frame of the protocol: {error}")
            return
        peer = self.peers.get(p.src)
        evs = self.facts.evs(p.src) if peer is not None else []
        if not self.ports[plane]:
            self.counters["rx_port_down"] += 1
        elif not p.icrc_ok:
            self.counters["rx_bad_icrc"] += 1
            self.judge.say(f"4: iCRC of an untrimmed {p.opcode:#x} is wrong")
        elif peer is None or p.dst != self.facts.host:
            self.counters["rx_bad_host"] += 1
            self.judge.say(f"1: a frame from host {p.src} to host {p.dst}")
        else:
            self.judge.arrival(plane, p, evs)
            if p.ev not in evs:
                self.counters["rx_bad_ev"] += 1
            elif p.opcode == codec.REQUEST:
                self.on_request(now, peer, plane, p)
            elif p.opcode == codec.RESPONSE:
                self.on_response(now, peer, p)
            else:
                self.to_qp(now, p)

    def to_qp(self, now: int, p: Packet) -> None:
        qp = self.qps.get(p["BTH.qpn"])
        if qp is None or qp.peer != p.src or qp.state == "INIT":
            self.counters["rx_bad_qp"] += 1
            if qp is None or qp.peer != p.src:
                self.judge.say(
                    f"1: a packet for QPN {p['BTH.qpn']:#x}, which is none of its sender's"
                )
        elif qp.state == "ERROR":
            late = qp.refused_at is None or now - qp.refused_at >= self.facts.base_rtt_ps
            if late and (p.opcode in codec.WRITES or p.opcode == codec.PROBE):
                qp.refused_at = now
                self.nack(now, qp, p, 0x19)
        elif p.opcode in codec.WRITES:
            self.on_write(now, qp, p)
        elif p.opcode == codec.PROBE:
            # it is answered on the EV by which it came, and the ACK is repeated
            self.judge.probe(qp, p)
            self.sack(
                now,
                qp,
                Trigger(
                    p.ev,
                    p["PETH.id"],
                    p["PETH.timestamp"],
                    0,
                    now,
                    int(p.trimmed or p.ecn == 3),
                    True,
                ),
            )
            self.acknowledge(now, qp)
        else:
            {codec.SACK: self.on_sack, codec.NACK: self.on_nack, codec.ACK: self.on_ack}[p.opcode](
                now, qp, p
            )

    def on_write(self, now: int, qp: Qp, p: Packet) -> None:
        """Section 5: refuse, NACK or place one data packet, and see whether a SACK is due."""
        self.judge.write(now, qp, p)
        psn, stamp, rtx, peer = (
            p["BTH.psn"],
            p["TSETH.timestamp"],
            p["BTH.rtx"],
            self.peers[qp.peer],
        )
        qp.heard[p.ev] = peer.data_at = now
        if peer.probe_at is None:
            peer.probe_at = now + self.facts.base_rtt_ps
        new = diff(psn, qp.cum) > 0 and psn not in qp.got
        if diff(psn, qp.cum) > qp.mpr:
            self.nack(now, qp, p, 0x0B)
            return
        if p.trimmed and new:
            self.nack(now, qp, p, 1 if p.dscp == codec.TRIMMED else 2)
            return
        if new:
            syndrome = self.place(p)
            if syndrome:
                self.fail(now, qp, syndrome, f"1: length, rkey or bounds of PSN {psn:#x} are wrong")
                return
            qp.records[psn] = Record(p.values, len(p.payload), [])
            qp.records.pop(add(psn, -KEEP), None)
            qp.got.add(psn)
            qp.unreported.add(psn)
            qp.counted += p.udp_length + 40 - (4 if p.opcode in codec.IMMS else 0)
        elif not p.trimmed:
            self.counters["rx_duplicates"] += 1
            self.acknowledge(now, qp)
        if psn in qp.records and not p.trimmed:
            qp.records[psn].copies.append((rtx, stamp, p.ev, now))
        self.advance(now, qp)
        if qp.state == "ERROR":
            return
        if p["BTH.a"] and qp.got:
            qp.asked = psn
        whole = qp.asked is not None and diff(qp.asked, qp.cum) <= 0
        if whole:
            qp.asked = None
        qp.unsacked += max(1024, p.udp_length + 40)
        trigger = Trigger(p.ev, psn, stamp, rtx, now, int(p.ecn == 3))
        if trigger.mark or p["BTH.a"] or rtx or not new or whole or qp.unsacked >= qp.threshold:
            self.sack(now, qp, trigger)
        else:
            qp.trigger, qp.sack_at = trigger, now + self.facts.base_rtt_ps // 4

    def place(self, p: Packet) -> int:
        """Write the payload where it belongs; the syndrome of what forbids it (sections 1 and
        10)."""
        n, whole, mtu, opcode = len(p.payload), p["RETH.dmalen"], self.facts.mtu, p.opcode
        if n > min(whole, mtu) or (opcode not in codec.ENDS and (n < mtu or whole <= mtu)):
            return 0x61
        if (opcode in (codec.ONLY, codec.ONLY_IMM) and n != whole) or (
            opcode in (codec.LAST, codec.LAST_IMM) and not n
        ):
            return 0x61
        if not n:
            return 0
        va, memory = self.regions.get(p["RETH.rkey"], (0, None))
        start = p["RETH.va"] - va
        if memory is None or not 0 <= start <= start + n <= len(memory):
            return 0x62
        memory[start : start + n] = p.payload
        return 0

    def advance(self, now: int, qp: Qp) -> None:
        """Section 1: messages complete in PSN order. MSN, RQMSN, opcodes and receive requests are
        checked in that order, too."""
        finished = False
        while add(qp.cum, 1) in qp.got:
            psn = add(qp.cum, 1)
            record = qp.records[psn]
            opcode, due = (
                record.values["BTH.opcode"],
                (qp.completed & 0xFFFF, qp.completed_imm & 0xFFFF),
            )
            if (opcode in codec.STARTS) == qp.inside:
                self.fail(now, qp, 0x61, f"1: opcode {opcode:#x} of PSN {psn:#x} is out of place")
                return
            if (
                opcode in codec.ENDS
                and (record.values["METH.msn"], record.values["METH.rqmsn"]) != due
            ):
                self.fail(
                    now,
                    qp,
                    0x61,
                    f"1: METH of PSN {psn:#x} is {record.values}, expected MSN and RQMSN {due}",
                )
                return
            if opcode in codec.IMMS and not qp.receives:
                self.fail(
                    now, qp, 0x63, f"1: PSN {psn:#x} has an immediate without a receive request"
                )
                return
            self.judge.order(qp, record)
            qp.cum = psn
            qp.got.discard(psn)
            qp.inside = opcode not in codec.ENDS
            if not qp.inside:
                finished, qp.completed, qp.completed_psn = True, add(qp.completed, 1), psn
            if opcode in codec.IMMS:
                qp.completed_imm += 1
                length, imm = record.values["RETH.dmalen"], record.values["Imm.imm"]
                self.done.append(
                    Completion(qp.qpn, qp.receives.popleft(), "receive", "ok", imm, length)
                )
        if finished:
            self.acknowledge(now, qp)

    def fail(self, now: int, qp: Qp, syndrome: int, why: str) -> None:
        """Section 1: an ACK with an error syndrome, and the queue pair is in ERROR."""
        self.judge.say(why)
        self.acknowledge(now, qp, syndrome)
        self.break_qp(qp, CAUSES[syndrome], CAUSES[syndrome])

    # what answers it

    def reverse_ev(self, now: int, qp: Qp) -> int | None:
        """Section 5: one EV per plane, planes in rotation: the latest known to work, else the
        latest on which data arrived."""
        bad = {
            path.ev for plane in qp.planes for path in plane.paths if path.state == "ASSUMED_BAD"
        }
        limit, newest = 4 * self.facts.base_rtt_ps, max(qp.heard.values(), default=0)
        recent = [ev for ev, at in qp.heard.items() if newest - at <= limit and ev not in bad]
        fallback = [path.ev for plane in qp.planes for path in plane.paths]
        for evs in (recent, fallback):
            evs = [ev for ev in evs if self.both_up(qp.peer, ev >> 16)]
            if evs:
                plane = min(
                    (ev >> 16 for ev in evs), key=lambda one: (one - qp.reverse) % self.facts.planes
                )
                qp.reverse = plane + 1
                return max(
                    (ev for ev in evs if ev >> 16 == plane),
                    key=lambda ev: (qp.proven.get(ev, -1), qp.heard.get(ev, -1)),
                )
        return None

    def control_frame(self, qp: Qp, values: dict[str, int], now: int) -> None:
        """Queue an ACK or a NACK."""
        ev = self.reverse_ev(now, qp)
        if ev is not None:
            self.control[ev >> 16].append(
                lambda now: self.frame(qp.peer, ev, codec.CONTROL, values | {"BTH.qpn": qp.rqpn})
            )

    def acknowledge(self, now: int, qp: Qp, syndrome: int = 0x1F) -> None:
        # without a completion there is nothing to repeat
        if qp.completed_psn != add(qp.rfirst, -1) or syndrome != 0x1F:
            values = {
                "BTH.opcode": codec.ACK,
                "BTH.psn": qp.completed_psn,
                "AETH.syndrome": syndrome,
                "AETH.msn": qp.completed,
            }
            self.control_frame(qp, values, now)

    def nack(self, now: int, qp: Qp, p: Packet, reason: int) -> None:
        name, stamp = (
            ("PETH.id", "PETH.timestamp")
            if p.opcode == codec.PROBE
            else ("BTH.psn", "TSETH.timestamp")
        )
        values = {
            "BTH.opcode": codec.NACK,
            "BTH.psn": p[name],
            "NETH.psn": p[name],
            "NETH.reason": reason,
            "NETH.ev": p.ev,
        }
        values |= {"NETH.timestamp": p[stamp], "NETH.sender": qp.qpn, "NETH.receiver": qp.rqpn}
        self.control_frame(qp, values, now)

    def sack(self, now: int, qp: Qp, trigger: Trigger) -> None:
        """Queue a SACK; what has arrived is looked up when it leaves."""
        qp.unsacked, qp.trigger = 0, None
        qp.threshold = round(16384 * self.random.uniform(0.75, 1.25))
        ev = trigger.ev if trigger.probe else self.reverse_ev(now, qp)
        if ev is not None and self.ports[ev >> 16]:
            self.control[ev >> 16].append(lambda now: self.sack_frame(now, qp, ev, trigger))

    def sack_frame(self, now: int, qp: Qp, ev: int, t: Trigger) -> bytes:
        base, bits = self.bitmap(qp)
        offset = t.psn if t.probe else diff(t.psn, qp.cum)
        values = {
            "BTH.opcode": codec.SACK,
            "BTH.qpn": qp.rqpn,
            "BTH.rtx": t.rtx,
            "BTH.psn": qp.cum,
            "SETH.m": t.mark,
            "SETH.pr": t.probe,
        }
        values |= {
            "SETH.offset": offset if -32768 <= offset <= 32767 else 0,
            "SETH.ev": t.ev,
            "SETH.sender": qp.qpn,
        }
        values |= {
            "SETH.receiver": qp.rqpn,
            "SETH.cum": qp.cum,
            "SETH.window": qp.mpr // 128,
            "SETH.base": base,
            "SETH.bitmap": bits,
        }
        values |= {
            "CC_STATE.timestamp": t.stamp + (now - t.at) // self.unit,
            "CC_STATE.bytes": qp.counted // 256,
        }
        return self.frame(qp.peer, ev, codec.CONTROL, values | {"CC_STATE.ooo": len(qp.got)})

    def bitmap(self, qp: Qp) -> tuple[int, int]:
        """Section 5: offset of bit 0 from the cumulative PSN, and 64 bits. News and holes take
        turns while more is open."""
        waiting = {diff(psn, qp.cum) for psn in qp.got}
        highest, base = max(waiting, default=0), 1
        qp.unreported &= qp.got
        if highest > 64:
            if qp.news and qp.unreported:
                base = min(diff(psn, qp.cum) for psn in qp.unreported)
            else:
                start = max(1, diff(qp.cursor, qp.cum))
                base = next((n for n in range(start, highest) if n not in waiting), 1)
                qp.cursor = add(qp.cum, base + 64)
            qp.news = not qp.news
        qp.unreported = {psn for psn in qp.unreported if not base <= diff(psn, qp.cum) < base + 64}
        return base, sum(1 << (n - base) for n in waiting if base <= n < base + 64)

    # endpoint operations (section 7)

    def announce(self, now: int, peer: Peer) -> None:
        """A new Port Status Update for `peer`; its copies go until one is answered."""
        peer.own_serial, peer.rounds, peer.round_at = peer.own_serial % 32767 + 1, 0, now

    def ask(self, peer: Peer, ident: int, ev: int) -> None:
        """Queue an endpoint request on `ev`: an EV Probe if bit 15 of `ident` is set, else a Port
        Status Update."""
        mask = sum(1 << plane for plane, up in enumerate(self.ports) if up)

        def make(now: int) -> bytes:
            stamp = self.stamp(now)
            peer.asked.setdefault(ident, []).append(Sent(ev, stamp, 0, now))
            if len(peer.asked) > 1000:
                del peer.asked[next(iter(peer.asked))]
            values = {
                "BTH.opcode": codec.REQUEST,
                "BTH.qpn": 2,
                "BTH.psn": ident,
                "ERTH.operation": ident >> 15,
            }
            return self.frame(
                peer.host, ev, codec.CONTROL, values | {"ERTH.mask": mask, "ERTH.timestamp": stamp}
            )

        self.control[ev >> 16].append(make)

    def tick_peer(self, now: int, peer: Peer) -> None:
        rtt = self.facts.base_rtt_ps
        evs = [ev for ev in self.facts.evs(peer.host) if self.both_up(peer.host, ev >> 16)]
        if peer.round_at is not None and now >= peer.round_at:
            for plane in {ev >> 16 for ev in evs}:
                self.ask(
                    peer,
                    peer.own_serial,
                    self.random.choice([ev for ev in evs if ev >> 16 == plane]),
                )
            peer.rounds += 1
            peer.round_at = now + rtt * 2 ** min(max(0, peer.rounds - 7), 10)
        if peer.probe_at is not None and now >= peer.probe_at:
            quiet = now - peer.data_at > 4 * rtt
            peer.probe_at = None if quiet else now + rtt
            if (
                not quiet
                and evs
                and not any(qp.messages for qp in self.qps.values() if qp.peer == peer.host)
            ):
                peer.next_probe = peer.next_probe + 1 & 0x7FFF
                self.ask(peer, 0x8000 | peer.next_probe, self.random.choice(evs))

    def on_request(self, now: int, peer: Peer, plane: int, p: Packet) -> None:
        """Answer at once on the EV by which it came; apply a Port Status Update whose serial is
        newer."""
        self.judge.request(plane, p)
        ident, stamp, at, ev = p["BTH.psn"] & 0xFFFF, p["ERTH.timestamp"], now, p.ev
        if not ident >> 15 and diff(ident, peer.serial, 15) > 0:
            peer.serial, peer.mask = ident, p["ERTH.mask"]
            for qp in self.qps.values():
                for index in range(self.facts.planes if qp.peer == peer.host else 0):
                    self.check_plane(now, qp, index)
        values = {
            "BTH.opcode": codec.RESPONSE,
            "BTH.qpn": 2,
            "BTH.psn": ident,
            "EETH.operation": p["ERTH.operation"],
        }

        def make(now: int) -> bytes:
            return self.frame(
                peer.host,
                ev,
                codec.CONTROL,
                values | {"EETH.timestamp": stamp + (now - at) // self.unit},
            )

        self.control[ev >> 16].append(make)

    def on_response(self, now: int, peer: Peer, p: Packet) -> None:
        self.judge.response(now, peer, p)
        if p["BTH.psn"] == peer.own_serial:
            peer.round_at = None
        if any(one.ev == p.ev for one in peer.asked.get(p["BTH.psn"], [])):
            for qp in self.qps.values():
                if qp.peer == peer.host:
                    qp.proven[p.ev] = now
