"""The failed-link map: a link is failed while either of its ends is, and repetition changes
nothing."""

import pytest

from testbed.controller.links import FailedLinks, Failure, PortStates
from topologies import load_fabric

TINY = load_fabric("tiny")
LINK = next(link for link in TINY.links if link.kind == "fabric")


def test_either_end_fails_the_link_and_both_must_return() -> None:
    ports = PortStates(TINY)
    down = ports.report(LINK.a.name, False, 10)
    assert down is not None
    assert (down.link, down.up, down.port, down.heard_ps) == (LINK.name, False, LINK.a.name, 10)
    assert ports.report(LINK.b.name, False, 11) is None, "the other end tells nothing new"
    assert ports.report(LINK.a.name, True, 12) is None, "one end is still down"
    up = ports.report(LINK.b.name, True, 13)
    assert up is not None
    assert up.up and up.link == LINK.name


def test_repeated_reports_change_nothing() -> None:
    ports = PortStates(TINY)
    assert ports.report(LINK.a.name, True, 1) is None
    assert ports.report(LINK.a.name, False, 2) is not None
    assert ports.report(LINK.a.name, False, 3) is None


def test_a_port_of_no_fabric_is_refused() -> None:
    with pytest.raises(KeyError):
        PortStates(TINY).report("eth0", False, 1)


def test_map_and_journal() -> None:
    ports, links = PortStates(TINY), FailedLinks(TINY, 5)
    assert links.state(LINK.name) == (True, 5)
    for up, heard, handled in ((False, 100, 103), (True, 200, 201), (False, 300, 307)):
        change = ports.report(LINK.b.name, up, heard)
        assert change is not None
        links.apply(change, handled)
    assert links.failed == {LINK.name: Failure(300, 307)}
    assert links.state(LINK.name) == (False, 300)
    assert [(e["up"], e["heard_ps"], e["handled_ps"]) for e in links.journal] == [
        (False, 100, 103),
        (True, 200, 201),
        (False, 300, 307),
    ]
