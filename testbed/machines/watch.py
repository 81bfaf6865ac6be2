"""The fidelity watch of a run on several machines: their reports become one, with the worst of each
finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agents.clock import WallClock
from testbed.errors import ClusterDied, first_line
from testbed.machines.channel import Channel, ask_all, whole
from testbed.machines.clocks import Offset, wall_unsure_ns
from testbed.machines.orders import Watched

Report = Mapping[str, Any]
_WORST = {"cores": min, "times": max, "wall_ns": max}
_STILL = {"wall_step_ns": 0, "wall_slept_ns": 0, "drift_ppm": 0.0, "strangers": []}


class MachineWatch:
    def __init__(
        self,
        clock: WallClock,
        channels: Sequence[Channel],
        interval: int,
        carried: Callable[[], Mapping[str, int]],
    ) -> None:
        self._clock, self._channels, self._interval, self._carried = (
            clock,
            channels,
            interval,
            carried,
        )
        self._begin: list[Offset] = []
        self._result: Mapping[str, object] = {}
        self.samples: list[tuple[int, float]] = []
        self.delay_max_ns = 0

    def start(self) -> None:
        self._begin = [channel.offset() for channel in self._channels]
        ask_all(self._channels, "watch_start", interval_ps=self._interval)

    def mark(self) -> None:
        ask_all(self._channels, "watch_mark")

    def stop(self) -> None:
        """A machine that is gone makes the watch end early, which the result says."""
        try:
            ends = [channel.offset() for channel in self._channels]
            answers = ask_all(self._channels, "watch_stop")
            trunk = dict(self._carried())
            with whole(self._channels):
                self._result = self._whole(answers, ends, trunk)
        except ClusterDied as error:
            self._result = {
                "clock": dict(_STILL),
                "gaps": [],
                "cores": 0,
                "failure": first_line(error),
                "shaper_late": None,
            }
            return
        self.samples = sorted(
            (int(t), share) for answer in answers for t, share in answer["samples"]
        )
        self.delay_max_ns = max(answer["delay_max_ns"] for answer in answers)

    def _whole(
        self, answers: Sequence[Watched], ends: list[Offset], trunk: dict[str, int]
    ) -> dict[str, object]:
        names = [channel.name for channel in self._channels]
        unsure = {
            name: wall_unsure_ns(*pair)
            for name, *pair in zip(names, self._begin, ends, strict=True)
        }
        return {
            **merged(dict(zip(names, (answer["result"] for answer in answers), strict=True))),
            "clocks": {
                "unsure_ps": self._clock.span(max(unsure.values())),
                "wall_by_machine_ns": unsure,
                "wall_moved_ns": [end.wall_ns for end in ends],
            },
            "trunk": trunk,
            "machines": [
                {"name": c.name, "address": c.place.address, **c.facts} for c in self._channels
            ],
        }

    def result(self) -> Mapping[str, object]:
        return self._result


def merged(reports: Mapping[str, Report]) -> dict[str, object]:
    every = list(reports.values())
    summary: dict[str, object] = {
        "clock": _clocks(reports),
        "gaps": sorted(gap for report in every for gap in report["gaps"]),
        "cores": sum(report["cores"] for report in every),
        "failure": "; ".join(
            f"{name}: {report['failure']}" for name, report in reports.items() if report["failure"]
        ),
        "shaper_late": None
        if any(report["shaper_late"] is None for report in every)
        else sum(report["shaper_late"] for report in every),
    }
    if quotas := [report["quota"] for report in every if "quota" in report]:
        summary["quota"] = {
            name: worst(quota[name] for quota in quotas) for name, worst in _WORST.items()
        }
    if all("ports" in report for report in every):
        rows = [row for report in every for row in report["ports"]["ports"]]
        frame = max(report["ports"]["frame_bytes"] for report in every)
        summary["ports"] = {
            "looks": min(report["ports"]["looks"] for report in every),
            "frame_bytes": frame,
            "ports": rows,
        }
    if all("wall_window_ns" in report for report in every):
        summary["wall_window_ns"] = max(report["wall_window_ns"] for report in every)
        pressures = [report["pressure"] for report in every if report["pressure"] is not None]
        summary["pressure"] = max(pressures, default=None)
        summary["processes"] = [
            {**row, "name": _name(row["name"], name)}
            for name, report in reports.items()
            for row in report["processes"]
        ]
        busiest = max(every, key=lambda report: report.get("cpu_shares", {}).get("busy", 0.0))
        if "cpu_shares" in busiest:
            summary["cpu_shares"] = busiest["cpu_shares"]
    return summary


def _clocks(reports: Mapping[str, Report]) -> dict[str, object]:
    clocks = {name: report["clock"] for name, report in reports.items()}
    return {
        **{
            key: max(clock[key] for clock in clocks.values())
            for key in ("wall_step_ns", "wall_slept_ns")
        },
        "drift_ppm": max((clock["drift_ppm"] for clock in clocks.values()), key=abs),
        "strangers": [
            f"{stranger} on {name}"
            for name, clock in clocks.items()
            for stranger in clock["strangers"]
        ],
    }


def _name(process: str, machine: str) -> str:
    return process if process[:1] == "h" and process[1:].isdigit() else f"{process} on {machine}"
