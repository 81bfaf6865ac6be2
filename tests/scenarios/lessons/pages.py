"""What the pages of the lessons tell a student to type, and what they say that the terminal
answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from docs.tools.check import ROOT

PAGES = sorted((ROOT / "docs" / "start" / "lessons").glob("[0-9]*.md"))
SIMULATED = [page for page in PAGES if "\n$ sudo " not in page.read_text()]
"""Those that need no root; tests/emulated/test_verbs_lesson.py plays the other one."""
_FENCE = re.compile(
    r"(?:Save this as \*([\w.-]+)\*:\n)?^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE
)


@dataclass
class Typed:
    """A command of a page, or a block of Python; ``replies`` are the lines after it, with ``...``
    for lines that are left out."""

    text: str
    python: bool = False
    file: str = ""
    """To be saved under this name, instead."""
    replies: list[str] = field(default_factory=list)


def typed(page: Path) -> Iterator[Typed]:
    """Everything that a page tells a student to type, in its order."""
    for file, language, block in _FENCE.findall(page.read_text()):
        if file:
            yield Typed(block, file=file)
        elif language == "python":
            yield Typed(block, python=True)
        elif language != "text":  # a drawing
            assert language == "", f"what is a student to do with a block of {language}?"
            yield from _commands(block)


def _commands(block: str) -> list[Typed]:
    commands: list[Typed] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            commands.append(Typed(line[2:]))
        else:
            assert commands, f"a block without a command: {line}"
            commands[-1].replies.append(line)
    return commands


def fits(replies: list[str], output: str) -> bool:
    """Whether an output is what the page says: the same lines, any number of lines for each
    ``...``; without replies, any output."""
    pattern = "".join(r"(?:.*\n)*" if line == "..." else re.escape(line) + "\n" for line in replies)
    return (
        not replies
        or re.fullmatch(pattern, output if output.endswith("\n") else output + "\n") is not None
    )
