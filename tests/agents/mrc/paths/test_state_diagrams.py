"""The diagrams of states in docs/protocol.md are those of the tables.

``python -m tests.agents.mrc.paths.test_state_diagrams`` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agents.mrc.paths import ev_state, plane_state

PAGE = Path(__file__).parents[4] / "docs/protocol.md"
TABLES = {"EV states": ev_state, "plane states": plane_state}


def diagram(states: tuple[str, ...], events: tuple[str, ...], transitions: Mapping[tuple[int, int], int], first: int = 0) -> str:
    """A table of transitions as a Mermaid diagram. Events that lead from one state to the same other share an arrow; those that change
    nothing are left out."""
    arrows: dict[tuple[int, int], list[str]] = {}
    for (state, event), after in transitions.items():
        if state != after:
            arrows.setdefault((state, after), []).append(events[event])
    lines = [f"    [*] --> {states[first]}", *(f"    {states[a]} --> {states[b]}: {', '.join(names)}" for (a, b), names in arrows.items())]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def written(page: str, name: str) -> str:
    """The page with a diagram as its table has it now."""
    table = TABLES[name]
    begin, end = f"<!-- {name}: begin -->\n", f"\n<!-- {name}: end -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    assert found, f"{PAGE.name} has no place for the diagram of {name}"
    return before + begin + diagram(table.STATE_NAMES, table.EVENT_NAMES, table.TRANSITIONS) + end + after


@pytest.mark.parametrize("name", TABLES)
def test_the_page_shows_the_table(name: str) -> None:
    page = PAGE.read_text()
    assert page == written(page, name), "python -m tests.agents.mrc.paths.test_state_diagrams writes it"


if __name__ == "__main__":
    text = PAGE.read_text()
    for each in TABLES:
        text = written(text, each)
    PAGE.write_text(text)
