"""``--pcap`` in the simulated world: every frame that crosses a cable is in the file, whole and at
its time, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.figures.measure import Run
from scenarios.run.simulate import Worlds, simulate
from scenarios.schema.scenario import load_scenario
from testbed.wireshark.packets import read, row
from tests.scenarios.small import undrawn
from tests.simulated.test_runs import RING

CUT, OTHER = "p0-t0-0:p0-t1-0", "h0:p1-t0-0"


def ran(folder: Path, *links: str, jobs: int = 1) -> tuple[Path, dict[str, Any]]:
    folder.mkdir()
    (folder / "made.toml").write_text(RING)
    directory = folder / "out"
    directory.mkdir()
    with undrawn():
        summary = simulate(
            load_scenario(str(folder / "made.toml")), directory, worlds=Worlds(links), jobs=jobs
        )
    assert summary["verdict"] == "ok"
    return directory, summary


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    # two runs; a link's ends in either order
    return ran(tmp_path_factory.mktemp("capture") / "with", "p0-t1-0:p0-t0-0", OTHER, jobs=2)


def test_the_file_has_as_many_frames_as_the_far_ends_counted(
    captured: tuple[Path, dict[str, Any]],
) -> None:
    directory, summary = captured
    manifest = json.loads((directory / "manifest.json").read_text())
    assert [(c["file"], c["link"], c["dropped"]) for c in manifest["captures"]] == [
        (f"pcap/{folder}/{link.replace(':', '_')}.pcap", link, 0)
        for folder in ("tiny", "tiny-2")
        for link in (CUT, OTHER)
    ]  # one folder per run, in their order
    for run, captures in zip(
        ("mrc", "roce"), (manifest["captures"][:2], manifest["captures"][2:]), strict=True
    ):
        key = next(entry["run"] for entry in summary["runs"] if entry["transport"] == run)
        counters = Run(directory / "raw" / key).record.counters_after
        for capture in captures:
            rows = [row for row in counters if row["link"] == capture["link"]]
            packets = list(read(directory / capture["file"]))
            assert (
                len(rows) == 2
                and len(packets)
                == capture["packets"]
                == sum(row["arrived_packets"] for row in rows)
                > 0
            )
            assert sum(packet.length for packet in packets) == sum(
                row["arrived_bytes"] for row in rows
            )


def test_nothing_crosses_a_cable_while_it_is_cut_and_times_are_those_of_the_summary(
    captured: tuple[Path, dict[str, Any]],
) -> None:
    directory, summary = captured
    fault = next(
        f
        for entry in summary["runs"]
        if entry["transport"] == "mrc"
        for f in entry["failovers"]
        if f["fault"] == "cable"
    )
    times = [
        packet.at for packet in read(directory / "pcap" / "tiny" / f"{CUT.replace(':', '_')}.pcap")
    ]
    assert times == sorted(times) and times[0] < fault["at_ns"] and times[-1] > fault["healed_ns"]
    assert not [t for t in times if fault["at_ns"] + 1 < t < fault["healed_ns"]]
    last = max(t for t in times if t <= fault["at_ns"] + 1)
    assert fault["at_ns"] - last < 5_000  # ns: it carried data until it was cut


def test_packets_of_mrc_can_be_read_and_carry_the_path_of_their_cable(
    captured: tuple[Path, dict[str, Any]],
) -> None:
    rows = [
        row(packet)
        for packet in read(captured[0] / "pcap" / "tiny" / f"{CUT.replace(':', '_')}.pcap")
    ]
    assert {r["ev"] for r in rows} == {"0:0"}
    assert {"WRITE Middle", "SACK", "Reliability Probe"} <= {r["type"] for r in rows}
    directions = {(r["src"], r["dst"]) for r in rows if r["type"].startswith("WRITE")}
    assert {("h0", "h2"), ("h2", "h1")} <= directions  # both directions of the cable


def test_a_capture_changes_nothing_of_the_run(
    captured: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    directory, summary = captured
    plain, same = ran(tmp_path / "without")
    assert same == summary and not (plain / "pcap").exists()
    logs = sorted(path.relative_to(plain) for path in (plain / "raw").rglob("*.jsonl"))
    assert logs and all(
        (plain / log).read_bytes() == (directory / log).read_bytes() for log in logs
    )
