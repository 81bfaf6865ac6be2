"""What is denied, what never is, and when it is allowed again."""

from __future__ import annotations

import pickle
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.clustermapper.localise import DEAD, LOSSY, Finding
from agents.clustermapper.options import Options
from agents.clustermapper.policy import Policy, cut
from topologies import load_fabric
from topologies.denylist import denied
from topologies.paths import path_evs, path_links

TINY = load_fabric("tiny")
DEMO = load_fabric("demo")
RTT = DEMO.base_rtt_ps
NIC = "h3:p1-t0-0"
UPPER = "p1-t0-0:p1-t1-2"


def lossy(name: str, rate: float = 0.2) -> Finding:
    return Finding(name, LOSSY, (name,), rate, True, 0, 30, round(30 * rate))


def dead(name: str, *links: str, carrier: bool = True) -> Finding:
    return Finding(name, DEAD, links or (name,), 1.0, carrier, 0)


def test_a_lossy_nic_link_is_denied_once_and_an_upper_one_left_to_mrc() -> None:
    policy = Policy(DEMO, Options())
    (made,) = policy.decide(0, [lossy(NIC), lossy(UPPER)])
    assert made[:2] == ("deny", NIC) and "6 of 30" in made.reason
    assert policy.decide(1, [lossy(NIC), lossy(UPPER)]) == []


def test_modes() -> None:
    assert Policy(DEMO, Options(policy="report")).decide(0, [lossy(NIC), lossy(UPPER)]) == []
    switch = dead("p0-t1-1", "p0-t0-0:p0-t1-1", "p0-t0-1:p0-t1-1")
    made = Policy(DEMO, Options(policy="all")).decide(0, [lossy(NIC), lossy(UPPER), switch])
    assert {(d.what, d.entry) for d in made} == {
        ("deny", NIC),
        ("deny", UPPER),
        ("deny", "p0-t1-1"),
    }


def test_a_port_without_carrier_is_the_hosts_own_business() -> None:
    assert Policy(DEMO, Options(policy="all")).decide(0, [dead(NIC, carrier=False)]) == []
    assert [d.what for d in Policy(DEMO, Options()).decide(0, [dead(NIC)])] == ["deny"]


def test_it_is_allowed_after_a_hold_down_that_doubles() -> None:
    policy = Policy(DEMO, Options(hold=10))
    now = 0
    for hold in (10, 20, 40):
        assert [d.what for d in policy.decide(now, [lossy(NIC)])] == ["deny"]
        now += RTT
        assert policy.decide(now, []) == []
        assert policy.decide(now + (hold - 1) * RTT, []) == []
        assert policy.decide(now + (hold - 1) * RTT, [lossy(NIC)]) == [], (
            "not clear yet: the hold-down begins anew"
        )
        now += hold * RTT
        assert policy.decide(now, []) == []
        (made,) = policy.decide(now + hold * RTT, [])
        assert made[:2] == ("allow", NIC)
        now += 2 * hold * RTT
    assert policy.denied == {}


def test_the_last_live_plane_of_a_host_is_never_denied() -> None:
    policy = Policy(TINY, Options())
    assert [d.what for d in policy.decide(0, [lossy("h0:p0-t0-0")])] == ["deny"]
    both = [lossy("h0:p0-t0-0"), lossy("h0:p1-t0-0", 0.02)]
    (made,) = policy.decide(1, both)
    assert made[:2] == ("kept", "h0:p1-t0-0")
    assert policy.decide(2, both) == [], "said once"
    assert set(policy.denied) == {"h0:p0-t0-0"}


def test_two_hosts_keep_a_plane_in_common() -> None:
    policy = Policy(TINY, Options())
    made = policy.decide(0, [lossy("h0:p0-t0-0"), lossy("h3:p1-t0-1")])
    assert sorted(d.what for d in made) == ["deny", "kept"]


def test_a_denial_is_lifted_when_everything_else_dies() -> None:
    policy = Policy(TINY, Options())
    policy.decide(0, [lossy("h0:p0-t0-0")])
    made = policy.decide(1, [lossy("h0:p0-t0-0"), dead("h0:p1-t0-0", carrier=False)])
    assert [d[:2] for d in made] == [("allow", "h0:p0-t0-0"), ("kept", "h0:p0-t0-0")]
    assert policy.denied == {}
    assert [d[:2] for d in policy.decide(2, [lossy("h0:p0-t0-0")])] == [("deny", "h0:p0-t0-0")], (
        "once the other is back"
    )


def test_a_dead_plane_counts_as_gone() -> None:
    policy = Policy(TINY, Options())
    gone = dead("p1-t0-0", "h0:p1-t0-0", "h1:p1-t0-0")
    assert [d.what for d in policy.decide(0, [gone, lossy("h0:p0-t0-0")])] == ["kept"]


@settings(max_examples=40, deadline=None)
@given(st.sets(st.sampled_from([link.name for link in TINY.links]), max_size=10))
def test_cut_is_what_the_paths_say(bad: set[str]) -> None:
    hosts = range(TINY.host_count)
    assert cut(TINY, bad) == {
        (a, b)
        for a in hosts
        for b in hosts
        if a < b
        and all({li.name for li in path_links(TINY, a, b, ev)} & bad for ev in path_evs(TINY, a, b))
    }


FOUND = st.tuples(
    st.sampled_from([link.name for link in TINY.links]),
    st.sampled_from([LOSSY, DEAD]),
    st.floats(0.01, 1),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(FOUND, max_size=6), max_size=12))
def test_two_hosts_with_a_living_path_keep_one_that_is_not_denied(
    story: list[list[tuple[str, str, float]]],
) -> None:
    policy = Policy(TINY, Options(policy="all", hold=2))
    entries: set[str] = set()
    for now, found in enumerate(story):
        findings = [
            Finding(name, state, (name,), rate, True, 0)
            for name, state, rate in {f[0]: f for f in found}.values()
        ]
        for what, entry, _ in policy.decide(now * TINY.base_rtt_ps, findings):
            if what == "deny":
                assert entry not in entries
                entries.add(entry)
            elif what == "allow":
                entries.remove(entry)
        assert entries == set(policy.denied)
        gone = {f.name for f in findings if f.state == DEAD}
        for a, b in permutations(range(TINY.host_count), 2):
            alive = {
                ev
                for ev in path_evs(TINY, a, b)
                if not {li.name for li in path_links(TINY, a, b, ev)} & gone
            }
            assert not alive or alive - denied(TINY, entries, a, b)


def test_options_reach_another_process() -> None:
    """Runs that go at once get their scenario by pickle; the compiled class must allow it."""
    options = Options(interval=3.0, policy="all")
    assert pickle.loads(pickle.dumps(options)) == options
