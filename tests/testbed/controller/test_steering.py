"""Policies, the denylist and how agents are told: real sockets, a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.controller.agents import Agent, AgentLinks
from testbed.controller.denylist import MAX_ENTRIES
from testbed.controller.journal import Journal
from testbed.controller.links import FailedLinks, LinkChange
from testbed.controller.steering import Steering
from tests.testbed.controller.fake_agents import FakeAgent
from topologies import FabricError, load_fabric

FABRIC = load_fabric("tiny")
A, B = "p0-t0-0:p0-t1-0", "p1-t0-1:p1-t1-1"


class Bench:
    """A steering with ``count`` agents that answer when told to."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        self.now = 1000
        self.links = FailedLinks(FABRIC, 0)
        self.journal = Journal()
        self.steering = Steering(FABRIC, self.links, self.journal, self.clock)
        self.agents = [FakeAgent(folder, f"h{number}") for number in range(count)]
        self.pushed = 0
        self.steering.after_push = self.count

    def clock(self) -> int:
        self.now += 1
        return self.now

    def count(self) -> None:
        self.pushed += 1

    def join(self, policy: str) -> None:
        self.steering.set_agents({agent.name: agent.path for agent in self.agents}, policy)

    def link(self, name: str, up: bool) -> None:
        change = LinkChange(name, up, name.split(":")[0] + "-u0", self.clock())
        self.links.apply(change, self.clock())
        self.steering.link_changed(change)

    def answer_all(self) -> None:
        for agent in self.agents:
            agent.answer(self.steering.agents, self.clock())

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        return [entry for entry in self.journal.entries if entry["event"] in kinds]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.steering.agents.leave()
    for agent in made.agents:
        agent.close()


def test_none_tells_nobody_of_links(bench: Bench) -> None:
    bench.join("none")
    bench.link(A, False)
    bench.link(A, True)
    assert [agent.hear() for agent in bench.agents] == [[]] * 3 and bench.pushed == 0
    assert [e["link"] for e in bench.events("link-down", "link-up")] == [A, A], (
        "but it is journalled"
    )


def test_hint_tells_everyone_the_complete_list_each_time(bench: Bench) -> None:
    bench.join("hint")
    for name, up in ((A, False), (B, False), (A, True), (B, True)):
        bench.link(name, up)
        for agent in bench.agents:
            agent.hear()
        bench.answer_all()
    for agent in bench.agents:
        assert agent.asked == [{"op": "hint", "links": links} for links in ([A], [A, B], [B], [])]
    assert bench.steering.denylist.entries == []


def test_a_push_is_journalled_with_its_times_and_how_many_heard(bench: Bench) -> None:
    bench.join("hint")
    bench.link(A, False)
    heard = bench.events("link-down")[0]["heard_ps"]
    pushed = bench.now
    assert bench.events("hint-pushed") == [], "nobody has answered yet"
    bench.agents[2].answer(bench.steering.agents, 7001)
    bench.agents[0].answer(bench.steering.agents, 7003)
    assert bench.events("hint-pushed") == []
    bench.agents[1].answer(bench.steering.agents, 7002)
    (entry,) = bench.events("hint-pushed")
    assert {
        k: entry[k] for k in ("links", "heard_ps", "pushed_ps", "effect_ps", "agents", "of")
    } == {
        "links": [A],
        "heard_ps": heard,
        "pushed_ps": pushed,
        "effect_ps": 7003,
        "agents": 3,
        "of": 3,
    }


