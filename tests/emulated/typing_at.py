"""The prompt with somebody typing at it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed import terminal
from testbed.emulated.cluster import Cluster
from testbed.prompt.cli import Prompt


@contextmanager
def typing_at(cluster: Cluster, directory: Path, text: io.StringIO) -> Iterator[Callable[[str], str]]:
    """Types a line; returns what was printed to ``text``. ``directory`` takes an empty script."""
    empty = directory / "empty"
    empty.write_text("")
    reader, writer = os.pipe()
    try:
        with open(reader) as stdin:
            prompt = Prompt(cluster, terminal.console(160, file=text), stdin=stdin, script=str(empty))

            def typed(line: str) -> str:
                text.seek(0)
                text.truncate()
                assert prompt.onecmd(line) is None, "the prompt goes on"
                return text.getvalue()

            yield typed
    finally:
        os.close(writer)
