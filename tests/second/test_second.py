"""Two of the second endpoint against each other over a small network, headers by hand, and wrong
peers that its judge must find."""

from __future__ import annotations

import heapq
import random
import unittest
from collections.abc import Callable

from tests.second import codec
from tests.second.endpoint import Completion, Endpoint, Facts

NS, MS = 10**3, 10**9
PLANES, PATHS, MTU, RTT, RATE = 4, 4, 256, 10_000 * NS, 100_000_000_000
Mutate = Callable[[bytearray], None]


def outer(src: int, dst: int, ev: int) -> bytes:
    """Block, T0 of src, T1 by uplink, T0 of dst, downlink (addressing page); one host per T0."""
    plane = (ev >> 16) << 12
    sids = (
        plane | 1 << 10 | src,
        plane | 2 << 10 | ev & 0xFFFF,
        plane | 1 << 10 | dst,
        plane | 3 << 10,
    )
    return bytes.fromhex("fcbbbb00") + b"".join(sid.to_bytes(2, "big") for sid in sids) + bytes(4)


def facts(host: int, trimming: bool) -> Facts:
    evs = [plane << 16 | path for plane in range(PLANES) for path in range(PATHS)]
    return Facts(
        host,
        PLANES,
        MTU,
        RTT,
        RATE,
        trimming,
        4791,
        lambda peer: evs,
        lambda peer, ev: outer(host, peer, ev),
        64,
    )


class Net:
    """Planes x paths, each a FIFO per direction and class, with a delay of its own."""

    def __init__(
        self,
        seed: int = 0,
        trimming: bool = False,
        loss: float = 0,
        twice: float = 0,
        trim: float = 0,
        mark: float = 0,
    ) -> None:
        self.random, self.now, self.count = random.Random(seed), 0, 0
        self.loss, self.twice, self.trim, self.mark = loss, twice, trim, mark
        self.ends = [Endpoint(facts(host, trimming), seed) for host in (0, 1)]
        self.up = [[True] * PLANES, [True] * PLANES]
        self.dead: set[int] = set()
        self.heap: list[tuple[int, int, int, int, bytes]] = []
        self.fifo: dict[tuple[int, int, bool], int] = {}
        self.events: list[tuple[int, Callable[[], None]]] = []
        self.wrong: Callable[[bytearray], bool] | None = None  # changes frames of host 0
        info = [self.ends[host].create_qp(1 - host) for host in (0, 1)]
        self.qpns = [one["qpn"] for one in info]
        for host in (0, 1):
            self.ends[host].connect_qp(0, self.qpns[host], info[1 - host])
        self.memory = [bytearray(b"\xa5" * (1 << 20)) for _ in (0, 1)]
        self.keys = [
            self.ends[host].register(memoryview(self.memory[host])[4096:-4096]) for host in (0, 1)
        ]
        self.done: list[list[Completion]] = [[], []]

    def send(self, host: int, plane: int, frame: bytes) -> None:
        data = bytearray(frame)
        if host == 0 and self.wrong is not None and self.wrong(data):
            data[-4:] = codec.icrc(bytes(data[54:-4]))
        ev = int.from_bytes(data[56:58], "big") << 16 | int.from_bytes(data[94:96], "big")
        control = data[102] not in codec.WRITES and data[102] != codec.PROBE
        if ev in self.dead or not self.up[1 - host][plane] or self.random.random() < self.loss:
            return
        data[38:54] = data[38:42] + data[48:50] + bytes(10)  # three switches shift the uSIDs
        data[21] -= 3
        again = not control and self.random.random() < self.twice
        if not control and self.random.random() < self.mark:
            data[15] |= 0x30
        trimmed = not control and self.random.random() < self.trim
        if trimmed:
            data[14:16] = (6 << 12 | self.random.choice((18, 20)) << 6 | data[15] & 0x3F).to_bytes(
                2, "big"
            )
            del data[142:]
            data[18:20] = (len(data) - 54).to_bytes(2, "big")
        key = (host, ev, control or trimmed)
        at = max(
            self.now + (3500 + 700 * (ev % 4) + 150 * (ev >> 16)) * NS,
            self.fifo.get(key, 0) + 90 * NS,
        )
        self.fifo[key] = at
        for copy in range(1 + again):
            self.count += 1
            heapq.heappush(
                self.heap, (at + copy * 2500 * NS, self.count, 1 - host, plane, bytes(data))
            )

    def port(self, host: int, plane: int, up: bool) -> None:
        self.up[host][plane] = up
        self.ends[host].port_state(self.now, plane, up)

    def run(self, until: int, enough: Callable[[], bool] | None = None) -> None:
        while True:
            for host, end in enumerate(self.ends):
                while (going := end.transmit(self.now)) is not None:
                    if self.up[host][going[0]]:
                        self.send(host, *going)
                self.done[host] += end.completions()
            times = [one for end in self.ends if (one := end.deadline()) is not None]
            if any(one <= self.now for one in times):
                raise AssertionError(f"deadline {min(times)} at {self.now}")
            times += [self.heap[0][0]] if self.heap else []
            times += [self.events[0][0]] if self.events else []
            if not times or min(times) > until or (enough is not None and enough()):
                return
            self.now = max(self.now, min(times))
            while self.events and self.events[0][0] <= self.now:
                self.events.pop(0)[1]()
            while self.heap and self.heap[0][0] <= self.now:
                _, _, host, plane, frame = heapq.heappop(self.heap)
                if self.up[host][plane]:
                    self.ends[host].receive(self.now, plane, frame)


