"""`mapper` at the prompt: probes on, a link broken, the table that names it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mrcbed.prompt.mapper import MapperCommands
from testbed import terminal
from testbed.emulated.cluster import Cluster
from testbed.errors import UserError
from tests.emulated.ring import Ring, wait_until

pytestmark = pytest.mark.sandbox
Say = Callable[[str], str]


@pytest.fixture
def say(tiny: Cluster, tmp_path: Path) -> Iterator[Say]:
    tmp_path.chmod(0o777)
    tiny.start_agents("mrc", {}, tmp_path, seed=3)
    text = io.StringIO()
    prompt = MapperCommands()
    prompt.cluster, prompt.console = tiny, terminal.console(140, file=text)

    def typed(line: str) -> str:
        text.seek(0)
        text.truncate()
        prompt.do_mapper(line)
        return text.getvalue()

    yield typed
    tiny.stop_agents()
    tiny.heal()


@pytest.mark.quiet
def test_mapper(tiny: Cluster, say: Say) -> None:
    for line, words in (
        ("", "no host probes yet"),
        ("up", "usage"),
        ("on speed=3", "not interval="),
        ("on interval=x", "needs a number"),
        ("on interval=0", "0.1"),
        ("off now", "usage"),
    ):
        with pytest.raises(UserError, match=words):
            say(line)
    say("on interval=1")
    assert wait_until(
        lambda: (
            "no link is or was lossy" in say("")
            and " 0 lost" in say("")
            and "probing: 0 " not in say("")
        )
    )
    tiny.set_link("p0-t0-0:p0-t1-1", False)
    assert wait_until(
        lambda: bool(re.search(r"^ *p0-t0-0:p0-t1-1 +dead +\d+ of \d+ .*h[01]", say(""), re.M))
    )
    ring = Ring(tiny)
    assert ring.run(3) and ring.all_right(), "a collective hears nothing of the probes"
    say("off")
    assert "no longer probing" in say("")
