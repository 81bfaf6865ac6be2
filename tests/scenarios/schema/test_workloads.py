"""Workloads: what is read of patterns and collectives, who sends to whom, and that every mistake is
one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.collectives.registry import collectives
from scenarios.run.planning import plan
from scenarios.schema.fabrics import QueueOptions, figures, variant_of
from scenarios.schema.scenario import ScenarioError, load_scenario
from scenarios.schema.workloads import (
    Flow,
    Workload,
    edges_of,
    most_senders,
    resolve_flows,
    watched_ports,
)
from scenarios.show.plan import warnings
from topologies import Fabric, load_fabric
from topologies.theory import COLLECTIVES, place_ranks
from topologies.units import US

RACK = load_fabric("rack16")
ALL = list(range(16))
HEAD = 'format = 3\nfabric = "rack16"\n[[transport]]\nkind = "mrc"\n[workload]\n'
INCAST = HEAD + 'kind = "incast"\nmessage_bytes = "64KiB"\nsenders = 7\nduration = "100us"\n'
FLOWS = HEAD + (
    'kind = "flows"\nmessage_bytes = "64KiB"\n[[workload.flow]]\nsrc = "h0"\ndst = "h9"\n'
    'for = "100us"\n'
)
STEPS = HEAD + 'kind = "all-to-all"\nmessage_bytes = "64KiB"\nsteps = 3\n'
SECOND = '[[workload.flow]]\nsrc = "h0"\ndst = "h9"\nmessages = 2\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (INCAST.replace("senders = 7\n", ""), "workload.senders is missing"),
        (
            INCAST.replace("= 7", "= 16"),
            "workload.senders = 16: fabric 'rack16' has 15 hosts beside the target",
        ),
        (
            INCAST.replace("= 7", "= 8\nvictim = true"),
            "workload.senders = 8: a victim needs a host under another T0",
        ),
        (INCAST + 'victim_alone = "50us"\n', "workload.victim_alone needs victim = true"),
        (INCAST + 'settle = "100us"\n', "workload.settle must be shorter than 'duration'"),
        (
            INCAST.replace('duration = "100us"', 'messages = 3\nstagger = "5us"'),
            "workload.stagger needs 'duration'",
        ),
        (
            FLOWS.replace("[[workload.flow]]", 'settle = "100us"\n[[workload.flow]]'),
            "workload.settle must be shorter than each flow's 'for'",
        ),
        (
            INCAST.replace('duration = "100us"', "messages = 3\nvictim = true"),
            "workload.victim needs 'duration'",
        ),
        (
            INCAST + "messages = 3\n",
            "workload needs either 'duration' (like '800us') or 'messages'",
        ),
        (INCAST.replace('"100us"', "0"), "workload.duration = 0 must be longer than 0"),
        (
            INCAST + "steps = 3\n",
            (
                "workload.steps is not for kind = 'incast', which has outstanding, settle, "
                "duration, messages, senders, stagger, victim"
            ),
        ),
        (INCAST + 'placement = "packed"\n', "workload.placement is not for kind = 'incast'"),
        (
            INCAST.replace("64KiB", "16MiB"),
            "workload.message_bytes = 16777216 : the flows of rank 8 need",
        ),
        (STEPS.replace("64KiB", "1000"), "workload.message_bytes = 1000 must be a multiple of 256"),
        (
            STEPS.replace("all-to-all", "tree-allreduce").replace('"rack16"', '"FLAT"'),
            "workload.kind : tree-allreduce over 6 ranks",
        ),
        (
            STEPS + 'placement = "pack"\n',
            "workload.placement = 'pack': there are packed, interleaved, did you mean 'packed'?",
        ),
        (
            STEPS + "placement = []\n",
            "workload.placement = [] must be one of packed, interleaved, or a list of one or more",
        ),
        (
            STEPS.replace("all-to-all", "all2all"),
            "workload.kind = 'all2all': there are ring-allreduce, tree-allreduce",
        ),
        (FLOWS.replace('"h9"', '"h99"'), "workload.flow[0] : fabric 'rack16' has no host 'h99'"),
        (FLOWS.replace('"h9"', '"h0"'), "workload.flow[0] : h0 cannot send to itself"),
        (FLOWS + SECOND, "workload.flow names are not unique (h0-h9, h0-h9)"),
        (FLOWS.replace('for = "100us"', ""), "workload.flow[0] needs either 'for'"),
        (FLOWS.split("[[workload.flow]]")[0], "workload.flow is empty"),
        (
            FLOWS + '[[fault]]\nkind = "link"\non = "p0-t0-0:p0-t1-0"\nstep = 1\n',
            "fault[0].step is for collectives",
        ),
        (
            INCAST.replace('kind = "mrc"', 'kind = "mrc"\nfabric_options = { trimming = 1 }'),
            "trimming = 1 must be true or false",
        ),
        (
            INCAST.replace('kind = "mrc"', 'kind = "mrc"\nfabric_options = { buffer_bdp = 1 }'),
            "buffer_bdp = 1.0 must be a number in 2..",
        ),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    flat = tmp_path / "flat.toml"
    flat.write_text(
        "format = 3\nplanes = 2\nt0_per_plane = 2\nt1_per_plane = 2\nhosts_per_t0 = 3\n"
    )
    file = tmp_path / "mine.toml"
    file.write_text(text.replace("FLAT", str(flat)))
    with pytest.raises(ScenarioError) as caught:
        load_scenario(str(file))
    assert message in str(caught.value)
    assert "mine.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_collective_that_agents_know_has_a_theory() -> None:
    # of programs and of perf; no scenario runs them
    assert set(COLLECTIVES) == set(collectives()) - {"broadcast", "ping-pong"}


def test_seven_to_one_with_a_victim() -> None:
    work = load_scenario("incast-victim", overrides=["workload.duration=400us"]).workload
    flows = resolve_flows(work, RACK, ALL, 1)
    assert [(f.name, f.src, f.dst) for f in flows[:7]] == [(f"h{i}-h8", i, 8) for i in range(7)]
    assert flows[7] == Flow("victim", "victim", 7, 9, 0, 800 * US, None)
    assert all((f.start_ps, f.for_ps) == (400 * US, 400 * US) for f in flows[:7])
    ports = watched_ports(flows, RACK, ALL)
    assert [p for p, group in ports.items() if group == "incast"] == [
        f"p{p}-t0-1-d0" for p in range(4)
    ]
    assert [p for p, group in ports.items() if group == "victim"] == [
        f"p{p}-t0-1-d1" for p in range(4)
    ]


def test_senders_come_one_after_the_other_and_end_together() -> None:
    work = load_scenario(
        "incast-victim", overrides=["workload.duration=400us", "workload.stagger=50us"]
    ).workload
    flows = resolve_flows(work, RACK, ALL, 1)
    assert [f.start_ps for f in flows[:7]] == [400 * US + i * 50 * US for i in range(7)]
    assert {f.start_ps + (f.for_ps or 0) for f in flows} == {1100 * US} == {work.lasts_ps}


def test_fifteen_to_one_is_everyone_else() -> None:
    flows = resolve_flows(load_scenario("incast-15").workload, RACK, ALL, 1)
    assert [f.src for f in flows] == [h for h in ALL if h != 8] and {f.dst for f in flows} == {8}
    assert {f.messages for f in flows} == {8} and {f.for_ps for f in flows} == {None}


def test_flows_follow_ranks_not_hosts() -> None:
    hosts = place_ranks(RACK, "interleaved")
    flows = resolve_flows(Workload("incast", senders=3, messages=1), RACK, hosts, 1)
    assert [(hosts[f.src], hosts[f.dst]) for f in flows] == [(0, 8), (1, 8), (2, 8)]


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 1000))
def test_permutations_are_seeded_derangements_across_t0s(t0s: int, hosts: int, seed: int) -> None:
    """Everyone sends once and receives once, nobody to itself; with several T0s every flow crosses
    them."""
    if t0s * hosts < 2:
        return
    fabric = Fabric("any", 2, t0s, 2, hosts)
    ranks = list(range(fabric.host_count))
    work = Workload("permutation", duration_ps=1)
    flows = resolve_flows(work, fabric, ranks, seed)
    assert flows == resolve_flows(work, fabric, ranks, seed)
    assert sorted(f.src for f in flows) == sorted(f.dst for f in flows) == ranks
    assert all(f.src != f.dst for f in flows)
    assert t0s == 1 or all(fabric.t0_of(f.src) != fabric.t0_of(f.dst) for f in flows)


def test_seeds_give_different_permutations() -> None:
    work = Workload("permutation", duration_ps=1)
    assert (
        len({tuple(f.dst for f in resolve_flows(work, RACK, ALL, seed)) for seed in range(20)})
        == 20
    )


def test_edges_put_ring_neighbours_first() -> None:
    assert edges_of(Workload("all-gather"), RACK, ALL, 1) == [(r, (r + 1) % 16) for r in ALL]
    every = edges_of(Workload("all-to-all"), RACK, ALL, 1)
    assert every[:2] == [(0, 1), (1, 2)] and len(every) == len(set(every)) == 16 * 15
    assert edges_of(Workload("incast", senders=2, messages=1), RACK, ALL, 1) == [(0, 8), (1, 8)]


def test_fault_on_a_flows_cable_must_be_one_of_its_pairs(tmp_path: Path) -> None:
    text = FLOWS + '[[fault]]\nkind = "link"\non = "used-by-qp"\nat = "50us"\nranks = [3, 4]\n'
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=r"no QP from rank 3 to 4 \(h3 to h4\); use \[0, 9\]"):
        plan(load_scenario(str(file)))


def test_variants_are_named_after_what_differs() -> None:
    transports = load_scenario("incast-victim", overrides=["workload.duration=400us"]).transports
    fabrics = {t.name: t.fabric for t in transports}
    assert fabrics["mrc"] == RACK and fabrics["roce-8"] == RACK
    assert (fabrics["mrc-no-trim"].name, fabrics["mrc-no-trim"].trimming) == (
        "rack16-no-trimming",
        False,
    )
    assert (fabrics["mrc-last-hop-ecn"].name, fabrics["mrc-last-hop-ecn"].last_hop_ecn) == (
        "rack16-last-hop-ecn",
        True,
    )
    assert variant_of(RACK, QueueOptions(trimming=True, last_hop_ecn=False)) is RACK
    assert (
        variant_of(RACK, QueueOptions(buffer_bdp=4.5, trimming=False)).name
        == "rack16-buffer-bdp-4_5-no-trimming"
    )
    assert next(t.qps for t in transports if t.name == "roce-8") == 8


def test_figures_of_a_fabric_are_bytes_and_none_where_off() -> None:
    made = figures(RACK)
    bdp = RACK.plane_bdp
    assert made["ecn_bytes"] == [int(0.2 * bdp), int(0.8 * bdp)] and made[
        "trim_last_hop_bytes"
    ] == int(1.5 * bdp)
    assert (made["buffer_bytes"], made["last_hop_ecn"]) == (8 * bdp, False)
    off = figures(RACK.with_(trimming=False, ecn=False, last_hop_ecn=True))
    assert (
        off["trim_bytes"],
        off["trim_last_hop_bytes"],
        off["ecn_bytes"],
        off["last_hop_ecn"],
    ) == (None, None, None, False)


def test_set_reaches_into_flows() -> None:
    work = load_scenario(
        "ev-balance", overrides=["workload.flow.B.start=100us", "workload.flow.0.for=200us"]
    ).workload
    assert [(f.name, f.start_ps, f.for_ps, f.evs) for f in work.flows] == [
        ("A", 0, 200 * US, 0),
        ("B", 100 * US, 1320 * US, 1),
    ]


@pytest.mark.parametrize(
    ("text", "senders"),
    [(INCAST, 7), (STEPS, 15), (STEPS.replace("all-to-all", "ring-allreduce"), 2), (FLOWS, 1)],
)
def test_more_senders_than_packets_in_a_round_trip_are_a_warning(
    text: str, senders: int, tmp_path: Path
) -> None:
    path = tmp_path / "made.toml"
    path.write_text(text)
    scenario = load_scenario(str(path))
    assert most_senders(scenario.workload, scenario.fabric, 1) == senders
    assert warnings(scenario) == []
    (transport,) = scenario.transports
    holds = transport.fabric.planes * transport.fabric.plane_bdp // transport.fabric.frame_bytes
    crowded = replace(transport, qps=-(-2 * holds // senders))
    (line,) = warnings(replace(scenario, transports=(crowded, replace(crowded, kind="roce"))))
    assert line.startswith(
        f"transport mrc: {senders * crowded.qps} queue pairs send to one host, and its base RTT "
        f"holds {holds} full"
    )
