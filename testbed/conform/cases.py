"""Reads cases: text files of steps. docs/reference/conform.md has the language; this module knows
nothing of packets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import UserError, first_line

SHIPPED = Path(__file__).with_name("cases")
STEPS = {
    "peer psn=N mpr=N": "first of all: what the judge says of itself",
    "send KIND [NAME] KEY=VALUE...": (
        "send a packet: write, ack, sack, nack, probe, request or response. NAME remembers it"
    ),
    "expect KIND [NAME] KEY=VALUE... [within=RTTS]": (
        "such a packet must come, by default within two base RTTs (on interfaces three); it "
        "is then used up"
    ),
    "never KIND KEY=VALUE... [for=RTTS]": (
        "no such packet may come, nor have come and not been used up"
    ),
    "wait RTTS": "let time pass",
    "clear": "forget what has come",
    "post write bytes=N [imm=N]": "the target's program posts a write",
    "post recv": "the target's program posts a receive request",
    "completion write|receive [status=WORD] [imm=N]": "its next finished request",
    "completion none": "no request has finished",
    "port PLANE up|down": "the target's port",
    "memory AT LENGTH written|untouched": "what lies there",
    "auto [drop=PSNS] [trim=PSNS] [mark=PSNS] [lose=PSNS] [silent=PLANES] [probes=N]": (
        "from now on answer as a receiver; the first packets of these PSNs are lost, trimmed "
        "or marked, or all lost; N probes are answered"
    ),
}
VERBS = tuple(dict.fromkeys(usage.split()[0] for usage in STEPS))
KEYS = {
    "send write": (
        "k of of: the number of this packet in its message, and of all; start: PSN of the "
        "message's first; at: offset in memory; last: bytes of the last packet; a: asks for a "
        "SACK"
    ),
    "send": (
        "ev, plane, dscp, ecn; to=$NAME: which packet it answers; trim=1|2: as a switch leaves "
        "it (2: on the last hop); icrc=bad; cut: bytes that are left; from_host; count"
    ),
    "sack": "cack, trigger, probe; has, lacks: PSNs that it says have arrived, or not",
    "any packet": "rel: its PSN as counted here; plane, ev, payload, pad",
}


@dataclass(frozen=True)
class Step:
    verb: str
    words: tuple[str, ...]
    keys: dict[str, str]
    text: str
    line: int


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    source: str
    steps: tuple[Step, ...]


def read(file: Path) -> Iterator[Case]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise UserError(f"{file}: {first_line(error)}") from None
    name, title, source = "", "", ""
    steps: list[Step] = []
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        if bare.startswith("== "):
            if name:
                yield Case(name, title, source, tuple(steps))
            parts = [part.strip() for part in bare[3:].split("|")]
            if len(parts) != 3 or not re.fullmatch(r"[a-z0-9-]+", parts[0]):
                raise UserError(
                    f"{file}:{number}: a case begins with '== NAME | WHAT IT SAYS | SECTION'"
                )
            name, title, source, steps = f"{file.stem}/{parts[0]}", parts[1], parts[2], []
            continue
        try:
            verb, *rest = shlex.split(bare, comments=True)
        except ValueError as error:
            raise UserError(f"{file}:{number}: {error}: {bare[:80]}") from None
        if verb not in VERBS or not name:
            raise UserError(
                f"{file}:{number}: {verb[:40]!r}: a step of a case begins with {', '.join(VERBS)}"
            )
        pairs = [re.match(r"([a-z_]+)(=|>=|<=|!=)(.+)", word) for word in rest]
        keys = {
            (pair[1] if pair[2] == "=" else pair[1] + pair[2][0]): pair[3] for pair in pairs if pair
        }
        steps.append(
            Step(
                verb,
                tuple(word for word, pair in zip(rest, pairs, strict=True) if not pair),
                keys,
                bare,
                number,
            )
        )
    if name:
        yield Case(name, title, source, tuple(steps))


def every(files: list[Path]) -> list[Case]:
    """Raises :class:`UserError`, also for a name that occurs twice."""
    cases = [case for file in files or sorted(SHIPPED.glob("*.txt")) for case in read(file)]
    names = [case.name for case in cases]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two cases are called {name}")
    return cases