def bulk(test: unittest.TestCase, net: Net, both: bool = True, messages: int = 40) -> None:
    """Messages of many sizes in both directions; every byte, every completion and the guards are
    looked at."""
    want = [bytearray(b"\xa5" * (1 << 20)) for _ in (0, 1)]
    imms: list[list[int]] = [[], []]
    for host in (0, 1) if both else (0,):
        at = 0
        for n in range(messages):
            data = net.random.randbytes(
                net.random.choice((0, 1, 3, MTU - 1, MTU, MTU + 1, 5 * MTU + 7, 30 * MTU))
            )
            imm = net.random.getrandbits(32) if n % 3 == 0 else None
            if imm is not None:
                imms[1 - host].append(imm)
                net.ends[1 - host].post_recv(net.qpns[1 - host], 1000 + n)
            va, rkey = net.keys[1 - host]
            want[1 - host][4096 + at : 4096 + at + len(data)] = data
            net.ends[host].post_write(net.qpns[host], n, data, va + at, rkey, imm)
            at += len(data)
    senders = (0, 1) if both else (0,)
    net.run(
        20 * MS,
        lambda: (
            all(sum(one.kind == "write" for one in net.done[host]) == messages for host in senders)
            and not net.events
        ),
    )
    for host in senders:
        writes = [one for one in net.done[host] if one.kind == "write"]
        test.assertEqual(
            [(one.wr_id, one.status) for one in writes], [(n, "ok") for n in range(messages)]
        )
        test.assertEqual(
            [one.imm for one in net.done[1 - host] if one.kind == "receive"], imms[1 - host]
        )
        test.assertEqual(net.memory[1 - host], want[1 - host])
    for end in net.ends:
        test.assertEqual(end.violations, [])


