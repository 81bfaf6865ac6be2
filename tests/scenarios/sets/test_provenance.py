"""Both worlds have the fingerprints of results/reference, which move with what figures depend on,
not with words; stamps say the truth."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import grimp
import pytest

from scenarios.schema.scenario import load_scenario
from scenarios.sets import provenance
from scenarios.sets.paper.figure import Part
from scenarios.sets.provenance import BELOW, asked, begin, begun, here
from testbed.installation import ROOT
from testbed.world import EMULATED, SIMULATED

WRITTEN = (
    "results/reference/fingerprints.json has another fingerprint of the {} world, write it "
    "anew: .venv/bin/{}"
)


def refused(world: str, found: str, reference: Path = provenance.REFERENCE) -> str:
    return (
        ""
        if provenance.stored(reference).get(world) == found
        else WRITTEN.format(world, provenance.AGAIN)
    )


@pytest.mark.dear("runs of every transport: about 4 s")
def test_the_simulated_world_is_the_one_that_the_file_says(tmp_path: Path) -> None:
    found = provenance.simulated(tmp_path)
    logs = b"".join(path.read_bytes() for path in tmp_path.rglob("*.jsonl"))
    assert re.search(
        '"pauses": [1-9]', "".join(path.read_text() for path in tmp_path.rglob("run.json"))
    )
    kinds = [rf'"kind":"{kind}"' for kind in ("loss", "rto", "reroute", "hint", "step", "flow")]
    counts = [
        rf'"{count}":[1-9]'
        for count in ("trims", "marked_rx", "cnps_rx", "naks_rx", "retransmitted", "lost_by_port")
    ]
    assert [pattern for pattern in kinds + counts if not re.search(pattern.encode(), logs)] == []
    assert not refused(SIMULATED, found), refused(SIMULATED, found)
    (tmp_path / provenance.FINGERPRINTS).write_text(f'{{"simulated": "{found[::-1]}"}}')
    assert provenance.AGAIN in refused(SIMULATED, found, tmp_path)


@pytest.mark.dear("reads all source below the emulated world: about 1 s")
def test_the_emulated_world_is_the_one_that_the_file_says(tmp_path: Path) -> None:
    found = provenance.emulated()
    assert not refused(EMULATED, found), refused(EMULATED, found)
    for below in BELOW:
        copy = shutil.copytree if (ROOT / below).is_dir() else shutil.copyfile
        (tmp_path / below).parent.mkdir(exist_ok=True)
        copy(ROOT / below, tmp_path / below)
    clock, c = tmp_path / "agents" / "clock.py", tmp_path / "testbed" / "dataplane" / "fabric.bpf.c"
    clock.write_text(f"# More words.\n{clock.read_text()}\n'Words only.'\n")
    c.write_text(f"/* more\n words */ // and more\n{c.read_text()}")
    assert provenance.emulated(tmp_path) == found
    for path in (clock, c):
        before = path.read_text()
        path.write_text(before + "\nMORE = 1;\n")
        assert provenance.emulated(tmp_path) != found
        path.write_text(before)


@pytest.mark.dear("reads every import: about 1 s")
def test_the_source_below_the_emulated_world_is_whole() -> None:
    """Whatever its agents, switches and faults import is part of its fingerprint; the rest are
    words, options and the reading of files."""
    graph = grimp.build_graph("agents", "testbed", "topologies")
    words = (
        "errors",
        "installation",
        "options",
        "terminal",
        "results",
        "streams",
        "crowd",
        "verbs",
        "view",
    )
    found = set[str]()
    for root in ("testbed.emulated", "testbed.dataplane", "testbed.controller", "agents.process"):
        found |= graph.find_upstream_modules(root, as_package=True)
    files = {
        f"{module.replace('.', '/')}"
        for module in found
        if not module.startswith(tuple(f"testbed.{word}" for word in words))
    }
    inside = tuple(below.removesuffix(".py") for below in BELOW)
    assert sorted(file for file in files if file != "testbed" and not file.startswith(inside)) == []


def test_what_a_scenario_asks_for_is_not_its_words(tmp_path: Path) -> None:
    text = (provenance.SMALL / "ring.toml").read_text()
    for name, more in (("a", ""), ("b", '\n[[expect]]\ncheck = "mrc.wrong == 0"\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ring.toml").write_text(text.replace("For the", "Of the") + more)
    paths = [str(tmp_path / name / "ring.toml") for name in "ab"]
    first = asked(load_scenario(paths[0]))
    assert {asked(load_scenario(path, seeds=[seed])) for path in paths for seed in (1, 2)} == {
        first
    }
    for key in (
        "workload.steps=4",
        "transport.roce.options.qps=2",
        "fault.0.probability=0.2",
        'sweep={"workload.slices" = [2, 4]}',
    ):
        assert asked(load_scenario(paths[0], overrides=[key])) != first
    assert asked(load_scenario(paths[0], fabric="demo")) != first


def test_runs_of_two_states_have_no_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Part("main", "smoke", world=SIMULATED)
    scenario = part.load()
    monkeypatch.setattr(provenance, "fingerprint", lambda world: "one")
    assert begun(tmp_path, SIMULATED).fingerprint == ""  # no note: older
    begin(part, scenario, tmp_path)
    assert begun(tmp_path, SIMULATED).fingerprint == "one"
    (tmp_path / "manifest.json").write_text("{}")
    begin(part, scenario, tmp_path)  # goes on under the same
    assert (begun(tmp_path, SIMULATED).fingerprint, begun(tmp_path, SIMULATED).scenario) == (
        "one",
        asked(scenario),
    )
    monkeypatch.setattr(provenance, "fingerprint", lambda world: "two")
    begin(part, scenario, tmp_path)
    assert begun(tmp_path, SIMULATED).fingerprint == ""


def test_a_commit_is_marked_if_source_differs_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for dirty in (True, False):
        monkeypatch.setattr(
            provenance,
            "git",
            lambda *below, dirty=dirty: {"commit": "0123456789abcdef", "dirty": dirty},
        )
        assert here()[0] == ("01234567+" if dirty else "01234567")
    monkeypatch.setattr(provenance, "git", lambda *below: None)
    assert here()[0] == ""