def test_a_push_is_dated_before_any_agent_can_have_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent may act on a list before the controller runs again."""
    known: dict[str, int] = {}
    send = AgentLinks._send

    def slow(links: AgentLinks, agent: Agent, op: str) -> None:
        send(links, agent, op)
        known[agent.name] = bench.clock()  # the agent acts at once
        bench.now += 5_000_000  # and the controller waits for a core

    monkeypatch.setattr(AgentLinks, "_send", slow)
    bench.join("hint")
    bench.link(A, False)
    for agent in bench.agents:
        agent.answer(bench.steering.agents, known[agent.name])
    (entry,) = bench.events("hint-pushed")
    assert (
        entry["heard_ps"]
        <= entry["pushed_ps"]
        < min(known.values())
        < max(known.values())
        == entry["effect_ps"]
    )


def test_one_that_does_not_answer_is_given_up_and_gets_only_the_latest_when_it_wakes(
    bench: Bench,
) -> None:
    bench.join("hint")
    asleep, middle = bench.agents[0], 0
    for turn in range(50):
        if turn == 25:
            middle = bench.now
        bench.link(A, turn % 2 == 1)
        bench.link(B, turn % 2 == 1)
        for agent in bench.agents[1:]:
            agent.answer(bench.steering.agents, bench.clock())
            # what had become the latest meanwhile
            agent.answer(bench.steering.agents, bench.clock())
    assert bench.events("hint-pushed") == []
    bench.steering.agents.expire(middle)
    assert len(bench.events("hint-pushed")) == 50, "the others have not waited long enough"
    bench.steering.agents.expire(bench.now)
    entries = bench.events("hint-pushed")
    assert len(entries) == 100 and all((e["agents"], e["of"]) == (2, 3) for e in entries)
    assert len(asleep.hear()) == 1, "one message under way, however much happened"
    asleep.answer(bench.steering.agents, 1)
    assert asleep.hear()[1:] == [{"op": "hint", "links": []}]
    assert [agent.name for agent in bench.steering.agents.agents] == ["h0", "h1", "h2"]


def test_an_agent_that_hangs_up_is_lost_and_the_others_go_on(bench: Bench) -> None:
    bench.join("hint")
    gone = bench.agents[1]
    gone.hear()
    seen = gone.seen_by(bench.steering.agents)
    gone.close()
    assert bench.steering.agents.heard(seen) is False
    assert [e["agent"] for e in bench.events("agent-lost")] == ["h1"]
    bench.link(A, False)
    assert [len(bench.agents[i].hear()) for i in (0, 2)] == [1, 1]


def test_an_agent_that_ends_in_order_is_not_lost(bench: Bench) -> None:
    bench.join("hint")
    ending = bench.agents[1]
    ending.hear()
    seen = ending.seen_by(bench.steering.agents)
    assert ending.sock is not None
    ending.sock.send(b'{"event": "bye"}\n')
    ending.close()
    assert bench.steering.agents.heard(seen) is False
    assert bench.events("agent-lost") == [] and [
        e["agents"] for e in bench.events("agents-left")
    ] == [["h1"]]


def test_agents_that_cannot_be_reached_are_left_out(bench: Bench) -> None:
    bench.steering.set_agents(
        {"h0": bench.agents[0].path, "h9": bench.agents[0].path + "-not"}, "hint"
    )
    (lost,) = bench.events("agent-lost")
    assert lost["agent"] == "h9" and "No such file" in lost["reason"]
    assert [e["agents"] for e in bench.events("agents-joined")] == [["h0"]]


def test_a_refusal_is_journalled(bench: Bench) -> None:
    bench.join("hint")
    bench.link(A, False)
    bench.agents[0].answer(bench.steering.agents, error="h0: hint: no")
    assert bench.events("refused")[0]["reason"] == "h0: hint: no"


def test_denylist_follows_the_links_and_is_its_own_word(bench: Bench) -> None:
    bench.join("denylist")
    bench.steering.deny(A, "worn out", "operator")
    bench.answer_all()
    bench.link(A, False)  # denied already: the list the agents have stays, but now on two words
    assert [len(agent.hear()) for agent in bench.agents] == [2] * 3
    bench.answer_all()
    bench.link(B, False)
    bench.answer_all()
    assert bench.steering.denylist.entries == [A, B]
    bench.link(A, True)
    bench.answer_all()
    bench.link(B, True)
    bench.answer_all()
    assert [(d.entry, d.by, d.reason) for d in bench.steering.denylist.denials] == [
        (A, "operator", "worn out")
    ]
    assert bench.agents[0].asked[-1] == {"op": "deny", "entries": [A]}
    assert [(e["entry"], e["by"], e["denied_by"]) for e in bench.events("allow")] == [
        (A, "policy", "policy"),
        (B, "policy", "policy"),
    ]


def test_who_joins_late_hears_what_is_in_force(bench: Bench) -> None:
    bench.link(A, False)
    bench.steering.deny("p1-t1-0", "", "clustermapper")
    bench.join("hint")
    assert bench.agents[0].hear() == [
        {"op": "deny", "entries": ["p1-t1-0"]},
        {"op": "hint", "links": [A]},
    ]
    again = bench.agents[1]
    assert len(again.hear()) == 2
    bench.steering.set_agents({}, "none")
    bench.steering.set_agents({"h1": bench.agents[1].path}, "denylist")
    again.sock, again.asked = None, []  # it is called a second time
    assert again.hear() == [{"op": "deny", "entries": ["p1-t1-0", A]}]
    bench.steering.set_agents({}, "none")
    assert bench.steering.denylist.entries == ["p1-t1-0"], "the policy's entries go with the policy"


def test_whoever_joins_a_healthy_fabric_hears_nothing(bench: Bench) -> None:
    bench.join("hint")
    assert [agent.hear() for agent in bench.agents] == [[]] * 3


def test_an_unknown_policy_leaves_everything_as_it_was(bench: Bench) -> None:
    bench.join("hint")
    with pytest.raises(ValueError, match="no policy 'all': there are none, hint, denylist"):
        bench.steering.set_agents({}, "all")
    assert bench.steering.policy == "hint" and len(bench.steering.agents.agents) == 3


# --- the denylist ---------------------------------------------------------------------------------


def test_saying_it_twice_changes_nothing(bench: Bench) -> None:
    bench.join("none")
    # ends in the other order
    first, new = bench.steering.deny("p0-t1-0:p0-t0-0", "one", "operator")
    assert new and first.entry == A
    again, new = bench.steering.deny(A, "two", "operator")
    assert not new and again is first
    assert len(bench.agents[0].hear()) == 1 and len(bench.events("deny")) == 1


def test_an_entry_stays_until_the_last_word_is_taken_back(bench: Bench) -> None:
    bench.steering.deny(A, "", "operator")
    bench.steering.deny(A, "lossy", "clustermapper")
    assert [d.by for d in bench.steering.allow(A, "clustermapper", "clustermapper")] == [
        "clustermapper"
    ]
    assert bench.steering.denylist.entries == [A]
    bench.steering.deny(A, "lossy", "clustermapper")
    assert [d.by for d in bench.steering.allow(A, None, "operator")] == [
        "operator",
        "clustermapper",
    ]
    assert bench.steering.denylist.entries == [] and bench.steering.allow(A, None, "operator") == []


@pytest.mark.parametrize(
    "text", ["", "p9", "h0", "p0-t0-0:p0-t1-9", "h0>h0@p0/0", "h0>h3@p0/7", "p0-t9-0", "x\ny"]
)
def test_what_is_no_entry_is_one_line(bench: Bench, text: str) -> None:
    with pytest.raises(FabricError) as error:
        bench.steering.deny(text, "", "operator")
    assert "\n" not in str(error.value)
    with pytest.raises(FabricError):
        bench.steering.allow(text, None, "operator")
    assert bench.steering.denylist.denials == [] and not bench.journal.entries


def test_a_full_list_says_so(bench: Bench) -> None:
    held = bench.steering.denylist._denials
    held.update({(f"x{n}", "operator"): None for n in range(MAX_ENTRIES)})  # type: ignore[misc]
    with pytest.raises(FabricError, match="the denylist is full"):
        bench.steering.deny(A, "", "operator")