class Transfers(unittest.TestCase):
    def test_clean(self) -> None:
        net = Net(1)
        bulk(self, net)
        self.assertEqual([end.counters["tx_rtx"] for end in net.ends], [0, 0])

    def test_loss(self) -> None:
        for seed in range(4):
            net = Net(seed, loss=0.03 * (seed + 1))
            bulk(self, net)
            self.assertGreater(net.ends[0].counters["tx_rtx"], 0)

    def test_duplicates(self) -> None:
        net = Net(5, twice=0.2)
        bulk(self, net)
        self.assertGreater(net.ends[0].counters["rx_duplicates"], 0)

    def test_trims_and_marks(self) -> None:
        for seed in range(4):
            net = Net(seed, trimming=True, trim=0.05, mark=0.05, loss=0.005 * seed, twice=0.02)
            bulk(self, net)
            self.assertGreater(net.ends[0].counters["nacked"], 0)

    def test_dead_path(self) -> None:
        for trimming in (False, True):
            net = Net(6, trimming=trimming)
            net.dead.add(0x00010002)
            net.events.append((1_500_000 * NS, net.dead.clear))
            bulk(self, net, messages=60)
            self.assertGreater(net.ends[0].counters["paths_bad"], 0)
            net.run(net.now + 3 * MS)
            bulk_again = [
                path
                for qp in net.ends[0].qps.values()
                for plane in qp.planes
                for path in plane.paths
                if path.state != "GOOD"
            ]
            self.assertEqual([path.ev for path in bulk_again if path.state == "ASSUMED_BAD"], [])

    def test_port(self) -> None:
        net = Net(7, loss=0.002)
        net.events += [
            (15_000 * NS, lambda: net.port(0, 2, False)),
            (60_000 * NS, lambda: net.port(0, 2, True)),
        ]
        net.events += [
            (70_000 * NS, lambda: net.port(1, 1, False)),
            (120_000 * NS, lambda: net.port(1, 1, True)),
        ]
        bulk(self, net, messages=100)
        net.run(net.now + MS // 2)
        self.assertTrue(
            all(plane.state == "USED" for qp in net.ends[0].qps.values() for plane in qp.planes)
        )
        self.assertEqual([end.violations for end in net.ends], [[], []])

    def test_errors(self) -> None:
        for rkey, va, imm, status in (
            (1, 0, None, "access"),
            (0, 1 << 20, None, "access"),
            (0, 0, 7, "operation"),
        ):
            net = Net(8)
            base, key = net.keys[1]
            net.ends[0].post_write(
                net.qpns[0], 1, b"x" * 3000, base + va, key + rkey & 0xFFFFFFFF, imm
            )
            net.ends[0].post_write(net.qpns[0], 2, b"y", base, key)
            net.run(3 * MS)
            self.assertEqual([one.status for one in net.done[0]], [status, "flushed"])
            self.assertEqual(net.ends[0].violations, [])

    def test_silence(self) -> None:
        net = Net(9, loss=1.0)
        net.ends[0].post_write(net.qpns[0], 1, b"x", *net.keys[1])
        net.run(50 * MS)
        self.assertEqual([one.status for one in net.done[0]], ["retries"])


class Bytes(unittest.TestCase):
    def test_headers(self) -> None:
        """Each header of section 4 by hand."""
        by_hand = {
            "BTH": (
                "c6 10 ffff 00 123456 b0 abcdef",
                {
                    "opcode": 0xC6,
                    "pad": 1,
                    "pkey": 0xFFFF,
                    "qpn": 0x123456,
                    "a": 1,
                    "rtx": 1,
                    "ts": 1,
                },
            ),
            "METH": ("0102 0304", {"rqmsn": 0x0102, "msn": 0x0304}),
            "TSETH": ("beef 0001", {"timestamp": 0xBEEF, "ftype": 1}),
            "RETH": (
                "0011223344556677 deadbeef 00001000",
                {"va": 0x0011223344556677, "rkey": 0xDEADBEEF, "dmalen": 4096},
            ),
            "Imm": ("01020304", {"imm": 0x01020304}),
            "AETH": ("61 000007", {"syndrome": 0x61, "msn": 7}),
            "SETH": (
                "00 22 0005 00010002 1111 2222 00 abcdef 00 08 fffe 8000000000000001",
                {
                    "m": 1,
                    "pr": 1,
                    "offset": 5,
                    "ev": 0x10002,
                    "sender": 0x1111,
                    "receiver": 0x2222,
                    "cum": 0xABCDEF,
                    "window": 8,
                }
                | {"base": 0xFFFE, "bitmap": 1 << 63 | 1},
            ),
            "CC_STATE": (
                "1234 0003 90 000102",
                {"timestamp": 0x1234, "ooo": 3, "restore": 1, "penalty": 16, "bytes": 0x102},
            ),
            "NETH": (
                "0000 02 00 00010002 1111 2222 00 abcdef 2000 1234",
                {
                    "reason": 2,
                    "ev": 0x10002,
                    "sender": 0x1111,
                    "receiver": 0x2222,
                    "psn": 0xABCDEF,
                    "cctype": 2,
                    "timestamp": 0x1234,
                },
            ),
            "PETH": (
                "000000 00 0009 0000 1111 2222 1234 0001",
                {"id": 9, "sender": 0x1111, "receiver": 0x2222, "timestamp": 0x1234, "ftype": 1},
            ),
            "ERTH": (
                "0001 0000 0000000b 00000000 1234 0001",
                {"operation": 1, "mask": 11, "timestamp": 0x1234, "ftype": 1},
            ),
            "EETH": ("0004" + "00" * 26 + "1234" + "00" * 6, {"operation": 1, "timestamp": 0x1234}),
        }
        for name, (text, fields) in by_hand.items():
            data, odd = bytes.fromhex(text), list[str]()
            values = codec.unpack(name, data, odd)
            self.assertEqual(odd, [], name)
            self.assertEqual(
                {k: v for k, v in values.items() if v},
                {f"{name}.{k}": v for k, v in fields.items()}
                | ({"BTH.psn": 0xABCDEF} if name == "BTH" else {}),
            )
            self.assertEqual(codec.pack(name, values), data, name)

    def test_frames(self) -> None:
        rng = random.Random(1)
        for opcode, names in codec.FOLLOWS.items():
            for length in range(6) if opcode in codec.WRITES else (0,):
                values = {"BTH.opcode": opcode}
                for name in ("BTH", *names):
                    for key, width, fixed in codec.LAYOUTS[name][1]:
                        if not key.endswith("-"):
                            values.setdefault(
                                key, rng.getrandbits(width) if fixed is None else fixed
                            )
                frame = codec.build(
                    3, 9, 0x20005, outer(3, 9, 0x20005), 10, 2, 4791, values, b"abcdef"[:length]
                )
                p = codec.parse(frame, 4791)
                self.assertEqual(
                    (p.src, p.dst, p.ev, p.dscp, p.ecn, p.icrc_ok, p.odd),
                    (3, 9, 0x20005, 10, 2, True, []),
                )
                self.assertEqual(p.payload, b"abcdef"[:length])
                self.assertEqual(
                    p.values,
                    values | {"BTH.pad": -length % 4, "BTH.ts": int(opcode in codec.WRITES)},
                )

    def test_hostile(self) -> None:
        """Bytes of any kind: nothing is raised."""
        rng = random.Random(2)
        frames: list[bytes] = []
        net = Net(3)
        net.wrong = lambda data: frames.append(bytes(data)) or False
        bulk(self, net, messages=4)
        for frame in frames * 20:
            data = bytearray(
                frame[: rng.randrange(len(frame) + 1)] if rng.random() < 0.2 else frame
            )
            for _ in range(rng.randrange(1, 5)):
                if data:
                    data[rng.randrange(len(data))] = rng.randrange(256)
            if len(data) > 120 and rng.random() < 0.8:
                data[-4:] = codec.icrc(bytes(data[54:-4]))
            net.ends[1].receive(net.now, rng.randrange(PLANES), bytes(data))
            while net.ends[1].transmit(net.now) is not None:
                pass


BTH = 102


def poke(
    at: int, value: int, opcodes: tuple[int, ...], times: int = 1, xor: bool = True, skip: int = 2
) -> Callable[[bytearray], bool]:
    """Change one byte of the frames of `opcodes`, from the one after `skip` on, `times` times."""
    state = [skip, times]

    def wrong(data: bytearray) -> bool:
        if data[BTH] not in opcodes:
            return False
        if state[0]:
            state[0] -= 1
        elif state[1]:
            state[1] -= 1
            data[at] = data[at] ^ value if xor else value
            return True
        return False

    return wrong


DATA, MID, ANSWER = tuple(codec.WRITES), (codec.MIDDLE,), (codec.SACK,)
H = BTH + 12  # first header after the BTH
WRONG = {  # what is changed in frames of host 0 -> part of the violation that host 1 must note
    "reserved bits of BTH": poke(BTH + 8, 0x40, DATA),
    "BTH.tver": poke(BTH + 1, 0x01, DATA),
    "inner DSCP of 0xc7": poke(55, 0x80, MID),
    "the plane that a frame came by": poke(57, 0x01, DATA),
    "outer hop limit": poke(21, 0x01, DATA),
    "UDP checksum": poke(101, 0x01, DATA),
    "lengths outer, inner, UDP": poke(99, 0x01, DATA),
    "va, which advances": poke(H + 8 + 7, 0x04, MID),
    "rkey or bounds": poke(H + 8 + 8, 0x04, MID),
    "1: length, rkey": poke(BTH, codec.ONLY, MID, xor=False),
    "expected MSN and RQMSN": poke(H + 3, 0x01, (codec.LAST_IMM,)),
    "1: METH": poke(H + 1, 0x01, (codec.LAST_IMM,)),
    "6: PSN 0x": poke(BTH + 10, 0x40, MID),
    "dmalen within a message": poke(H + 8 + 15, 0x01, MID),
    "timestamps run backwards": poke(H + 4, 0x40, MID),
    "cumulative PSN in the SETH": poke(BTH + 11, 0x01, ANSWER),
    "was not sent": poke(H + 20, 0x80, ANSWER),
    "EV 0x": poke(H + 7, 0x01, ANSWER),
    "echoes": poke(H + 28, 0x40, ANSWER),
    "packets above the cumulative PSN": poke(H + 30, 0x01, ANSWER),
    "SETH.sender": poke(H + 8, 0x01, ANSWER),
    "never sent": poke(H + 1, 0x02, ANSWER),
    "window's edge was taken back": poke(H + 17, 0x04, ANSWER, xor=False),
    "PSN of an ACK": poke(BTH + 11, 0x01, (codec.ACK,), xor=True),
    "messages, ": poke(H + 2, 0x40, (codec.ACK,)),
    "syndrome of an ACK": poke(H, 0x20, (codec.ACK,)),
}


class Wrong(unittest.TestCase):
    def test_peers(self) -> None:
        for text, wrong in WRONG.items():
            with self.subTest(text):
                net = Net(11)
                net.wrong = wrong
                for host in (0, 1):
                    for n in range(8):
                        net.ends[1 - host].post_recv(net.qpns[1 - host], n)
                        va, rkey = net.keys[1 - host]
                        net.ends[host].post_write(
                            net.qpns[host], n, bytes(8 * MTU), va + n * 8 * MTU, rkey, n
                        )
                net.run(3 * MS)
                self.assertTrue(
                    any(text in one for one in net.ends[1].violations), net.ends[1].violations[:5]
                )

    def test_icrc(self) -> None:
        net = Net(12)
        seen: list[int] = []
        net.wrong = lambda data: (
            seen.append(1) or (len(seen) == 3 and data.__setitem__(-1, data[-1] ^ 1)) or False
        )
        bulk(self, Net(12))
        net.ends[0].post_write(net.qpns[0], 1, bytes(9 * MTU), *net.keys[1])
        net.run(3 * MS)
        self.assertTrue(any("iCRC" in one for one in net.ends[1].violations))
        self.assertEqual(net.ends[1].counters["rx_bad_icrc"], 1)


if __name__ == "__main__":
    unittest.main()
