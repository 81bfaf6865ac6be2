"""What a SACK says on the wire of what is here, what is missing and what asked for it. The rules
are test_responder.py's."""

from __future__ import annotations

import pytest

from agents.mrc import wire
from agents.packets import headers
from tests.agents.mrc.test_hostile import NOW, drain, feed, fresh, write_frame


@pytest.mark.parametrize("here", [{0}, {2}, {0, 1, 5}, {1, 3, 63}, {0, 70}, set(range(100)) - {40}])
def test_cumulative_edge_base_and_bits_name_the_psns_that_are_here(here: set[int]) -> None:
    rig = fresh()
    engine = rig.b.engine
    first = rig.a.engine.qps[rig.a.qpn].first_psn
    for k in sorted(here):
        feed(rig, write_frame(rig, ahead=k, msn=k))
    frames = drain(engine, NOW)
    engine.timer(engine.deadline())
    frames += drain(engine, NOW + engine.config.base_rtt)
    told: set[int] = set()
    edge = next(k for k in range(200) if k not in here)
    for _, frame in frames:
        d = wire.describe(frame)
        if d["name"] != "SACK":
            continue
        cack = headers.psn_delta(d["cack_psn"], first)
        assert cack == edge - 1
        told |= {cack + d["sack_offset"] + i for i in range(64) if d["bitmap"] >> i & 1}
        asked = cack + d["ack_psn_offset"]
        assert asked in here and not d["pr"]
    assert told == {k for k in here if k > edge}
