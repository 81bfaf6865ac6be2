"""The commands for people who write scenarios: check, init, list, explain, schema, graph."""

from __future__ import annotations

import json
import re
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

from agents.collectives.registry import collectives
from scenarios.schema.scenario import KINDS, load_scenario, named_scenarios
from testbed.bench import calibration
from testbed.faults.kinds import KINDS as FAULTS
from tests.mrcbed.cli.conftest import Said
from topologies import load_fabric, named_fabrics
from topologies.fabrics import usual_dilation


def test_check_prints_the_plan(mrcbed: Said) -> None:
    said = mrcbed("check", "link-failure", "--set", "workload.steps=33")
    for words in (
        "4 planes of 2 T0 and 4 T1",
        "33 steps",
        "roce-1p",
        "cable pulled",
        "240 µs",
        "at dilation 12,500",
        "not in this world",
    ):
        assert words in said, words


def test_check_as_json(mrcbed: Said) -> None:
    report = json.loads(mrcbed("check", "smoke", "--json"))
    assert (
        report["ok"]
        and report["kind"] == "scenario"
        and report["runs"] == 1
        and report["errors"] == []
    )
    assert (
        0
        < report["seconds"]["simulated"]["seconds"]
        < report["seconds"]["emulated"]["seconds"]
        < 100
    )
    assert report["seconds"]["emulated"]["dilation"] == usual_dilation("tiny")


