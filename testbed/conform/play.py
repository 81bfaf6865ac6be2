"""Plays a case: sends its frames, waits for those that must come, and refuses those that must not.
Imports nothing of the engine.

The judge is the target's peer. PSNs in a case count from the sender's first one, times are base
RTTs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from testbed.conform import codec
from testbed.conform.cases import Case, Step
from testbed.conform.codec import Frame
from testbed.conform.layouts import CLASSES, PACKETS, REASONS, SYNDROMES
from topologies import Fabric
from topologies.addressing import HOST_MAC, ev, inner_address, path_address, shift
from topologies.paths import path_evs

WITHIN = 2.0
MY_QPN = 0x123
MASK = 0xFFFFFF
TRIM_BYTES = 142
NAMES = (
    {name.lower(): value for value, (name, _) in CLASSES.items()}
    | {name.lower(): value for value, (name, _) in REASONS.items()}
    | {text.split(":")[0].replace(" ", "-"): value for value, text in SYNDROMES.items()}
    | {name.lower().replace(" ", "-"): value for value, name in PACKETS.items()}
)
ALIASES = {"a": "ackreq"}


class Unsupported(Exception):
    """The target cannot do what a case asks of it."""


class Target(Protocol):
    """An endpoint with one queue pair. ``way_rtts``: base RTTs that frames take there and back."""

    way_rtts: float

    def parameters(self) -> dict[str, int]:
        """Make the queue pair: ``host``, ``qpn``, ``psn``, ``mpr``, and ``va``, ``rkey``,
        ``length`` of memory that may be written."""

    def connect(self, remote: dict[str, int]) -> None:
        """Bring the queue pair to RTS, with the judge's own ``host``, ``qpn``, ``psn``, ``mpr``."""

    def now(self) -> int:
        """Return the target's clock, ps."""

    def send(self, plane: int, frame: bytes) -> None:
        """Let a frame arrive at its port."""

    def until(self, when: int) -> tuple[int, bytes] | None:
        """Return (plane, frame) of the next frame that the target sends; None if ``when`` comes
        first."""

    def order(self, op: str, **keys: Any) -> Any:
        """Order ``write``, ``recv``, ``port``, ``completions`` or ``memory``. Raises
        :class:`Unsupported`."""

    def close(self) -> None: ...


