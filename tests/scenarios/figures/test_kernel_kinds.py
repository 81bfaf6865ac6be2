"""Scenarios on the kernel's sockets: what may be asked for, and whose frames the books count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.kernel.options import congestion_controls
from scenarios.figures.books import books
from scenarios.schema.scenario import ScenarioError, load_scenario
from testbed.results.record import Counted
from topologies.units import US

HEAD = (
    '[workload]\nkind = "ring-allreduce"\nmessage_bytes = "64KiB"\nsteps = 2\n[[transport]]\n'
    'fabric = "tiny"\n'
)


def load(tmp_path: Path, words: str) -> Any:
    file = tmp_path / "own.toml"
    file.write_text('format = 3\nfabric = "tiny"\n' + HEAD + words)
    return load_scenario(str(file)).transports[0]


def test_they_wait_for_the_network_as_roce_does(tmp_path: Path) -> None:
    made = load(
        tmp_path,
        f'kind = "tcp"\noptions = {{ qps = 3, congestion = "{congestion_controls()[0]}", '
        "user_timeout = 5 }\n",
    )
    assert (made.kind, made.qps, made.reconvergence_ps) == ("tcp", 3, 40 * US)
    assert made.options == {"congestion": congestion_controls()[0], "user_timeout": 5}
    assert (
        load(tmp_path, 'kind = "mptcp"\noptions = { reconvergence = "200us" }\n').reconvergence_ps
        == 200 * US
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            'kind = "tcp"\noptions = { congestion = "warp" }',
            "congestion = 'warp': this kernel has ",
        ),
        ('kind = "mptcp"\noptions = { window = 3 }', "options.window is not a key"),
        ('kind = "tcp"\ncontroller = "hint"', "tcp cannot choose its paths"),
        ('kind = "mptcp"\nclustermapper = true', "needs raw sockets, which mptcp does not use"),
        ('kind = "tcp"\nclustermapper = { policy = "report" }', "needs raw sockets"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, words: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said) as caught:
        load(tmp_path, words + "\n")
    assert "\n" not in str(caught.value)


def port(name: str, node: str, **counts: int) -> dict[str, Any]:
    zero = (
        "admitted_packets",
        "arrived_packets",
        "drop_tail_packets",
        "drop_link_down_packets",
        "drop_fault_loss",
        "flushed_packets",
    )
    return {
        "port": name,
        "node": node,
        "peer": "",
        "link": "l",
        "plane": 0,
        "kind": "nic",
        **dict.fromkeys(zero, 0),
        **counts,
    }


def test_hosts_ports_count_what_agents_cannot_see() -> None:
    """10 admitted of 14 that h0's kernel wanted to send, 3 of them background's; 1 lost at the last
    hop, 1 flushed in the switch."""
    after = [
        port(
            "h0-p0",
            "h0",
            admitted_packets=10,
            drop_tail_packets=3,
            drop_link_down_packets=1,
            background_left=3,
            background_drop_tail=1,
        ),
        port("p0-t0-0-d0", "p0-t0-0", arrived_packets=10),
        port("p0-t0-0-d1", "p0-t0-0", admitted_packets=10, flushed_packets=1),
        port("h1-p0", "h1", arrived_packets=9, drop_fault_loss=1, background_arrived=2),
    ]
    record = Counted(kind="tcp", agent_counters={"0": {"retransmitted": 4}}, counters_after=after)
    made = books(record)
    assert (made.sent, made.delivered, made.lost, made.unexplained) == (11, 6, 5, 0)
    assert made.causes == {"drop_tail": 2, "drop_link_down": 1, "drop_fault_loss": 1, "flushed": 1}
    assert (
        made.background is not None and made.background.unexplained == 0 and made.retransmitted == 4
    )
    after[3]["arrived_packets"] -= 1
    assert books(record).unexplained == 1
