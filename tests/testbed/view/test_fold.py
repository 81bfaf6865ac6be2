"""Log lines become frames: the same however they are cut, and a keyframe stands for all before
it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from testbed.results.record import PathRow
from testbed.view.fold import Fold, Frame, State
from testbed.view.run import Run
from tests.properties.profiles import QUICK
from topologies import Fabric
from topologies.units import MS, NS, US

FABRIC = Fabric(
    name="t", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=1, nic_rate=100_000_000_000
)
T0 = 5 * MS
CUT = {
    "kind": "fault",
    "name": "cut",
    "fault": "link",
    "on": "p1-t0-0:p1-t1-0",
    "links": ["p1-t0-0:p1-t1-0"],
    "keys": {},
}
PORT = {
    "kind": "fault",
    "name": "port",
    "fault": "port",
    "on": "h0-p1",
    "links": ["h0:p1-t0-0"],
    "keys": {},
}
EVS = (0, 1, 65536, 65537)


def run(active: tuple[int, ...] = EVS, kind: str = "mrc") -> Run:
    """Two hosts; h0 and h1 send to each other over four paths, or over those in ``active``."""
    rows = {
        host: [{"qpn": 16, "peer": 1 - host, "ev": ev, "active": ev in active} for ev in EVS]
        for host in (0, 1)
    }
    if kind == "roce":
        rows = {host: [{"qpn": 16, "peer": 1 - host, "ev": active[0]}] for host in (0, 1)}
    paths = {host: msgspec.convert(told, list[PathRow]) for host, told in rows.items()}
    return Run("k", kind, kind, FABRIC, T0 // NS, (0, 1), paths, warmup_steps=1)


def fold(files: dict[str, list[dict[str, Any]]], of: Run | None = None) -> list[Frame]:
    """All frames of some files, fed at once."""
    folded = Fold(of or run())
    for name, lines in files.items():
        folded.feed(name, text(lines))
    return list(folded.close())


def text(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def line(at: float, kind: str, host: int = 0, **more: Any) -> dict[str, Any]:
    return {"t": T0 + round(at * US), "kind": kind, "host": host, "peer": 1 - host, **more}


def ev(at: float, ev: int, to: str, cause: str, host: int = 0) -> dict[str, Any]:
    return line(at, "ev", host, qpn=16, ev=ev, to=to, cause=cause, **{"from": "?"})


def plane(at: float, to: str, cause: str = "port down") -> dict[str, Any]:
    return line(at, "plane", plane=1, to=to, cause=cause, **{"from": "?"})


def fault(at: float, phase: str, of: dict[str, Any] = CUT) -> dict[str, Any]:
    return {"t": T0 + round(at * US), "phase": phase, **of}


def paths(frames: list[Frame]) -> list[tuple[str, str, list[int]]]:
    return [
        (frame["state"], frame["why"], frame["evs"]) for frame in frames if frame["f"] == "path"
    ]


# --- what is said of paths ------------------------------------------------------------------------


def test_a_cut_cable_a_verdict_and_the_return() -> None:
    lines = [ev(141, 65536, "ASSUMED_BAD", "time"), ev(400, 65536, "GOOD", "probed")]
    frames = fold({"runner": [fault(100, "begin"), fault(340, "heal")], "h0": lines})
    assert paths(frames) == [
        ("died", "EV 1:0 assumed bad, by time, 41 µs after the cut", [65536]),
        ("back", "EV 1:0 back in use, probes came back, 60 µs after the cable was mended", [65536]),
    ]
    told = [frame["text"] for frame in frames if frame["f"] == "fault"]
    assert told == ["cut (p1-t0-0:p1-t1-0): begins", "cut (p1-t0-0:p1-t1-0): ends after 240 µs"]
    assert [frame["t"] for frame in frames] == [100_000, 141_000, 340_000, 400_000]


def test_a_verdict_on_a_path_that_the_fault_does_not_touch_names_no_fault() -> None:
    frames = fold({"runner": [fault(100, "begin")], "h0": [ev(141, 65537, "ASSUMED_BAD", "rto")]})
    assert paths(frames) == [("died", "EV 1:1 assumed bad, by the retransmission timer", [65537])]


def test_a_port_takes_its_plane_and_what_was_dead_before_stays_dead() -> None:
    lines = [
        ev(90, 65536, "ASSUMED_BAD", "time"),
        plane(100, "DOWN"),
        plane(200, "PROVING", "ports up"),
        plane(230, "USED", "probed"),
    ]
    frames = fold({"h0": lines, "runner": [fault(100, "begin", PORT), fault(200, "heal", PORT)]})
    assert paths(frames)[1:] == [
        ("closed", "plane 1 out of use: port down", [65536, 65537]),
        ("died", "EV 1:0 still assumed bad: ports up", [65536]),
        ("probed", "EV 1:1 probed: ports up", [65537]),
        ("back", "EV 1:1 back in use, probes came back, 30 µs after the port came back", [65537]),
    ]


def test_suspect_planes_and_the_denylist_have_states_of_their_own() -> None:
    lines = [
        ev(10, 0, "ASSUMED_BAD", "suspect plane"),
        ev(20, 1, "DENIED", "denied"),
        ev(30, 1, "ASSUMED_BAD", "allowed"),
    ]
    assert [(state, evs) for state, _, evs in paths(fold({"h0": lines}))] == [
        ("suspect", [0]),
        ("denied", [1]),
        ("probed", [1]),
    ]


def test_a_backup_path_is_in_use_when_packets_leave_on_it() -> None:
    frames = fold(
        {"h0": [line(0, "evs", bin_ps=20 * US, tx={"0": 7, "1": 3})]}, run(active=(0, 65536))
    )
    assert paths(frames) == [("used", "EV 0:1 in use, was a backup", [1])]
    assert frames[-1] == {
        "f": "evs",
        "t": 0,
        "ns": 20_000,
        "src": 0,
        "dst": 1,
        "tx": [[0, 7], [1, 3]],
    }


def test_a_network_that_re_routes_moves_the_one_path_of_a_queue_pair() -> None:
    moved = line(150, "reroute", ev=1, old=65536)
    assert paths(fold({"runner": [fault(100, "begin")], "h0": [moved]}, run((65536,), "roce"))) == [
        ("idle", "EV 1:0 left: the network re-routed to EV 0:1, 50 µs after the cut", [65536]),
        ("used", "EV 0:1 in use: the network re-routed to it, 50 µs after the cut", [1]),
    ]


def test_a_fault_comes_before_what_follows_from_it_at_the_same_time() -> None:
    frames = fold({"h0": [plane(100, "DOWN")], "runner": [fault(100, "begin", PORT)]})
    assert [frame["f"] for frame in frames] == ["fault", "path"]


# --- counts ---------------------------------------------------------------------------------------


def test_losses_are_counted_per_path_and_bin() -> None:
    rules = ("time", "order", "trim", "time")
    width = 2 * FABRIC.base_rtt_ps // NS
    at = [0.1, 0.2, 0.3, 2.5]  # in bins: three in the first, one in the third
    lines = [
        line(share * width / 1000, "loss", ev=1, rule=rule)
        for share, rule in zip(at, rules, strict=True)
    ]
    got = [
        (frame["t"], frame["lost"], frame["trimmed"])
        for frame in fold({"h0": lines})
        if frame["f"] == "loss"
    ]
    assert got == [(0, 2, 1), (2 * width, 1, 0)]


def test_steps_count_from_the_first_measured_one() -> None:
    step = line(50, "step", 1, rank=1, step=0, start_ps=T0, end_ps=T0 + 50 * US, ok=True)
    assert fold({"h1": [step]}) == [
        {"f": "step", "t": 50_000, "start": 0, "rank": 1, "step": -1, "ok": True}
    ]


RUBBISH = b"""[]
null
{"kind":"ev"}
{"kind":"ev","t":"x"}
{"t":1,"kind":"reroute","host":0,"dead_links":[]}
{"t":1,"kind":"ev","host":0,"peer":77,"ev":0,"to":"GOOD"}
{"t":1,"kind":"goodput","host":0,"bin_ps":1}
{"t":1,"kind":"rto","host":0,"peer":1,"firing":"x"}
{"t":1,"kind":"strange"}
\xff
{"""


def test_what_is_no_line_of_a_log_is_left_out() -> None:
    for rubbish in (RUBBISH, *RUBBISH.splitlines(keepends=True)):
        folded = Fold(run())
        folded.feed("h0", text([ev(1, 0, "ASSUMED_BAD", "time")]) + rubbish)
        assert len(list(folded.close())) == 1, rubbish


# --- properties -----------------------------------------------------------------------------------

TIMES = st.integers(0, 400)


def of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


KINDS: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "ev": lambda at, ev: {
        "qpn": 16,
        "ev": ev,
        "to": of("GOOD", "SKIP", "ASSUMED_BAD", "DENIED"),
        "cause": of("time", "probed"),
    },
    "plane": lambda at, ev: {
        "plane": ev >> 16,
        "from": "",
        "to": of("USED", "DOWN", "PROVING", "SUSPECT"),
    },
    "loss": lambda at, ev: {"ev": ev, "psn": at, "rule": of("time", "trim")},
    "evs": lambda at, ev: {"bin_ps": 20 * US, "tx": {str(ev): 1 + at}},
    "goodput": lambda at, ev: {"bin_ps": 20 * US, "tx": [at, 1], "rx": [2, at]},
    "qp": lambda at, ev: {"state": "ERROR", "cause": "retries"},
    "reroute": lambda at, ev: {"ev": ev, "old": of(*EVS)},
}
"""What a line of each kind has, from its time and an EV."""


@st.composite
def line_of(draw: st.DrawFn, host: int) -> dict[str, Any]:
    at, value, kind = draw(TIMES), draw(st.sampled_from(EVS)), draw(st.sampled_from(list(KINDS)))
    drawn = {
        name: draw(it) if isinstance(it, st.SearchStrategy) else it
        for name, it in KINDS[kind](at, value).items()
    }
    return line(at, kind, host, **drawn)


@st.composite
def logs(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    files = {f"h{host}": draw(st.lists(line_of(host), max_size=12)) for host in (0, 1)}
    phases = draw(st.lists(TIMES, max_size=4).map(sorted))
    files["runner"] = [
        fault(at, ("begin", "heal")[n % 2], draw(st.sampled_from([CUT, PORT])))
        for n, at in enumerate(phases)
    ]
    rows = st.lists(
        st.tuples(st.integers(0, 7), st.integers(0, 99)), max_size=3, unique_by=lambda row: row[0]
    )
    files["ports"] = [
        {
            "t": T0 + at * US,
            "kind": "ports",
            "ns": US,
            "rows": [[number, size, 0, 0, 0, 0] for number, size in draw(rows)],
        }
        for at in draw(st.lists(TIMES, max_size=4).map(sorted))
    ]
    return files


def due(line: dict[str, Any]) -> int:
    """When a line is folded: bins when they are over."""
    return int(line["t"] + (line.get("bin_ps", 0)))


@QUICK
@given(files=logs(), data=st.data())
def test_any_cut_of_the_lines_gives_the_same_frames(
    files: dict[str, list[dict[str, Any]]], data: st.DataObject
) -> None:
    """A follower reads bytes as they come, at any place, file by file in any order, and asks for
    frames up to a time by which it has read all lines of before."""
    whole = fold(files)
    folded, frames = Fold(run()), []
    left = {name: text(lines) for name, lines in files.items()}
    ends = {
        name: [len(text(lines[: n + 1])) for n in range(len(lines))]
        for name, lines in files.items()
    }
    read = dict.fromkeys(files, 0)
    for until in [*data.draw(st.lists(st.integers(0, 450_000), max_size=3).map(sorted)), None]:
        for name in data.draw(st.permutations(sorted(files))):
            lines = files[name]
            needed = max(
                (
                    ends[name][n]
                    for n, line in enumerate(lines)
                    if until is None or due(line) <= T0 + until * NS
                ),
                default=0,
            )
            target = max(read[name], needed, data.draw(st.integers(0, len(left[name]))))
            while read[name] < target:
                size = data.draw(st.integers(1, target - read[name]))
                folded.feed(name, left[name][read[name] : read[name] + size])
                read[name] += size
        frames += folded.frames(None if until is None else T0 // NS + until)
    assert frames + list(folded.close()) == whole


@QUICK
@given(files=logs(), data=st.data())
def test_a_replay_from_a_keyframe_is_one_from_the_begin(
    files: dict[str, list[dict[str, Any]]], data: st.DataObject
) -> None:
    frames = fold(files)
    cut = data.draw(st.integers(0, len(frames)))
    complete, before, after = State(), State(), State()
    for frame in frames:
        complete.apply(frame)
    for frame in frames[:cut]:
        before.apply(frame)
    for frame in [*before.keyframe(), *frames[cut:]]:
        after.apply(frame)
    assert after.keyframe() == complete.keyframe()


@QUICK
@given(files=logs())
def test_the_state_of_a_path_is_what_its_last_verdict_and_its_plane_say(
    files: dict[str, list[dict[str, Any]]],
) -> None:
    """An oracle of its own: the lines of a path by time, whatever was before."""
    state = State()
    for frame in fold(files):
        state.apply(frame)
    shown = {
        (frame["src"], frame["dst"], frame["evs"][0]): frame["state"]
        for frame in state.keyframe()
        if frame["f"] == "path"
    }
    for host in (0, 1):
        ordered = sorted(files[f"h{host}"], key=due)
        for value in EVS:
            verdicts = [row["to"] for row in ordered if row["kind"] == "ev" and row["ev"] == value]
            of_plane = [
                row["to"]
                for row in ordered
                if row["kind"] == "plane" and row["plane"] == value >> 16
            ]
            planes = [to for to in of_plane if to != "SUSPECT"]
            out = (verdicts or ["GOOD"])[-1] in ("ASSUMED_BAD", "DENIED") or (planes or ["USED"])[
                -1
            ] != "USED"
            rerouted = any(row["kind"] == "reroute" for row in ordered)
            if not rerouted:  # MRC never is: its paths have no single user
                assert (shown.get((host, 1 - host, value), "used") not in ("used", "back")) == out


def test_a_keyframe_keeps_every_path_and_the_last_state_of_each_oldest_first() -> None:
    state = State()
    lines = [
        plane(1, "DOWN"),
        ev(2, 0, "ASSUMED_BAD", "time"),
        ev(3, 1, "ASSUMED_BAD", "time"),
        ev(4, 0, "GOOD", "probed"),
    ]
    for frame in fold({"h0": lines}):
        state.apply(frame)
    shown = [(frame["t"], frame["evs"], frame["state"]) for frame in state.keyframe()]
    assert shown == [
        (1_000, [65536], "closed"),
        (1_000, [65537], "closed"),
        (3_000, [1], "died"),
        (4_000, [0], "back"),
    ]


def test_lines_of_one_file_and_time_keep_their_order() -> None:
    lines = [
        ev(5, 0, "ASSUMED_BAD", "time"),
        ev(5, 0, "GOOD", "probed"),
        ev(5, 0, "ASSUMED_BAD", "rto"),
    ]
    assert [state for state, *_ in paths(fold({"h0": lines}))] == ["died", "back", "died"]


def test_a_connection_without_a_path_is_no_path() -> None:
    rows = {0: [PathRow(qpn=1, peer=1, ev=-1), PathRow(qpn=2, peer=1, ev=1)]}
    header = Run("k", "tcp", "tcp", FABRIC, T0 // NS, (0, 1), rows).header()
    assert [(path[0], path[3]) for path in header["pairs"][0]["evs"]] == [
        (0, "idle"),
        (1, "used"),
        (65536, "idle"),
        (65537, "idle"),
    ]


def test_a_pair_that_the_description_lacks_comes_with_its_first_line() -> None:
    jobs = Run("k", "mrc", "mrc", FABRIC, T0 // NS, (0, 1), {})
    frames = fold({"h0": [ev(5, 65536, "ASSUMED_BAD", "time")]}, jobs)
    assert [frame["f"] for frame in frames] == ["pair", "path"]
    assert [path[3] for path in frames[0]["evs"]] == ["used"] * 4
