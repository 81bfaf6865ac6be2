"""What a program of RDMA verbs gets on its host, as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.emulated import management
from testbed.emulated.verbs_words import (
    WORDS,
    awaits_server,
    check_words,
    filled,
    listens,
    of_rank,
    preloading,
)
from testbed.errors import UserError
from topologies.addressing import management_address

HOSTS = [4, 0, 2]


def test_words_are_filled_in_by_rank() -> None:
    arguments = [
        "{rank}",
        "--as={host}@{address}",
        "{peer}",
        "-x",
        "{server}",
        "{{rank}}",
        '{{"a": 1}',
        "}",
    ]
    assert filled(arguments, 2, HOSTS) == [
        "2",
        "--as=h2@10.78.0.3",
        "10.78.0.5",
        "-x",
        "10.78.0.5",
        "{rank}",
        '{"a": 1}',
        "}",
    ]
    assert filled(arguments, 0, HOSTS) == [
        "0",
        "--as=h4@10.78.0.5",
        "10.78.0.1",
        "-x",
        "{rank}",
        '{"a": 1}',
        "}",
    ]
    assert filled(["--to={server}"], 0, HOSTS) == [] and filled(["{{server}}"], 0, HOSTS) == [
        "{server}"
    ]


def test_who_has_a_server_waits_for_it() -> None:
    assert awaits_server(["-n", "--to={server}"])
    assert not awaits_server(["-n", "{peer}", "{{server}}", "server"])


@pytest.mark.parametrize("argument", ["{ranks}", "{}", "a{b c}d", "{rank}{x}"])
def test_a_word_that_there_is_not_is_one_line_with_those_that_there_are(argument: str) -> None:
    with pytest.raises(UserError) as refusal:
        check_words(["{rank}", argument])
    line = str(refusal.value)
    assert (
        line.startswith(argument)
        and "\n" not in line
        and all(f"{{{word}}}" in line for word in WORDS)
        and "{{ is a brace" in line
    )


def test_words_that_there_are_and_braces_pass() -> None:
    check_words([*(f"{{{word}}}" for word in WORDS), "{{x}}", "{", "}", "a{{b}"])


def test_every_rank_knows_all_addresses_in_rank_order() -> None:
    variables = of_rank(1, HOSTS)
    assert (
        variables["MRCBED_ADDRESSES"] == "10.78.0.5,10.78.0.1,10.78.0.3"
        and variables["MASTER_ADDR"] == "10.78.0.5"
    )
    assert (variables["RANK"], variables["WORLD_SIZE"], variables["LOCAL_RANK"]) == ("1", "3", "0")


def test_the_library_goes_before_what_is_preloaded_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert preloading(Path("/a/b.so")) == ["env", "LD_PRELOAD=/a/b.so"]
    monkeypatch.setenv("LD_PRELOAD", "/c.so")
    assert preloading(Path("/a/b.so")) == ["env", "LD_PRELOAD=/a/b.so:/c.so"]


@pytest.mark.parametrize("place", ["/my files/b.so", "/a:b/c.so"])
def test_a_path_that_the_loader_would_cut_is_refused(place: str) -> None:
    with pytest.raises(UserError, match="move the project"):
        preloading(Path(place))


def test_a_process_that_is_gone_listens_nowhere() -> None:
    assert not listens(2**22 + 1)


def test_the_lines_of_the_management_network() -> None:
    lines = management.cable_lines({"h0": 71, "h1": 72})
    assert (
        len(lines) == 4
        and "peer name eth0 mtu 1500 netns 72" in lines[2]
        and "link set h1-eth0 master management up" in lines
    )
    assert (
        management.host_lines(300)[0]
        == f"addr add {management_address(300)}/16 dev eth0"
        == "addr add 10.78.1.45/16 dev eth0"
    )
    assert all(len(name) < 16 for name in (management.BRIDGE, f"h9999-{management.NAME}")), (
        "IFNAMSIZ"
    )
