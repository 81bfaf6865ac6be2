"""What the watch sees of a machine, of processes and of clocks, and that it never goes unsaid when
it could not see."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.clock import WallClock
from scenarios.run import watch as watching
from scenarios.run.watch import Watch
from testbed.machine.kernel_log import KernelLog
from testbed.machine.load import Clocks, read_clocks, read_work
from testbed.machine.quota import Throttled
from tests.waiting import holds, wait_until
from topologies.units import NS, US

MS = 1_000_000


def ticking(*moved: dict[str, int]) -> Iterator[Clocks]:
    """A look every 200 ms; ``moved``: by how much clocks were set before each look, ns."""
    at = {"monotonic": 0, "real": 10**18, "raw": 0, "boot": 0}
    for change in moved:
        at = {name: t + 200 * MS + change.get(name, 0) for name, t in at.items()}
        yield Clocks(**at, width=change.get("width", 1000))


def clock(*moved: dict[str, int]) -> dict[str, Any]:
    """What a watch makes of such clocks."""
    looks = ticking(*moved)
    made = Watch(WallClock(), clocks=lambda: next(looks))
    for _ in moved[2:]:
        made._look_at_clocks()
    return dict(made.result()["clock"])


def test_clocks_that_go_on_are_not_suspected() -> None:
    assert clock(*[{}] * 5) == {
        "wall_step_ns": 0,
        "wall_slept_ns": 0,
        "drift_ppm": 0.0,
        "strangers": [],
    }


@pytest.mark.parametrize("step", [30 * MS, -30 * MS])
def test_a_clock_that_was_set_is_seen_and_set_back_it_still_is(step: int) -> None:
    assert clock({}, {}, {"real": step}, {}, {}) == {
        "wall_step_ns": 30 * MS - 2000,
        "wall_slept_ns": 0,
        "drift_ppm": 0.0,
        "strangers": [],
    }
    assert clock({}, {}, {"real": step}, {}, {"real": -step})["wall_step_ns"] == 30 * MS - 2000


def test_a_machine_that_slept_is_not_taken_for_a_clock_that_was_set() -> None:
    found = clock({}, {}, {"boot": 5000 * MS, "real": 5000 * MS}, {})
    assert (found["wall_slept_ns"], found["wall_step_ns"]) == (5000 * MS, 0)


class Gap:
    """A clock and a scheduler in which the third look comes 5 s late; ``waited``: so much of it the
    thread was ready to run, ns."""

    def __init__(self, waited: int) -> None:
        self.now, self.looks, self.waited, self.total = 0, 0, waited, 0

    def monotonic_ns(self) -> int:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.looks += 1
        late = 5000 * MS if self.looks == 3 else 0
        self.total += self.waited if late else 0
        self.now += int(seconds * 1e9) + late
        return self.looks > 5


@pytest.mark.parametrize(
    ("waited", "gap"), [(0, [5000 * MS]), (5000 * MS, []), (3000 * MS, [2000 * MS])]
)
def test_late_looks_that_did_not_wait_are_gaps(
    waited: int, gap: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Gap(waited)
    monkeypatch.setattr(watching, "time", play)
    monkeypatch.setattr(watching, "_waited_ns", lambda: play.total)
    made = Watch(WallClock(dilation=1000.0, origin=0))
    monkeypatch.setattr(made, "_over", play)
    made.run()
    end = 5600 * US
    assert made.failure == "" and made.result()["gaps"] == [
        (end - ns * NS // 1000, end, ns) for ns in gap
    ]


def test_a_stopped_process_is_suspended_and_not_starved() -> None:
    """The real thing: SIGSTOP for more than GAP_NS, whatever the machine is like."""
    code = (
        "import json, sys; from agents.clock import WallClock; from scenarios.run.watch import "
        "Watch; w = Watch(WallClock()); w.start(); "
    )
    code += (
        "print(1, flush=True); sys.stdin.readline(); w.stop(); "
        "print(json.dumps(w.result()['gaps']))"
    )
    words = [sys.executable, "-c", code]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        assert holds(lambda: process.poll() is None, 0.5)  # it looks some times
        process.send_signal(signal.SIGSTOP)
        assert holds(lambda: process.poll() is None, 2.5)
        process.send_signal(signal.SIGCONT)
        assert holds(lambda: process.poll() is None, 0.5)
        gaps = json.loads(process.communicate("\n", timeout=60)[0])
    assert len(gaps) == 1 and gaps[0][2] >= 1.5e9


def test_a_look_that_took_long_is_no_step() -> None:
    assert clock({}, {}, {"real": 30 * MS, "width": 40 * MS}, {})["wall_step_ns"] == 0


def test_a_slewed_clock_is_a_drift_and_no_step() -> None:
    # monotonic and the day's are slewed alike: 200 ms of theirs are 200.1 of the hardware's
    slow = {"raw": 100_000, "real": 0}
    assert clock(*[slow] * 6) == {
        "wall_step_ns": 0,
        "wall_slept_ns": 0,
        "drift_ppm": pytest.approx(-499.8, abs=0.2),
        "strangers": [],
    }


def test_the_real_clocks_are_sane() -> None:
    def sane() -> bool:
        """At one of several looks: this process may lose its core between two readings of one."""
        made = Watch(WallClock())
        first = read_clocks()
        holds(lambda: True, 0.02)
        found = made.result()["clock"]
        return (
            found["wall_step_ns"] < 5 * MS
            and abs(found["drift_ppm"]) < 20_000
            and read_clocks().monotonic > first.monotonic
        )

    assert any(sane() for _ in range(20))


def test_what_processes_use_between_the_marks() -> None:
    # above the largest pid there is
    made = Watch(WallClock(), lambda: {"runner": os.getpid(), "h0": 2**22 + 1})
    made.mark()
    own = read_work(os.getpid())
    while (now := read_work(os.getpid())) and own and now.cpu_ns < own.cpu_ns + 60 * MS:
        pass
    made.mark()
    found = made.result()
    (row,) = found["processes"]  # who is not there has no row
    assert (
        row["name"] == "runner"
        and 50 * MS <= row["wall_cpu_ns"] <= 2 * found["wall_window_ns"]
        and row["wall_delay_ns"] >= 0
    )
    assert found["pressure"] is None or found["pressure"] >= 0
    shares = found["cpu_shares"]
    assert (
        shares["own"]
        == pytest.approx(row["wall_cpu_ns"] / found["wall_window_ns"] / found["cores"], abs=1e-3)
        and 0 <= shares["busy"] <= 1
    )
    assert found["clock"]["strangers"] == [] and "ports" not in found


def test_stops_by_a_quota_count_within_the_measured_part_wherever_a_process_is_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, later = Path("/first"), Path("/later")
    looks = iter(
        [
            {first: Throttled(7, 700)},  # the measured part begins: what was before does not count
            {first: Throttled(9, 900)},
            # a process was moved into a group that had been stopped before
            {first: Throttled(9, 900), later: Throttled(100, 5)},
            {first: Throttled(9, 900), later: Throttled(101, 25)},
        ]
    )
    monkeypatch.setattr(watching, "read_throttled", lambda pids: next(looks))
    monkeypatch.setattr(watching, "usable_cores", lambda: 2)
    limits = iter([math.inf, math.inf, math.inf, math.inf, 0.08, math.inf, 0.5, 0.5])
    monkeypatch.setattr(watching, "quota_cores", lambda pid: next(limits))
    made = Watch(WallClock(), lambda: {"h0": os.getpid()})
    made._look_at_quotas()  # before the measured part: nothing
    made.mark()
    made._look_at_quotas()
    made._look_at_quotas()
    made.mark()
    assert made.result()["quota"] == {"cores": 0.08, "times": 2, "wall_ns": 200}


def test_threads_count_and_a_strangers_pid_does_not() -> None:
    own = read_work(os.getpid())
    assert own is not None and own.cpu_ns > 0 and own.turns > 0
    assert read_work(2**22 + 1) is None


def test_a_process_that_was_replaced_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([watching.read_work(os.getpid()), None])
    monkeypatch.setattr(watching, "read_work", lambda pid: next(told))
    made = Watch(WallClock(), lambda: {"h0": os.getpid()})
    made.mark()
    made.mark()
    assert made.result()["processes"] == []


def test_a_process_with_clocks_of_its_own_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "namespace", lambda pid, kind: 7 if pid == 3 else 1)
    made = Watch(WallClock(), lambda: {"h0": 2, "h1": 3})
    made.mark()
    made.mark()
    assert made.result()["clock"]["strangers"] == ["h1"]


def test_the_shapers_complaints_are_counted_while_it_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "kmsg"
    log.write_text("4,1,2,-;htb: too many events!\n")
    monkeypatch.setattr(watching, "KernelLog", lambda: KernelLog(str(log)))
    made = Watch(WallClock())
    with log.open("a") as file:
        file.write("4,2,3,-;htb: too many events!\n")
    made.stop()
    assert made.result()["shaper_late"] == 1


class Ports:
    """Counts looks; breaks at one of them."""

    def __init__(self, breaks_at: int = 10**9) -> None:
        self.looks, self.breaks_at = 0, breaks_at

    def look(self) -> None:
        self.looks += 1
        if self.looks == self.breaks_at:
            raise OSError("no such queue")

    def result(self) -> dict[str, Any]:
        return {"looks": self.looks, "frame_bytes": 1, "ports": []}


def watched(ports: Ports) -> dict[str, Any]:
    made = Watch(WallClock(), ports=ports)
    made.start()
    wait_until(lambda: ports.looks >= 3)
    made.stop()
    assert not made.is_alive()
    return made.result()


def test_ports_are_looked_at_while_it_goes() -> None:
    found = watched(Ports())
    assert found["ports"]["looks"] >= 3 and found["failure"] == "" and found["cores"] >= 1


def test_a_watch_that_broke_says_so() -> None:
    assert watched(Ports(breaks_at=3))["failure"] == "OSError: no such queue"


def test_a_watch_that_never_began_can_be_stopped() -> None:
    made = Watch(WallClock())
    made.stop()
    assert "processes" not in made.result()
