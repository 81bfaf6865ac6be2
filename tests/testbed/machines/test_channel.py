"""The coordinator's end of a machine, with shell scripts for far sides: whoever answers wrongly, or
not at all, is one line."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.process.control import AgentError
from testbed.errors import ClusterDied, UserError
from testbed.machines.channel import Channel, Message, ask_all, whole
from testbed.machines.reach import Place
from topologies import FabricError

HELLO = """echo '{"event": "hello", "facts": {"mrcbed": "1"}}'; """


@pytest.fixture
def far() -> Iterator[Callable[..., Channel]]:
    opened: list[Channel] = []

    def start(script: str, name: str = "b") -> Channel:
        opened.append(Channel(Place(name, "10.0.0.2", ("sh", "-c", script)), lambda _, event: None))
        return opened[-1]

    yield start
    for channel in opened:
        channel.close()


def test_an_unreachable_host_is_one_line_with_the_commands_own_words(
    far: Callable[..., Channel],
) -> None:
    with pytest.raises(UserError) as refused:
        far("echo 'ssh: connect to host b port 22: No route to host' >&2; exit 255").hello("1")
    line = str(refused.value)
    assert (
        line.startswith(
            "b is not reached (ssh: connect to host b port 22: No route to host): `sh -c "
        )
        and "\n" not in line
    )


def test_a_command_that_is_not_there_is_one_line() -> None:
    with pytest.raises(
        UserError,
        match="b: cannot run nosuchprogram: No such file or directory: install it, or give another "
        "--reach",
    ):
        Channel(Place("b", "10.0.0.2", ("nosuchprogram", "b")), lambda _, event: None)


def test_another_version_is_one_line(far: Callable[..., Channel]) -> None:
    with pytest.raises(
        UserError, match="^b has mrcbed 1, here is 2: install the same version on all machines$"
    ):
        far(HELLO + "cat").hello("2")


def test_what_is_no_far_side_is_said(far: Callable[..., Channel]) -> None:
    channel = far("echo Welcome to b; cat >/dev/null")
    with pytest.raises(UserError, match="b is not reached"):
        channel.hello("1")
    assert "it said 'Welcome to b' where a line of JSON belongs" in channel.death()


@pytest.mark.parametrize(
    ("sort", "order", "kind", "line"),
    [
        ("user", "go", UserError, "b: no"),
        ("fabric", "go", FabricError, "no"),
        ("internal", "go", ClusterDied, "b: no"),
        ("agent", "go", ClusterDied, "b: no"),
        ("agent", "agent", AgentError, "no"),
    ],
)
def test_a_refusal_keeps_its_sort(
    far: Callable[..., Channel], sort: str, order: str, kind: type[Exception], line: str
) -> None:
    channel = far(
        HELLO
        + f"""while read order; do echo '{{"id": 1, "error": "no", "sort": "{sort}"}}'; done"""
    )
    channel.hello("1")
    with pytest.raises(kind) as refused:
        channel.ask(order)
    assert str(refused.value) == line and type(refused.value) is kind


@pytest.mark.parametrize(
    "line",
    [
        "[1]",
        "5",
        "nonsense",
        '{"id": [1], "ok": 1}',
        '{"id": "1", "ok": 1}',
        '{"id": NaN}',
        '{"id": 1, "error": 5}',
        '{"event": 5}',
        '{"event": "died", "reason": [1]}',
        '{"event": "hello", "facts": 7}',
        '{"event": "died"}',
        "[" * 50_000,
        '{"a":' * 400 + "1" + "}" * 400,
        '{"id": ' + "9" * 5000 + "}",
        '{"event": "note", "host": 1, "note": {}}',
        '{"event": "note", "host": "h1"}',
    ],
)
@pytest.mark.parametrize("hello", [HELLO, ""])
def test_a_malformed_line_is_one_line_that_names_the_machine(
    far: Callable[..., Channel], tmp_path: Path, line: str, hello: str
) -> None:
    (tmp_path / "line").write_text(line + "\n")
    channel = far(f"{hello}cat {tmp_path / 'line'}; cat >/dev/null")
    with pytest.raises((ClusterDied, UserError)) as refused:
        channel.hello("1")
        channel.ask("go", timeout=60.0)
    assert (
        str(refused.value).startswith("b")
        and "\n" not in str(refused.value)
        and "internal error" not in channel.death()
    )
    channel.close()
    assert channel.process.returncode is not None


def test_a_line_without_end_is_cut(
    far: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And ends who writes it: without waiting until he is silent, which here is never."""
    monkeypatch.setattr("testbed.machines.channel.LOGS_S", 1e6)
    monkeypatch.setattr("testbed.machines.channel.MOST_LINE", 1 << 20)
    channel = far(HELLO + "exec cat /dev/zero")
    channel.hello("1")
    with pytest.raises(
        ClusterDied, match="^b: it said .* where a line of JSON belongs: see --reach$"
    ):
        channel.ask("go")
    channel.close(1e6)
    assert channel.process.returncode == -signal.SIGPIPE