class Failed(Exception):
    def __init__(
        self, text: str, got: Iterable[Frame] = (), wanted: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(text)
        self.got, self.wanted = list(got), dict(wanted or {})


@dataclass
class Outcome:
    case: Case
    verdict: str
    why: str = ""
    sides: list[tuple[str, str, str]] = field(default_factory=list)


def pattern(at: int, length: int) -> bytes:
    return bytes((7 * i + 13) % 251 for i in range(at, at + length))


def _delta(psn: int, base: int) -> int:
    return ((psn - base + 0x800000) & MASK) - 0x800000


def _numbers(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition("-") if not part.startswith("-") else (part, "", "")
        found.update(range(int(low), int(high or low) + 1))
    return found


class Play:
    def __init__(self, case: Case, target: Target, fabric: Fabric, base_rtt: int) -> None:
        self.case, self.target, self.fabric, self.base_rtt = case, target, fabric, base_rtt
        self.known: dict[str, Mapping[str, int]] = {
            "fabric": {"planes": fabric.planes, "mtu": fabric.mtu}
        }
        self.inbox: list[Frame] = []
        self.all: list[Frame] = []
        self.auto: dict[str, set[int]] | None = None
        self.arrived: set[int] = set()
        self.ends: dict[int, int] = {}  # PSN of a message's last packet -> its MSN
        self.stamp = 0x100
        self.writes = 0
        # requests that are finished and were not asked about yet
        self.completed: list[dict[str, int | str | None]] = []

    def run(self) -> Outcome:
        steps = list(self.case.steps)
        mine = {"host": self.fabric.host_count - 1, "qpn": MY_QPN, "psn": 0x1000, "mpr": 1024}
        try:
            if steps and steps[0].verb == "peer":
                mine |= {key: self.value(text) for key, text in steps.pop(0).keys.items()}
            self.mine = self.known["my"] = mine
            self.its = self.known["its"] = self.target.parameters()
            self.target.connect(mine)
            self.evs = path_evs(self.fabric, mine["host"], self.its["host"])
            for step in steps:
                self.step = step
                getattr(self, f"_{step.verb}")(step)
        except Failed as failed:
            return Outcome(
                self.case,
                "fail",
                f"line {self.step.line}: {self.step.text}: {failed}",
                self._sides(failed),
            )
        except Unsupported as error:
            return Outcome(self.case, "unsupported", str(error))
        return Outcome(self.case, "pass")

    # --- values -----------------------------------------------------------------------------------

    def value(self, text: str) -> int:
        """Evaluate a number, a name, an EV like 1:2, or $NAME.KEY, and sums of these. Raises
        Failed."""
        if match := re.fullmatch(r"(\d+):(\d+)", text):
            return ev(int(match[1]), int(match[2]))
        total, sign = 0, 1
        for term in re.split(r"(?<=\w)([+-])(?=[\d$])", text):
            if term in ("+", "-"):
                sign = -1 if term == "-" else 1
                continue
            if term.startswith("$"):
                name, _, key = term[1:].partition(".")
                number = self.known.get(name, {}).get(key)
            elif term in NAMES:
                number = NAMES[term]
            else:
                number = int(term, 0) if re.fullmatch(r"-?(0x[0-9A-Fa-f]+|\d+)", term) else None
            if number is None:
                raise Failed(f"the case has {term!r} where a number belongs")
            total += sign * int(number)
        return total

    # --- the network ------------------------------------------------------------------------------

    def _pass(self, rtts: float, stop: Callable[[Frame], bool] | None = None) -> Frame | None:
        end = self.target.now() + int((rtts + self.target.way_rtts) * self.base_rtt)
        while True:
            came = self.target.until(end)
            if came is None:
                return None
            seen = self._read(*came)
            self.all.append(seen)
            self.inbox.append(seen)
            if self.auto is not None:
                self._answer(seen)
            if stop is not None and stop(seen):
                return seen

    def _read(self, plane: int, raw: bytes) -> Frame:
        """An error in any frame, whatever the case is about, fails the case."""
        try:
            frame = codec.parse(raw)
        except ValueError as error:
            raise Failed(f"it sent {error}") from None
        d, kind = frame.values, frame.kind
        d |= {"plane": plane, "t": self.target.now()}
        if kind == "sack":
            d["cack"] = _delta(d["cack_psn"], self.mine["psn"])
            d |= (
                {"probe": d["ack_psn_offset"] & 0xFFFF}
                if d["pr"]
                else {"trigger": d["cack"] + d["ack_psn_offset"]}
            )
            first = d["cack"] + d["sack_offset"]
            bits = {first + i: d["bitmap"] >> i & 1 for i in range(64)}
            frame.sets["has"] = {psn for psn, bit in bits.items() if bit} | set(
                range(d["cack"] + 1)
            )
            frame.sets["lacks"] = {psn for psn, bit in bits.items() if not bit and psn > d["cack"]}
        elif kind == "nack":
            d["nack"] = _delta(d["nack_psn"], self.mine["psn"])
        elif kind == "write":
            d["at"] = d["va"]
        d["rel"] = _delta(
            d["psn"], self.mine["psn"] if kind in ("sack", "ack", "nack") else self.its["psn"]
        )
        self._hold_to_rules(frame)
        return frame

    def _hold_to_rules(self, frame: Frame) -> None:
        d, kind = frame.values, frame.kind
        data = kind in ("write", "probe")
        first, again = (10, 14) if self.fabric.trimming else (12, 12)
        classes = {"write": (again, 22) if d["rtx"] else (first,), "probe": (first, 22)}
        numbered = {"probe": 0, "nack": d.get("nack_psn"), "sack": d.get("cack_psn")}
        wrong = {
            "iCRC": d["icrc"] != 1,
            "lengths": d["lengths"] != 1,
            "reserved fields": d["reserved"] != 0,
            "UDP checksum": d["udp_checksum"] != 0,
            "UDP port": d["udp_port"] != self.fabric.udp_port,
            "partition key": d["pkey"] != 0xFFFF,
            "m, se or tver": d["bth_m"] | d["se"] | d["tver"] != 0,
            "pad": d["pad"] != -d["payload"] % 4,
            "a: asks for nothing": d["ackreq"] and kind != "write",
            "rtx": d["rtx"] and kind not in ("write", "sack"),
            "type, nxt or flags": any(
                d.get(key) for key in ("type", "nxt", "cc_flags", "tsr", "vendor")
            ),
            "PSN in its BTH": d["psn"] >> 16 != 0
            if kind in ("request", "response")
            else d["psn"] != numbered.get(kind, d["psn"]),
            "ftype": d.get("ftype", 1) != 1,
            "ECN: data is ECT(0), control not-ECT": (d["ecn"], d["inner_ecn"])
            != ((2, 2) if data else (0, 0)),
            "DSCP outside and inside": d["dscp"] != d["inner_dscp"],
            "DSCP": d["dscp"] not in classes.get(kind, (48,)),
            "hop limit": d["inner_hop_limit"] != 64 or not 60 <= d["hop_limit"] <= 64,
            "outer source": frame.outer[0] != frame.inner[0],
            "inner addresses": frame.inner
            != tuple(map(inner_address, (self.its["host"], self.mine["host"]))),
            "plane of its EV": d["ev"] >> 16 != d["plane"],
            "EV: none of this pair's": d["ev"] not in self.evs,
            "ts flag": d["ts"] != (kind == "write"),
            "destination QPN": d["dqpn"]
            != (2 if kind in ("request", "response") else self.mine["qpn"]),
            "QPNs": kind in ("sack", "nack", "probe")
            and (d["spdcid"], d["dpdcid"]) != (self.its["qpn"] & 0xFFFF, self.mine["qpn"] & 0xFFFF),
            "CC type": d.get("cc_type", 2 * (kind == "nack")) != 2 * (kind == "nack"),
        }
        if d["ev"] in self.evs and frame.outer[1] != path_address(
            self.fabric, self.its["host"], self.mine["host"], d["ev"]
        ):
            wrong["outer address: another path than the EV's"] = True
        if found := [name for name, bad in wrong.items() if bad]:
            raise Failed(f"a {frame.name} with a wrong {', '.join(found)}", [frame])

    def _frame(self, kind: str, given: dict[str, int], payload: bytes = b"") -> tuple[int, bytes]:
        data = kind in ("write", "probe")
        where = given.setdefault("ev", self.evs[0])
        path = path_address(self.fabric, self.mine["host"], self.its["host"], where)
        while path[6:8] != b"\0\0":  # as the last switch leaves it
            path = shift(path)
        me, it = inner_address(self.mine["host"]), inner_address(self.its["host"])
        usual = {
            "opcode": codec.OPCODES[kind],
            "dscp": 10 if data else 48,
            "ecn": 2 if data else 0,
            "udp_port": self.fabric.udp_port,
            "dqpn": 2 if kind in ("request", "response") else self.its["qpn"],
            "spdcid": self.mine["qpn"],
            "dpdcid": self.its["qpn"],
            "ts": int(kind == "write"),
            "tx_ts": self.stamp,
        }
        self.stamp += 1
        source = inner_address(given.pop("from_host", self.mine["host"]))
        return given.pop("plane", where >> 16), codec.build(
            usual | given, HOST_MAC, me + path, source + it, payload
        )

    # --- steps ------------------------------------------------------------------------------------

    def _send(self, step: Step) -> None:
        kind, *names = step.words
        if kind not in codec.OPCODES:
            raise Failed(f"a case sends one of {', '.join(codec.OPCODES)}")
        keys = dict(step.keys)
        special: dict[str, str] = {
            key: keys.pop(key)
            for key in ("icrc", "trim", "cut", "to", "has", "count")
            if key in keys
        }
        given = {ALIASES.get(key, key): self.value(text) for key, text in keys.items()}
        payload = b""
        if kind == "write":
            payload = self._writes(given)
        else:
            self._feedback(kind, given, special)
        told = dict(given)
        plane, frame = self._frame(kind, given, payload)
        if special.get("icrc") == "bad":
            frame = frame[:-1] + bytes((frame[-1] ^ 0xFF,))
        if "trim" in special:
            word, trimmed = (
                bytearray(frame[:TRIM_BYTES]),
                codec.TRIMMED[self.value(special["trim"]) - 1],
            )
            for at in (14, 54):
                value = int.from_bytes(word[at : at + 4], "big") & ~(0x3F << 22) | trimmed << 22
                word[at : at + 4] = value.to_bytes(4, "big")
            word[18:20] = (len(word) - codec.INNER).to_bytes(2, "big")
            frame = bytes(word)
        if "cut" in special:
            frame = frame[: self.value(special["cut"])]
        for name in names:
            self.known[name] = {"tx_ts": self.stamp - 1} | told
        for _ in range(self.value(special.get("count", "1"))):
            self.target.send(plane, frame)

    def _writes(self, given: dict[str, int]) -> bytes:
        k, of, at = given.pop("k", 0), given.pop("of", 1), given.pop("at", 0)
        last, start = given.pop("last", self.fabric.mtu), given.pop("start", 0)
        imm = "imm" in given and k == of - 1
        usual = (0xCA if of == 1 else 0xC6 if k == 0 else 0xC8 if k == of - 1 else 0xC7) + (
            1 if imm else 0
        )
        length = given.pop("payload", last if k == of - 1 else self.fabric.mtu)
        offset = at + k * self.fabric.mtu
        given["psn"] = given.get("psn", start + k) + self.mine["psn"]
        given.setdefault("opcode", usual)
        given["va"] = given.get("va", 0) + self.its["va"] + offset
        given.setdefault("rkey", self.its["rkey"])
        given.setdefault("dmalen", (of - 1) * self.fabric.mtu + last)
        return pattern(offset, length)

    def _feedback(self, kind: str, given: dict[str, int], special: dict[str, str]) -> None:
        to = self.known.get(special.get("to", "").removeprefix("$"), {})
        if to:
            given.setdefault("ev", to["ev"])
            given.setdefault("tx_ts", to["tx_ts"])
        base = self.its["psn"]
        if kind == "sack":
            cack = given.pop("cack", -1)
            given["psn"] = given["cack_psn"] = cack + base
            given.setdefault("entropy", to.get("ev", given.get("ev", self.evs[0])))
            given.setdefault("mpr", self.mine["mpr"] // 128)
            given.setdefault("rtx", to.get("rtx", 0))
            if to.get("opcode") == codec.OPCODES["probe"]:
                given |= {"pr": 1, "ack_psn_offset": to["probe_id"]}
            elif to:
                given.setdefault("ack_psn_offset", to["rel"] - cack)
            bits = _numbers(special["has"]) if "has" in special else set()
            given.setdefault("sack_offset", 1)
            given["bitmap"] = sum(1 << psn - cack - given["sack_offset"] for psn in bits)
            given.setdefault("rcvd_bytes", (cack + 1 + len(bits)) * 17)
            given.setdefault("ooo_count", len(bits))
        elif kind == "nack":
            given["psn"] = given["nack_psn"] = given.get("psn", to.get("rel", 0)) + base
            given.setdefault("entropy", to.get("ev", self.evs[0]))
        elif kind == "ack":
            given["psn"] = given.get("psn", -1) + base
            given.setdefault("syndrome", 0x1F)
        elif kind == "response":
            given.setdefault("psn", to.get("psn", 0))
            given.setdefault("op", to.get("op", 0))

    def _matches(self, step: Step, d: Frame) -> bool:
        return d.kind == step.words[0] and all(
            self._holds(key, text, d)
            for key, text in step.keys.items()
            if key not in ("within", "for")
        )

    def _holds(self, key: str, text: str, d: Frame) -> bool:
        operator, name = key[-1] if key[-1] in "<>!" else "=", key.rstrip("<>!")
        if name in d.sets:
            return _numbers(text) <= d.sets[name]
        if name not in d.values:
            return False
        came = d.values[name]
        wanted = [self.value(part) for part in text.split("|")]
        return {
            "=": came in wanted,
            "!": came not in wanted,
            ">": came >= wanted[0],
            "<": came <= wanted[0],
        }[operator]

    def _expect(self, step: Step) -> None:
        found = next((d for d in self.inbox if self._matches(step, d)), None)
        if found is None:
            found = self._pass(
                float(step.keys.get("within", WITHIN)), lambda d: self._matches(step, d)
            )
        if found is None:
            near = [d for d in self.all if d.kind == step.words[0]]
            raise Failed(f"did not come; {self._came()}", near[-1:], step.keys)
        self.inbox.remove(found)
        for name in step.words[1:]:
            self.known[name] = found.values

    def _came(self) -> str:
        names = [d.name for d in self.all[-5:]]
        return f"the last that came: {', '.join(names)}" if names else "nothing came"

    def _never(self, step: Step) -> None:
        found = next((d for d in self.inbox if self._matches(step, d)), None)
        found = found or self._pass(
            float(step.keys.get("for", WITHIN)), lambda d: self._matches(step, d)
        )
        if found is not None:
            raise Failed("came", [found], step.keys)

    def _wait(self, step: Step) -> None:
        self._pass(float(step.words[0]))

    def _clear(self, step: Step) -> None:
        self.inbox.clear()

    def _post(self, step: Step) -> None:
        """``post write bytes=N [imm=N]`` or ``post recv [id=N]``."""
        numbers = {key: self.value(text) for key, text in step.keys.items()}
        keys: dict[str, int | list[int]] = {"id": self.writes + 1, **numbers}
        if step.words[0] == "write":
            keys = {
                "id": self.writes + 1,
                "va": 1 << 32,
                "rkey": 0xABCD,
                **numbers,
                "bytes": list(pattern(0, numbers["bytes"])),
            }
        self.writes += 1
        self.target.order(step.words[0], **keys)

    def _port(self, step: Step) -> None:
        self.target.order("port", plane=self.value(step.words[0]), up=step.words[1] == "up")

    def _completion(self, step: Step) -> None:
        """``completion write|receive [status=WORD] [imm=N] [length=N]``, or ``completion none``."""
        end = self.target.now() + int(float(step.keys.get("within", WITHIN)) * self.base_rtt)
        while True:
            self.completed += self.target.order("completions") or []
            if self.completed or self.target.now() >= end:
                break
            self._pass(0.05)
        if step.words[0] == "none":
            if self.completed:
                raise Failed(f"a request is finished: {self.completed[0]}")
            return
        if not self.completed:
            raise Failed(f"no request is finished; {self._came()}")
        done = self.completed.pop(0)
        wanted = {
            "kind": step.words[0],
            **{key: text for key, text in step.keys.items() if key != "within"},
        }
        wanted.setdefault("status", "ok")
        for key, text in wanted.items():
            came = str(done.get(key))
            if came not in text.split("|") and not (
                text.startswith("0x") and came == str(int(text, 16))
            ):
                raise Failed(f"{key} is {came} and not {text}")

    def _memory(self, step: Step) -> None:
        """``memory AT LENGTH written|untouched``."""
        at, length = self.value(step.words[0]), self.value(step.words[1])
        came = bytes.fromhex(self.target.order("memory", at=at, length=length))
        wanted = pattern(at, length) if step.words[2] == "written" else b"\xa5" * length
        if came != wanted:
            wrong = next(i for i in range(length) if came[i] != wanted[i])
            raise Failed(f"byte {at + wrong} is {came[wrong]:02X} and not {wanted[wrong]:02X}")

    # --- a well-behaved responder -----------------------------------------------------------------

    def _auto(self, step: Step) -> None:
        """Answer every WRITE, probe and request from now on. ``drop``, ``trim``, ``mark``: PSNs
        whose first packet gets that; ``lose``: PSNs that never arrive; ``silent``: planes on which
        nothing arrives; ``probes``: how many are answered, if not all."""
        self.auto = {key: _numbers(text) for key, text in step.keys.items()}

    def _answer(self, frame: Frame) -> None:
        assert self.auto is not None
        d = frame.values
        if d["plane"] in self.auto.get("silent", ()):
            return
        if frame.kind == "write":
            psn = d["rel"]
            if psn in self.auto.get("lose", ()):
                return
            for fate in ("drop", "trim"):
                if psn in self.auto.get(fate, ()):
                    self.auto[fate].discard(psn)
                    if fate == "trim":
                        self._reply("nack", d, reason=1)
                    return
            marked = psn in self.auto.get("mark", ())
            self.arrived.add(psn)
            if d["opcode"] not in (0xC6, 0xC7):
                self.ends[psn] = d["msn"]
            self._sack(d, m=int(marked))
            done = [end for end in self.ends if end <= self._cumulative()]
            if done:
                self._reply("ack", d, psn=max(done), msn=self.ends[max(done)] + 1)
        elif frame.kind == "probe":
            left = self.auto.get("probes")
            if left is None or max(left) > 0:
                self.auto |= {} if left is None else {"probes": {max(left) - 1}}
                self._sack(d)
        elif frame.kind == "request":
            self._reply("response", d)

    def _cumulative(self) -> int:
        cack = -1
        while cack + 1 in self.arrived:
            cack += 1
        return cack

    def _sack(self, d: dict[str, int], **more: int) -> None:
        cack = self._cumulative()
        above = sorted(psn for psn in self.arrived if cack < psn <= cack + 64)
        special = {"has": ",".join(map(str, above))} if above else {}
        self._reply(
            "sack",
            d,
            special,
            cack=cack,
            rcvd_bytes=17 * len(self.arrived),
            ooo_count=len(self.arrived) - cack - 1,
            **more,
        )

    def _reply(
        self, kind: str, d: dict[str, int], special: dict[str, str] | None = None, **given: int
    ) -> None:
        self.known["auto"] = d
        self._feedback(kind, given, {"to": "$auto", **(special or {})})
        self.target.send(*self._frame(kind, given))

    # --- why --------------------------------------------------------------------------------------

    def _sides(self, failed: Failed) -> list[tuple[str, str, str]]:
        if not failed.got:
            return []
        d = failed.got[0]
        rows = [
            (key.rstrip("<>!"), self._asked(key, text), self._shown(d, key.rstrip("<>!")))
            for key, text in failed.wanted.items()
            if key not in ("within", "for")
        ]
        return [
            *rows,
            *(
                (key, "", text)
                for key, text in codec.shown(d).items()
                if key not in {row[0] for row in rows}
            ),
        ]

    @staticmethod
    def _asked(key: str, text: str) -> str:
        return {"<": "at most ", ">": "at least ", "!": "not "}.get(key[-1], "") + text

    @staticmethod
    def _shown(d: Frame, key: str) -> str:
        if key in d.sets:
            return ",".join(map(str, sorted(v for v in d.sets[key] if v >= 0)[:12])) or "none"
        return f"{d.values.get(key)}{' bytes' if key == 'payload' else ''}"
