"""How much a run stretches time: the step that this machine carries, and one repeat at the next
where that was too little."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from scenarios.schema.scenario import Scenario, ScenarioError, load_scenario
from scenarios.sets import dilation
from scenarios.sets.dilation import (
    AUTO,
    automatic,
    given,
    next_step,
    packets_per_second,
    run_dilated,
)
from testbed.bench import calibration as bench
from testbed.bench import cluster as ring
from testbed.bench.calibration import Calibration, calibration
from testbed.results.manifest import Attempt, Stretched
from testbed.results.summary import Summary
from tests.made import made
from topologies.structs import plain

DEMO = load_scenario("healthy", transports=["mrc"])
DEMO_PPS = 8 * 4e11 / 8 / 4238
"""Eight hosts of four ports of 100 Gb/s, full packets."""
CARRIED_US = 0.6 * 2e6 / (DEMO_PPS / 12_500)
"""CPU time of a packet at which two cores just carry them."""


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(dilation, "quota_cores", lambda: math.inf)


def test_the_busiest_moment_is_all_ports_that_the_workload_fills() -> None:
    assert packets_per_second(DEMO) == pytest.approx(DEMO_PPS)
    incast = load_scenario("incast-15", transports=["mrc"])
    host = 4e11 / 8 / 4238
    assert packets_per_second(incast) == pytest.approx(host), (
        "fifteen senders, one receiver's ports"
    )
    assert packets_per_second(load_scenario("permutation", transports=["mrc"])) == pytest.approx(
        16 * host
    )


@pytest.mark.parametrize(
    ("times", "cores", "factor"),
    [(1.0, 2, 1), (3.9, 2, 1), (16.0, 2, 16), (1.0, 0.125, 16), (4.0, 0.5, 16), (1.0, 8, 1)],
)
def test_a_slow_or_limited_machine_is_calibrated_at_a_dilation_that_it_carries(
    times: float, cores: float, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring, "slowness", lambda: times)
    monkeypatch.setattr(ring, "usable_cores", lambda: cores)
    monkeypatch.setattr(ring, "Cluster", lambda fabric, dilation: dilation)
    assert ring.ring_cluster() == 12_500 * factor  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("cpu_us", "others", "factor"),
    [
        (80, 0.0, 1),
        (CARRIED_US - 1, 0.0, 1),
        (CARRIED_US + 1, 0.0, 1.5),
        (1.5 * CARRIED_US + 1, 0.0, 2),
        (240, 1.0, 5),
        (80, 5.0, 1.5),
        (1e9, 0.0, 50),
    ],
)
def test_the_smallest_step_at_which_it_fits_what_others_leave(
    cpu_us: float, others: float, factor: float
) -> None:
    chosen = automatic(DEMO, cpu_us, others)
    assert (chosen.factor, chosen.value, chosen.chosen) == (factor, 12_500 * factor, AUTO)


@pytest.mark.parametrize(
    ("limit", "others", "free"),
    [(0.12, 0.0, 0.12), (0.12, 1.9, 0.12), (1.5, 1.0, 1.0), (8.0, 0.0, 2.0)],
)
def test_no_more_cores_are_free_than_a_quota_allows(
    limit: float, others: float, free: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dilation, "quota_cores", lambda: limit)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    assert dilation.free_cores(others) == free
    chosen = automatic(DEMO, CARRIED_US - 1, others)  # what two free cores just carry
    assert chosen.factor == {2.0: 1, 1.0: 2, 0.12: 20}[free]
    assert chosen.why.endswith(
        f"{free:.2g} free cores" + (" (a CPU quota)" if limit == 0.12 else "")
    )


def test_the_step_after_the_last_is_none_and_none_is_too_slow_to_emulate() -> None:
    first = automatic(DEMO, 1, 0)
    factors = []
    step = next_step(first, DEMO)
    while step is not None:
        factors.append(step.factor)
        step = next_step(step, DEMO)
    assert factors == [2, 5, 10, 20, 50]
    pod = load_scenario("pod64-ring", transports=["mrc"])
    assert next_step(automatic(pod, 1, 0), pod).factor == 2  # type: ignore[union-attr]
    assert next_step(given(pod, 40 * pod.dilation), pod) is None, (
        "5 times slower is below the smallest rate of a port"
    )


class Runs:
    """Stands for the emulated world: runs that end as told, the last way from then on. Each leaves
    a file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *slow: bool, verdict: str = "ok") -> None:
        self.slow, self.verdict, self.calls = list(slow), verdict, []  # type: ignore[var-annotated]
        monkeypatch.setattr("scenarios.run.runner.run_scenario", self.run)
        monkeypatch.setattr(dilation, "calibration", lambda progress: Calibration(80, 0.0, 0.0, {}))
        monkeypatch.setattr(dilation, "others_cores", lambda: 0.0)

    def run(
        self, scenario: Scenario, directory: Path, *, stretched: Any, **settings: Any
    ) -> Summary:
        slow = self.slow.pop(0) if self.slow else False
        self.calls.append(
            (scenario.dilation, settings["resume"], [a.directory for a in stretched.attempts])
        )
        (directory / "raw").mkdir()
        (directory / "manifest.json").write_text(json.dumps(plain(stretched)))
        (directory / "raw" / "figures").write_text(f"{scenario.dilation:.0f}")
        run = {
            "run": "mrc-demo-packed-s1",
            "distrust": ["agents woke up late"] if slow else [],
            "fidelity": {"too_slow": slow},
        }
        return made(Summary, verdict="not trustworthy" if slow else self.verdict, runs=[run])


