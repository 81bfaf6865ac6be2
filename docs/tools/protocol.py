"""Tables and diagrams of docs/why/protocol.md that come from code: ``python -m
docs.tools.protocol`` writes them between their markers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from agents.mrc.paths import ev_state, plane_state
from docs.tools.check import ROOT
from testbed.conform.layouts import AFTER_BTH, CLASSES, HEADERS, PACKETS, REASONS, SYNDROMES, size

PAGE = ROOT / "docs" / "why" / "protocol.md"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _place(bit: int, width: int) -> str:
    """Bytes, and bits from the most significant of the first one where a field is no whole
    bytes."""
    first, last = bit // 8, (bit + width - 1) // 8
    octets = f"{first}-{last}" if last > first else f"{first}"
    if bit % 8 == 0 and width % 8 == 0:
        return octets
    return f"{octets}, bit {bit % 8}" + (f"-{bit % 8 + width - 1}" if width > 1 else "")


def layouts() -> str:
    parts = []
    for name, fields in HEADERS.items():
        rows, bit = [], 0
        for field in fields:
            rows.append(
                (_place(bit, field.width), field.text + (", signed" if field.signed else ""))
            )
            bit += field.width
        parts.append(f"**{name}** ({size(name)} bytes)\n" + _table(("bytes", "field"), rows))
    return "\n\n".join(parts)


def opcodes() -> str:
    return _table(
        ("opcode", "packet", "after the BTH"),
        ((f"{code:02X}", name, ", ".join(AFTER_BTH[code]) + (", payload" if code <= 0xCB else ""))
         for code, name in sorted(PACKETS.items())),
    )  # fmt: skip


def values() -> str:
    """Syndromes and reasons."""
    syndromes = _table(
        ("syndrome of an ACK", "is"), ((f"{value:02X}", text) for value, text in SYNDROMES.items())
    )
    sent = {True: "yes", False: "no, accepted"}
    reasons = _table(
        ("reason of a NACK", "name", "sent"),
        ((f"{value:02X}", name, sent[ours]) for value, (name, ours) in REASONS.items()),
    )
    return f"{syndromes}\n\n{reasons}"


def classes() -> str:
    return _table(("DSCP", "name", "who"), ((str(value), *row) for value, row in CLASSES.items()))


def diagram(
    states: tuple[str, ...],
    events: tuple[str, ...],
    transitions: Mapping[tuple[int, int], int],
    first: int = 0,
) -> str:
    """A table of transitions as a Mermaid diagram. Events that lead from one state to the same
    other share an arrow; those that change nothing are left out."""
    arrows: dict[tuple[int, int], list[str]] = {}
    for (state, event), after in transitions.items():
        if state != after:
            arrows.setdefault((state, after), []).append(events[event])
    lines = [
        f"    [*] --> {states[first]}",
        *(
            f"    {states[a]} --> {states[b]}: {', '.join(names)}"
            for (a, b), names in arrows.items()
        ),
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def transitions(
    states: tuple[str, ...], events: tuple[str, ...], table: Mapping[tuple[int, int], int]
) -> str:
    """The state after each event; a dash where the event cannot happen."""
    rows = (
        [
            f"**{state}**",
            *(
                states[table[number, event]] if (number, event) in table else "-"
                for event in range(len(events))
            ),
        ]
        for number, state in enumerate(states)
    )
    return _table(["", *events], rows)


def _states(module: object) -> str:
    states, events, table = (
        getattr(module, name) for name in ("STATE_NAMES", "EVENT_NAMES", "TRANSITIONS")
    )
    return f"{diagram(states, events, table)}\n\n{transitions(states, events, table)}"


PARTS: dict[str, Callable[[], str]] = {
    "opcodes": opcodes,
    "layouts": layouts,
    "values": values,
    "DSCP classes": classes,
    "EV states": lambda: _states(ev_state),
    "plane states": lambda: _states(plane_state),
}


def written(page: str, name: str) -> str:
    """The page with one of its parts as the code has it now. Raises ValueError if it has no place
    for it."""
    begin, end = f"<!-- {name}: begin -->\n", f"\n<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"{PAGE.name} has no place for {name}")
    return before + begin + PARTS[name]() + end + after


if __name__ == "__main__":
    text = PAGE.read_text()
    for each in PARTS:
        text = written(text, each)
    PAGE.write_text(text)
