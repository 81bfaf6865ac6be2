"""What one QP's congestion control is told during an incast, written down: ``python -m
tests.agents.mrc.sender.recorder`` makes data/incast.jsonl.

Two planes, three senders on one receiver behind two uplinks each plane, so that T0's uplinks mark
and its downlinks trim; later two senders stop, then a port goes down and comes back. The first line
says for what configuration, each other line is one call.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents.mrc.config import Config
from agents.mrc.sender.congestion.base import Congestion
from agents.mrc.sender.congestion.nscc import Nscc
from tests.agents.mrc.crowd import Crowd
from topologies.clos import Fabric

FABRIC = Fabric("story", 2, 2, 2, 3, delay_ps=1_500_120)
FILE = Path(__file__).parent / "data" / "incast.jsonl"


class Recorder(Congestion):
    """NSCC, and a list of all that it was told."""

    def __init__(self, config: Config, path_rtt: int) -> None:
        super().__init__(config, path_rtt)
        self.inner = Nscc(config, path_rtt)
        self.calls: list[list[Any]] = []
        self.cwnd = self.inner.cwnd

    def _tell(self, name: str, *args: Any) -> None:
        self.calls.append([name, *args])
        getattr(self.inner, name)(*args)
        self.cwnd = self.inner.cwnd

    def planes_changed(self, live: int) -> None:
        if live != self.inner.live:
            self._tell("planes_changed", live)

    def on_sack(
        self, now: int, news: int, in_flight: int, ecn: bool, rtt: int, penalty: int, restore: bool
    ) -> None:
        self._tell("on_sack", now, news, in_flight, ecn, rtt, penalty, restore)

    def on_nack(self, now: int, size: int, in_flight: int, trimmed: bool) -> None:
        self._tell("on_nack", now, size, in_flight, trimmed)

    def on_loss(self, now: int, size: int) -> None:
        self._tell("on_loss", now, size)

    def on_wrong_loss(self, now: int, size: int) -> None:
        self._tell("on_wrong_loss", now, size)


def record() -> tuple[dict[str, Any], list[list[Any]]]:
    """Run the story; the configuration and the calls of the first sender's QP."""
    crowd = Crowd(
        FABRIC,
        [(3, 0), (4, 0), (5, 0)],
        options={"congestion": "tests.agents.mrc.sender.recorder:Recorder"},
        size=60_000,
    )
    engine = crowd.engines[3]
    mine: Any = engine.qps[crowd.flows[0].qpn].requester.congestion
    crowd.run(40)
    for flow in crowd.flows[1:]:
        flow.endless = False
    crowd.run(25)
    engine.port_state(crowd.net.now, 1, False)
    crowd.run(4)
    engine.port_state(crowd.net.now, 1, True)
    crowd.run(8)
    assert crowd.wrong == 0
    c = mine.config
    told = {
        "base_rtt": c.base_rtt, "port_rate": c.port_rate, "mtu": c.mtu, "trimming": c.trimming,
        "path_rtt": mine.path_rtt,
    }  # fmt: skip
    return told, mine.calls


def main() -> None:
    told, calls = record()
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text("".join(json.dumps(line) + "\n" for line in [told, *calls]))
    print(f"{len(calls)} calls in {FILE}")


if __name__ == "__main__":
    main()
