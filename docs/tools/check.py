"""What Markdown pages name that does not exist: link targets, headings, files, modules and what is
in them, commands.

Fenced blocks are read for paths and modules but not for links. A name with ``<``, ``*``, ``{`` or
NAME in it is a pattern and is left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from mrcbed.cli import COMMANDS, PATHS

ROOT = Path(__file__).resolve().parents[2]
ROOMS = "topologies|agents|testbed|scenarios|mrcbed|tests"
_FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!\\)\]\(<?([^()\s>]+)>?\)")
_PATH = re.compile(rf"(?<![\w./<*-])((?:{ROOMS}|docs|\.github)/[\w./-]*\w/?)(?![\w*<{{])")
_MODULE = re.compile(rf"(?<![\w./-])((?!mrcbed\.qcow2)(?:{ROOMS})(?:\.[A-Za-z_]\w*)+)(?![\w/*-])")
_FILE = re.compile(r"`([\w./-]*\w\.(?:py|c|lua|toml|md|j2))`")
_TEST = re.compile(r"`(test_\w+)`")
_COMMAND = re.compile(
    r"(`|\bsudo |bin/|\$ |-m )?\bmrcbed\s+(?!mrcbed\b)([a-z]+)\b(?:\s+([a-z]+)\b)?"
)


class Tree:
    """The files of the repository, without those that are built, and without the data of runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: set[str] = set()
        for folder, below, names in os.walk(root):
            here = Path(folder).relative_to(root)
            below[:] = [
                b
                for b in below
                if b in (".github", ".ci")
                or not (b.startswith(".") or b in ("build", "dist", "__pycache__"))
            ]
            if here == Path("results"):
                below[:] = [b for b in below if b == "reference"]
            self.files.update(str(here / name) for name in names)
        self.folders = {str(parent) for name in self.files for parent in Path(name).parents}
        text = "".join(
            (root / name).read_text()
            for name in self.files
            if name.startswith("tests/") and name.endswith(".py")
        )
        self.tests = set(re.findall(r"def (test_\w+)", text)) | {
            Path(name).stem for name in self.files
        }
        self.tails = {
            "/".join(Path(name).parts[i:])
            for name in self.files
            for i in range(len(Path(name).parts))
        }

    def has_path(self, path: str) -> bool:
        return path in self.files or path.rstrip("/") in self.folders or path.endswith(".o")

    def has_module(self, dotted: str) -> bool:
        """A package, a module, or a name that the module's text contains."""
        parts = dotted.split(".")
        for i in range(len(parts), 0, -1):
            base = "/".join(parts[:i])
            for file in (f"{base}.py", f"{base}/__init__.py"):
                if file in self.files:
                    text = (self.root / file).read_text()
                    return all(re.search(rf"\b{part}\b", text) for part in parts[i:])
        return False


def no_commands(text: str) -> Iterator[re.Match[str]]:
    """Where a text says `mrcbed WORD` or `mrcbed WORD WORD` and there is no such command. In prose
    ("mrcbed is") other words may follow."""
    for match in _COMMAND.finditer(text):
        typed, first, second = match.groups()
        if f"mrcbed {first}" in COMMANDS:
            found = not second or PATHS.get(second) == f"mrcbed {first} {second}"
        else:
            found = PATHS.get(first) == f"mrcbed {first}" or not (typed or first in PATHS)
        if not found:
            yield match


def pages(root: Path) -> list[Path]:
    return sorted(root / name for name in Tree(root).files if name.endswith(".md"))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Headings as GitHub makes anchors of them, and explicit ones."""
    text = _FENCE.sub("", page.read_text())
    seen: dict[str, int] = {}
    found = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if slug in seen else slug)
        seen[slug] = seen.get(slug, 0) + 1
    return frozenset(found)


def _dead_link(page: Path, target: str) -> bool:
    if re.match(r"[a-z][a-z+.-]*:", target):
        return False
    file, _, anchor = target.partition("#")
    to = (page.parent / file).resolve() if file else page
    return not to.exists() or bool(anchor and to.suffix == ".md" and anchor not in anchors(to))


def troubles(page: Path, tree: Tree) -> Iterator[str]:
    """A line per name of what does not exist."""
    text = page.read_text()
    prose = _FENCE.sub(lambda block: "\n" * block.group().count("\n"), text)
    prose = re.sub(r"`[^`\n]*`", lambda span: " " * len(span.group()), prose)
    name = page.relative_to(tree.root) if page.is_relative_to(tree.root) else page

    def line(position: int) -> str:
        return f"{name}:{text.count(chr(10), 0, position) + 1}"

    for match in _LINK.finditer(prose):
        if _dead_link(page, match[1]):
            yield f"{line(match.start())}: link leads nowhere: {match[1]}"
    for match in _PATH.finditer(text):
        if not ("NAME" in match[1] or tree.has_path(match[1].rstrip("."))):
            yield f"{line(match.start())}: no such path: {match[1]}"
    for match in _MODULE.finditer(text):
        if not (
            match[1].endswith((".parquet", ".jsonl"))
            or match[1] in tree.tails
            or tree.has_module(match[1])
        ):
            yield f"{line(match.start())}: no such module or name in it: {match[1]}"
    for match in _FILE.finditer(text):
        if not (
            match[1] in tree.tails or _PATH.match(match[1]) or (page.parent / match[1]).exists()
        ):
            yield f"{line(match.start())}: no such file: {match[1]}"
    for match in no_commands(text):
        yield f"{line(match.start())}: no such command: {' '.join(match[0].split())}"
    for match in _TEST.finditer(text):
        if match[1] not in tree.tests:
            yield f"{line(match.start())}: no such test: {match[1]}"
