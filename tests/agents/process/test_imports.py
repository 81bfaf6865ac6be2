"""An agent imports nothing after its set-up: root is dropped then, and the clone may lie in a home
that only root may read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
STORY = """
import sys
import agents.process.host
agents.process.host.collectives()
had = set(sys.modules)
from tests.agents.collective_rig import LooseWorld, collective, flows
for name in agents.process.host.collectives():
    for dtype in ("int32", "float32"):
        n = 2 if name == "ping-pong" else 4
        world = LooseWorld(n, 1)
        assert world.run(collective(world, name, n, 4096, dtype).look), name
world = LooseWorld(4, 1)
assert world.run(flows(world, 4, [{"name": "a", "src": 0, "dst": 1, "start_ps": 0, "for_ps": None, "messages": 2}], 4096).look)
print(sorted(m for m in set(sys.modules) - had if m.startswith(("numpy", "agents.collectives"))))
"""  # noqa: E501


def test_collectives_and_flows_need_nothing_that_is_not_there_at_first() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STORY],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
