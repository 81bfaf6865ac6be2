"""The prompt with somebody typing at it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mrcbed.prompt.cli import Prompt
from testbed import terminal
from testbed.emulated.cluster import Cluster


@contextmanager
def typing_at(
    cluster: Cluster, directory: Path, text: io.StringIO, refused: list[bool] | None = None
) -> Iterator[Callable[[str], str]]:
    """Types a line; returns what was printed to ``text``. ``directory`` takes an empty script,
    ``refused`` whether each line was."""
    refused = [] if refused is None else refused
    empty = directory / "empty"
    empty.write_text("")
    reader, writer = os.pipe()
    try:
        with open(reader) as stdin:
            prompt = Prompt(
                cluster, terminal.console(160, file=text), stdin=stdin, script=str(empty)
            )

            def typed(line: str) -> str:
                text.seek(0)
                text.truncate()
                before = prompt.failed
                assert prompt.onecmd(line) is None, "the prompt goes on"
                refused.append(prompt.failed > before)
                return text.getvalue()

            yield typed
    finally:
        os.close(writer)