def go(
    directory: Path, wanted: float | None = None, resume: bool = False
) -> tuple[Summary, list[str]]:
    said: list[str] = []
    return run_dilated(
        DEMO, directory, wanted, progress=lambda what, share: said.append(what), resume=resume
    ), said


def test_a_series_that_was_too_fast_is_repeated_once_and_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(monkeypatch, True, False)
    summary, said = go(tmp_path)
    assert summary["verdict"] == "ok" and runs.calls == [
        (12_500, False, []),
        (25_000, False, ["attempt-1"]),
    ]
    assert (tmp_path / "raw" / "figures").read_text() == "25000" and (
        tmp_path / "attempt-1" / "raw" / "figures"
    ).read_text() == "12500"
    (attempt,) = json.loads((tmp_path / "manifest.json").read_text())["attempts"]
    assert attempt["dilation"]["value"] == 12_500 and attempt["verdict"] == "not trustworthy"
    assert attempt["reasons"] == ["mrc-demo-packed-s1: agents woke up late"]
    assert [line.split(" (")[0] for line in said] == [
        "dilation 12,500",
        "At dilation 12,500 the machine was too slow",
        "dilation 25,000",
    ]


def test_a_second_doubt_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, True, True, True)
    assert go(tmp_path)[0]["verdict"] == "not trustworthy" and len(runs.calls) == 2


def test_what_the_user_asked_for_is_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(monkeypatch, True)
    assert go(tmp_path, 20_000)[0]["verdict"] == "not trustworthy" and runs.calls == [
        (20_000, False, [])
    ]


def test_a_failed_check_alone_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(monkeypatch, verdict="failed")
    assert go(tmp_path)[0]["verdict"] == "failed" and len(runs.calls) == 1


def test_a_run_goes_on_at_the_dilation_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = replace(given(DEMO, 40_000), chosen=AUTO)
    begun = made(
        Stretched, dilation=began, attempts=[made(Attempt, directory="attempt-1", dilation=began)]
    )
    (tmp_path / "manifest.json").write_text(json.dumps(plain(begun)))
    runs = Runs(monkeypatch)
    with pytest.raises(ScenarioError, match=r"begun at dilation 40,000: drop --dilation 20,000"):
        go(tmp_path, 20_000, resume=True)
    go(tmp_path, resume=True)
    assert runs.calls == [(40_000, True, ["attempt-1"])]


# --- what is kept of a calibration ----------------------------------------------------------------


def test_tests_leave_the_calibration_of_the_machine_alone() -> None:
    assert bench.file() != bench.FILE


def test_a_calibration_is_kept_until_it_is_old_or_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cache" / "calibration.json"
    monkeypatch.setenv(bench.PLACE, str(file))
    monkeypatch.setattr(bench, "others_cores", lambda: 0.1)
    monkeypatch.setattr(bench, "quota_cores", lambda: math.inf)
    costs = iter([100.0, 200.0, 300.0, 400.0, 450.0, 500.0])

    def cost(*arguments: Any) -> dict[str, float]:
        us = next(costs)
        return {"cpu_us_per_data_packet": us, "agents_cpu_us_per_data_packet": us}

    monkeypatch.setattr("testbed.bench.cluster.cluster_cost", cost)

    def cpu_us(renew: bool = False) -> float:
        return calibration(lambda what, share: None, renew).cpu_us

    assert cpu_us() == cpu_us() == 100.0
    assert cpu_us(renew=True) == cpu_us() == 200.0
    kept = msgspec.json.decode(file.read_bytes())
    file.write_text(json.dumps(kept | {"measured_s": kept["measured_s"] - bench.MAX_AGE_S - 1}))
    assert cpu_us() == 300.0
    file.write_text(json.dumps(kept | {"machine": kept["machine"] | {"kernel": "another"}}))
    assert cpu_us() == 400.0
    monkeypatch.setattr(bench, "quota_cores", lambda: 0.5)
    assert cpu_us() == 450.0
    monkeypatch.setattr(bench, "quota_cores", lambda: math.inf)
    busy = kept | {"others_cores": 1.5}
    file.write_text(
        json.dumps(busy | {"measured_s": kept["measured_s"] - bench.MAX_AGE_BUSY_S / 2})
    )
    assert cpu_us() == 200.0
    file.write_text(
        json.dumps(busy | {"measured_s": kept["measured_s"] - bench.MAX_AGE_BUSY_S - 1})
    )
    assert cpu_us() == 500.0
    file.write_text("{")
    with pytest.raises(StopIteration):
        cpu_us()
