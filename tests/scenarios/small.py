"""A small scenario of the tests' own, which no change to the shipped ones changes: three
transports, two fabrics, a cable that dies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scenarios.schema.scenario import Scenario, load_scenario
from scenarios.show.plots import figures

TRANSPORTS = """
[[transport]]
kind = "mrc"
[[transport]]
kind = "roce"
[[transport]]
kind = "roce"
name = "roce-1p"
fabric = "twin"
"""
TEXT = f"""
format = 3
fabric = "tiny"
timeout = "30s"
[workload]
kind = "ring-allreduce"
placement = "interleaved"
message_bytes = "40KiB"
steps = 12
warmup_steps = 0
{TRANSPORTS}[[fault]]
name = "cable pulled"
kind = "link"
on = "used-by-qp"
at = "10us"
for = "10us"
[[expect]]
check = "mrc.wrong == 0"
"""


def small(directory: Path, more: str = "", **given: Any) -> Scenario:
    """The scenario ``small``, with ``more`` at the end of its file; ``given`` as load_scenario
    takes it."""
    file = directory / "small.toml"
    file.write_text(TEXT + more)
    return load_scenario(str(file), **given)


@contextmanager
def undrawn() -> Iterator[None]:
    """Runs leave no figures and no report meanwhile: seconds each, for tests whose subject they are
    not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scenarios.show.plots.draw_all", lambda directory: [])
        patch.setattr("scenarios.show.replay_page.replay", lambda directory: directory)
        patch.setattr("scenarios.show.html.write_report", lambda directory: directory)
        yield


@contextmanager
def only_drawn(*kinds: str) -> Iterator[None]:
    """Of all figures only these kinds are drawn meanwhile: the others take seconds where no test
    looks at them."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in figures().keys() - set(kinds):
            patch.setitem(figures(), kind, lambda stored, directory: [])
        yield


def changed(name: str, edit: Callable[[Any], Any]) -> Callable[[Path], None]:
    """What edits a JSON file of a results directory."""

    def harm(directory: Path) -> None:
        data = json.loads((directory / name).read_text())
        edit(data)
        (directory / name).write_text(json.dumps(data))

    return harm