@pytest.mark.parametrize(
    ("op", "answer"),
    [
        ("clock", "{}"),
        ("clock", '{"theirs": "x"}'),
        ("clock", '{"theirs": null}'),
        ("clock", "null"),
        ("begin", "5"),
        ("counters", '[{"p": 1}]'),
        ("trunk", '{"carried": {"a": [1]}, "strays": 0}'),
        ("loads", "[]"),
        ("ping", '["yes"]'),
        ("strike", '{"number": 1}'),
        ("fault_events", '[{"t": 1}]'),
        ("link_states", '{"a": 1}'),
        ("watch_stop", '{"samples": [[1]], "delay_max_ns": 1, "result": {}}'),
        ("trace_send", "[1]"),
        ("trace_follow", '[{"at_us": "x"}]'),
        ("quiesce", "null"),
        ("set_link", '"1"'),
    ],
)
def test_an_answer_of_another_type_names_order_and_machine(
    far: Callable[..., Channel], op: str, answer: str
) -> None:
    channel = far(HELLO + f"""read order; echo '{{"id": 1, "ok": {answer}}}'; cat >/dev/null""")
    channel.hello("1")
    with pytest.raises(
        ClusterDied,
        match=f"^b: its answer to {op} makes no sense .*: "
        "install the same version on all machines$",
    ):
        channel.ask(op)


def test_answers_that_do_not_fit_together_name_the_machines(far: Callable[..., Channel]) -> None:
    channels = [far("cat >/dev/null", name) for name in "ab"]
    with (
        pytest.raises(
            ClusterDied, match="^a, b: their answers do not fit together .'p0'.: install"
        ),
        whole(channels),
    ):
        raise KeyError("p0")


def test_a_death_in_the_middle_of_an_order_is_named(far: Callable[..., Channel]) -> None:
    channel = far(
        HELLO
        + """read order; echo '{"event": "died", "reason": "the agent of h2 was killed by SIGKILL"}'"""  # noqa: E501
    )
    channel.hello("1")
    with pytest.raises(ClusterDied, match="^b: the agent of h2 was killed by SIGKILL$"):
        channel.ask("go")
    assert channel.ended


def test_all_are_asked_before_any_is_waited_for(
    far: Callable[..., Channel], tmp_path: Path
) -> None:
    """Each answers when the other one has been asked, too."""
    both = []
    for name, other in ("ab", "ba"):
        os.mkfifo(tmp_path / name)
        told = f"""read order; echo >{tmp_path}/{other}; read asked <&3; echo '{{"id": 1, "ok": "{name}"}}'; cat >/dev/null"""  # noqa: E501
        both.append(far(f"exec 3<>{tmp_path}/{name}; {HELLO}{told}", name))
    for channel in both:
        channel.hello("1")
    assert ask_all(both, "go") == ["a", "b"]


def test_a_far_side_that_does_not_end_is_ended(
    far: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = far(HELLO + "trap '' TERM; sleep 1000 <&-; sleep 1000")
    channel.hello("1")
    channel.close(timeout=0.2)
    assert channel.process.returncode == -9 and not channel.ended


def test_what_cannot_be_taken_ends_the_channel_with_the_reason() -> None:
    def full(_: Channel, message: Message) -> None:
        if message.event == "log":
            raise OSError(28, "No space left on device")

    script = HELLO + """echo '{"event": "log"}'; cat >/dev/null"""
    channel = Channel(Place("b", "10.0.0.2", ("sh", "-c", script)), full)
    try:
        channel.hello("1")
        with pytest.raises(
            ClusterDied,
            match="^b: what it sent could not be taken .No space left on device: make room there.$",
        ):
            channel.ask("go")
    finally:
        channel.close()