def test_check_takes_the_dilation_that_a_run_would_take(
    mrcbed: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a machine that hardly moves
    monkeypatch.setattr(
        calibration, "read", lambda: calibration.Calibration(100_000.0, 0.0, 0.0, {})
    )
    monkeypatch.setattr(calibration, "others_cores", lambda: 0.0)
    slow = json.loads(mrcbed("check", "smoke", "--json"))["seconds"]["emulated"]
    assert (
        slow["dilation"] == 50 * usual_dilation("tiny") and "us of CPU time a packet" in slow["why"]
    )


def test_check_names_every_mistake_and_ends_with_2(mrcbed: Said, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(
        'format = 3\nfabric = "tiny"\nsed = [1]\n[workload]\nkind = "incast"\nsender = 2\n'
        'senders = 2\nmessages = 1\nmessage_bytes = "64KiB"\n[[transport]]\nkind = "mrc"\n'
    )
    lines = mrcbed("check", "bad.toml", status=2).splitlines()
    assert lines == [
        "mrcbed: bad.toml: sed is not a key: did you mean 'seeds'?",
        "mrcbed: bad.toml: workload.sender is not a key: did you mean 'senders'?",
    ]
    (tmp_path / "bad.toml").write_text("planes = [")
    assert "is not valid TOML" in mrcbed("check", "bad.toml", status=2)


def test_check_tells_scenarios_and_fabrics_apart(mrcbed: Said, tmp_path: Path) -> None:
    for words, kind in (
        (["wide"], "fabric"),
        (["demo"], "scenario"),
        (["demo", "--as", "fabric"], "fabric"),
    ):
        assert f"ok, a {kind}" in mrcbed("check", *words)
    (tmp_path / "mine.toml").write_text(
        "format = 3\nplanes = 3\nt0_per_plane = 2\nt1_per_plane = 5\nhosts_per_t0 = 1\n"
    )
    assert "mine: 3 planes of 2 T0 and 5 T1, 2 hosts" in mrcbed("check", "mine.toml")
    (tmp_path / "mine.toml").write_text(
        "format = 3\nplane = 3\nplanes = 0\nt0_per_plane = 2\nt1_per_plane = 5\nhosts_per_t0 = 1\n"
    )
    assert mrcbed("check", "mine.toml", status=2).count("\n") == 2


def test_init_writes_what_check_and_an_editor_accept(mrcbed: Said, tmp_path: Path) -> None:
    mrcbed("tools", "init", "mine")
    text = (tmp_path / "mine.toml").read_text()
    schema = text.splitlines()[0].removeprefix("#:schema ./")
    fastjsonschema.compile(json.loads((tmp_path / schema).read_text()))(tomllib.loads(text))
    assert "mine.toml: ok" in mrcbed("check", "mine.toml")
    assert load_scenario("mine.toml").name == "mine"
    named = re.findall(r"`mrcbed (list|explain) ([\w.]+)`", text)
    assert ("list", "fabrics") in named and ("explain", "transport.options") in named
    for command, word in named:
        mrcbed(command, "seeds" if word == "KEY" else word)


def test_init_leaves_what_is_there(mrcbed: Said, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("mine")
    assert "mine.toml exists and is left as it is" in mrcbed("tools", "init", "mine", status=2)
    assert (tmp_path / "mine.toml").read_text() == "mine"
    assert "cannot be written" in mrcbed("tools", "init", "no/where", status=2)
    assert "use letters" in mrcbed("tools", "init", "a b", status=2)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("scenarios", named_scenarios()),
        ("fabrics", named_fabrics()),
        ("faults", FAULTS),
        ("transports", KINDS),
        ("collectives", collectives()),
    ],
)
def test_list(mrcbed: Said, what: str, names: Any) -> None:
    found = json.loads(mrcbed("list", what, "--json"))
    assert list(found) == list(names) and all(found.values())
    said = mrcbed("list", what)
    assert all(name in said for name in names)


def test_list_alone_has_all_names(mrcbed: Said) -> None:
    found = json.loads(mrcbed("list", "--json"))
    said = mrcbed("list")
    assert len(found) == 5 and all(
        f"{what} ({len(names)})" in said and list(names)[-1] in said
        for what, names in found.items()
    )


def test_explain_a_key_a_table_and_all(mrcbed: Said) -> None:
    said = mrcbed("explain", "transport.mrc.options.mpr")
    for words in (
        "most PSNs in flight",
        "128..32640, a multiple of 128",
        "packets",
        "1024",
        "--set transport.mrc.options.mpr=1024",
    ):
        assert words in said, words
    assert "workload.stepz is not a key: did you mean workload.steps" in mrcbed.refused(
        "explain", "workload.stepz"
    )
    table = mrcbed("explain", "workload.job")
    assert "gradient" in table and "seeds" not in table
    every = mrcbed("explain")
    assert all(
        key in every for key in ("seeds", "gradient", "duty", "cnp_interval_us", "hosts_per_t0")
    )


def test_explain_as_json(mrcbed: Said) -> None:
    (record,) = json.loads(mrcbed("explain", "workload.slices", "--json"))
    assert (
        record["default"] == "4"
        and record["required"] is False
        and record["set"] == "--set workload.slices=4"
    )
    assert "ring-allreduce" in record["kinds"]


@pytest.mark.parametrize("file", ["scenario", "fabric"])
def test_schema(mrcbed: Said, file: str) -> None:
    schema = json.loads(mrcbed("tools", "schema", file))
    assert schema["title"] == f"mrcbed {file} file"
    fastjsonschema.compile(schema)


@pytest.mark.parametrize("name", named_fabrics())
def test_graph_as_svg_has_every_part_within_the_drawing(mrcbed: Said, name: str) -> None:
    fabric = load_fabric(name)
    root = ET.fromstring(mrcbed("fabric", "graph", name))
    titles = Counter(title.text for title in root.iter("{http://www.w3.org/2000/svg}title"))
    nic = [link for link in fabric.links if link.kind == "nic"]
    wanted = (
        {link.name for link in fabric.links if link.kind == "fabric"}
        | {link.a.name for link in nic}
        | set(fabric.switches)
    )
    assert all(titles[part] == 1 for part in wanted)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for part in root.iter():
        for key, most in (
            ("x", width),
            ("x1", width),
            ("x2", width),
            ("y", height),
            ("y1", height),
            ("y2", height),
        ):
            assert 0 <= float(part.get(key, 0)) <= most


def test_graph_as_mermaid_and_dot_has_every_link_once(mrcbed: Said) -> None:
    fabric = load_fabric("tiny")
    for form, edge in (("mermaid", r"^  (\S+) --- (\S+)$"), ("dot", r'^  "(\S+)" -- "(\S+)";$')):
        found = re.findall(edge, mrcbed("fabric", "graph", "tiny", "--format", form), re.MULTILINE)
        assert Counter(f"{low}:{high}" for high, low in found) == Counter(
            link.name for link in fabric.links
        )


def test_graph_writes_a_file_and_refuses_what_cannot_be_drawn(mrcbed: Said, tmp_path: Path) -> None:
    mrcbed("fabric", "graph", "tiny", "--out", "tiny.svg")
    assert ET.parse(tmp_path / "tiny.svg").getroot().tag.endswith("svg")
    assert "1,024 links, Mermaid draws 500" in mrcbed(
        "fabric", "graph", "pod64", "--format", "mermaid", status=2
    )
    (tmp_path / "huge.toml").write_text(
        "format = 3\nplanes = 16\nt0_per_plane = 40\nt1_per_plane = 40\nhosts_per_t0 = 4\n"
    )
    assert "too many for a drawing" in mrcbed("fabric", "graph", "huge.toml", status=2)
