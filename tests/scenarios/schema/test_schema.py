"""Scenario files: what is read, and that every mistake is one line with file, key and fix."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mrcbed.cli import run
from scenarios.figures.fidelity import SLOWER
from scenarios.run.planning import plan
from scenarios.schema.fabrics import at_rate
from scenarios.schema.scenario import ScenarioError, load_scenario, named_scenarios, twin_of
from tests.scenarios.small import small
from topologies import FabricError, load_fabric
from topologies.units import MS, US, S, parse_duration, parse_size

GOOD = """
format = 3
fabric = "tiny"
[workload]
kind = "ring-allreduce"
message_bytes = "64KiB"
steps = 4
[[transport]]
kind = "mrc"
"""


def write(tmp_path: Path, body: str) -> str:
    file = tmp_path / "mine.toml"
    file.write_text(body)
    return str(file)


def test_shipped_scenarios_are_valid() -> None:
    known = {
        "link-failure",
        "healthy",
        "smoke",
        "incast-victim",
        "incast-15",
        "permutation",
        "ev-balance",
    }
    assert known | {"nic-ports-one-by-one", "t1-dead", "agent-killed"} <= set(named_scenarios())
    for name in named_scenarios():
        assert load_scenario(name).name == name


def test_demo_and_comparison_are_what_the_readme_says() -> None:
    demo, five = load_scenario("demo"), load_scenario("link-failure")
    assert [(t.name, t.fabric.name) for t in demo.transports] == [
        ("mrc", "demo"),
        ("roce-1p", "demo-1p-pfc"),
        ("tcp", "demo"),
    ]
    assert [(f.kind, f.on) for f in demo.faults] == [("link", "used-by-qp"), ("port", "h0-p0")]
    assert [(t.name, t.fabric.name, t.qps) for t in five.transports] == [
        ("mrc", "demo", 1),
        ("roce-1p", "demo-1p", 1),
        ("roce-16", "demo-1p", 16),
        ("tcp", "demo", 4),
        ("mptcp", "demo", 1),
    ]


def test_twin_of_demo_is_the_named_one() -> None:
    assert twin_of(load_fabric("demo")) == load_fabric("demo-1p")


def test_a_twin_and_a_fabric_at_another_rate_have_the_same_memory() -> None:
    fabric = load_fabric("demo").with_(pool_mb_per_tbps=2.5)
    twin = twin_of(fabric)
    assert twin.pool_bytes == tuple(fabric.planes * size for size in fabric.pool_bytes)
    assert at_rate(fabric, 25 * 10**9).pool_bytes == fabric.pool_bytes


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('fabric = "tiny"', 'fabric = "tony"', "no fabric 'tony'"),
        ("steps = 4", "stepps = 4", "workload.stepps is not a key: did you mean 'steps'?"),
        ("steps = 4", "steps = 0", "workload.steps = 0 must be a whole number in 1.."),
        (
            "[workload]",
            'timeout = "0s"\n[workload]',
            "timeout = '0s' must be longer than 0, like \"120s\"",
        ),
        ('"64KiB"', '"64 apples"', "is not a size"),
        ('"64KiB"', "6", "multiple of 4"),
        ('"mrc"', '"infiniband"', "there are mrc, roce"),
        ('kind = "mrc"', 'kind = "mrc"\noptions = { reconvergence = "100us" }', "MRC never does"),
        (
            'kind = "mrc"',
            'kind = "mrc"\noptions = { repair = "50us" }',
            "options.repair is for transports whose paths switches hash",
        ),
        (
            'kind = "mrc"',
            'kind = "tcp"\noptions = { repair = "20us" }',
            "options.repair is for transports whose paths switches hash",
        ),
        (
            'kind = "mrc"',
            'kind = "roce"\noptions = { repair = "50us" }',
            "at most as long as reconvergence",
        ),
        ('kind = "mrc"', 'kind = "mrc"\n[[transport]]\nkind = "mrc"', "names are not unique"),
        (
            'kind = "mrc"',
            'kind = "mrc"\n[[fault]]\nkind = "link"\non = "p0-t0-0:p0-t1-0"',
            "needs either 'at'",
        ),
        (
            'kind = "mrc"',
            'kind = "mrc"\n[[fault]]\nkind = "link"\non = "p0-t0-0:p0-t1-9"\nat = "100us"',
            "near it: ",
        ),
        (
            'kind = "mrc"',
            'kind = "mrc"\n[[fault]]\nkind = "switch"\non = "p0-t2-0"\nat = "100us"',
            "has no switch",
        ),
        (
            'kind = "mrc"',
            'kind = "mrc"\n[[fault]]\nkind = "link"\non = "used-by-qp"\nat = "soon"',
            "is not a time",
        ),
        (
            'kind = "mrc"',
            'kind = "mrc"\n[[fault]]\nkind = "link"\non = "used-by-qp"\nstep = 4',
            "fault[0].step = 4 must be",
        ),
        ('kind = "mrc"', 'kind = "mrc"\ncontroller = "hints"', "transport[0].controller = 'hints'"),
        ('kind = "mrc"', 'kind = "roce"\ncontroller = "hint"', "roce cannot choose its paths"),
        (
            'kind = "mrc"',
            'kind = "mrc"\n[[expect]]\ncheck = "mrv.wrong == 0"',
            "no transport 'mrv', there are mrc",
        ),
        ('kind = "mrc"', 'kind = "mrc"\n[[expect]]\ncheck = "mrc.wrong"', "must compare"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(write(tmp_path, GOOD.replace(old, new)))
    assert message in str(caught.value)
    assert "mine.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_not_toml_and_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="not valid TOML"):
        load_scenario(write(tmp_path, "fabric = "))
    with pytest.raises(ScenarioError, match="there are .*agent-killed, all-to-all, .*healthy"):
        load_scenario("link-failur")


def test_interleaved_needs_two_t0s(tmp_path: Path) -> None:
    fabric = tmp_path / "flat.toml"
    fabric.write_text(
        "format = 3\nplanes = 2\nt0_per_plane = 1\nt1_per_plane = 0\nhosts_per_t0 = 4\n"
    )
    with pytest.raises(ScenarioError, match="workload.placement.*use 'packed'"):
        load_scenario("smoke", fabric=str(fabric), overrides=["fault=[]"])


def test_command_line_changes(tmp_path: Path) -> None:
    given = [
        "workload.steps=3",
        "transport.roce-1p.options.reconvergence=200us",
        "fault.0.for=100us",
        'transport.roce-1p.options.repair="50us"',
    ]
    s = small(tmp_path, overrides=given, seeds=[4, 5])
    assert (s.workload.steps, s.seeds, s.faults[0].for_ps) == (3, (4, 5), 100 * US)
    assert [(t.reconvergence_ps, t.repair_ps) for t in s.transports] == [
        (None, None),
        (40 * US, None),
        (200 * US, 50 * US),
    ]
    assert [t.fabric.name for t in small(tmp_path, fabric="demo").transports] == [
        "demo",
        "demo",
        "demo-1p",
    ]


def test_transport_selects_or_adds_and_drops_checks_of_the_absent(tmp_path: Path) -> None:
    assert [t.name for t in small(tmp_path, transports=["roce"]).transports] == ["roce"]
    assert [t.name for t in load_scenario("link-failure", transports=["roce"]).transports] == [
        "roce-1p",
        "roce-16",
    ], "by kind"
    assert [t.name for t in load_scenario("smoke", transports=["mrc", "roce"]).transports] == [
        "mrc",
        "roce",
    ]
    assert small(tmp_path, transports=["roce"]).expects == ()
    with pytest.raises(ScenarioError, match="kinds are mrc, roce, tcp, mptcp"):
        load_scenario("smoke", transports=["quic"])


@pytest.mark.parametrize(
    "item", ["workload.steps", "transport.kind=mrc", "workload.steps.x=1", "transport.7.kind=mrc"]
)
def test_bad_set(item: str) -> None:
    with pytest.raises(ScenarioError, match="--set"):
        load_scenario("smoke", overrides=[item])


def test_units() -> None:
    assert (parse_size("4MiB"), parse_size("2 kB"), parse_size(12)) == (4 << 20, 2000, 12)
    assert (parse_duration("20ms"), parse_duration(1.5), parse_duration("2min")) == (
        20 * MS,
        1500 * MS,
        120 * S,
    )


def test_what_the_controller_tells_is_chosen_per_transport(tmp_path: Path) -> None:
    text = (
        GOOD
        + """
[[transport]]
kind = "mrc"
name = "mrc-hint"
controller = "hint"

[[transport]]
kind = "mrc"
name = "mrc-denylist"
controller = "denylist"
"""
    )
    made = load_scenario(write(tmp_path, text))
    assert [(t.name, t.controller) for t in made.transports] == [
        ("mrc", "none"),
        ("mrc-hint", "hint"),
        ("mrc-denylist", "denylist"),
    ]
    assert [t["controller"] for t in made.to_dict()["transports"]] == [
        "none",
        "hint",
        "denylist",
    ], "the manifest has it"
    assert (
        load_scenario(write(tmp_path, text), overrides=["transport.mrc.controller=hint"])
        .transports[0]
        .controller
        == "hint"
    )


BEYOND = 2**63


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (f"seeds=[{BEYOND - 1}]", ""),
        (f"seeds=[{BEYOND}]", "more than 64 bits"),
        ("seeds=[1, 1]", "must be different"),
        ("seeds=[true]", "seeds[0] = True must be a whole number"),
        ("seeds=[]", "seeds = [] must be a list of one or more"),
        ("seeds=3", "seeds = 3 must be a list"),
        ("transport=[]", "transport is empty: add a [[transport]]"),
        ("transport=3", "transport must be written as [[transport]]"),
        ("expect.0.only_in=simulated", "expect[0].only_in needs a reason"),
        (
            "transport.mrc.options.mpr=100",
            "transport[0].options.mpr = 100 must be a whole number in 128..32640",
        ),
        (
            "transport.mrc.clustermapper={hold=-1}",
            "transport[0].clustermapper.hold = -1 must be a number in 0..",
        ),
        ("workload.message_bytes=1.5", "is not a size"),
        ("workload.message_bytes=1.3KiB", "is not a whole number of bytes"),
        ("workload.steps=2.0", "must be a whole number"),
        ("fault.0.ranks=[false, true]", "fault[0].ranks[0] = False must be a whole number"),
        ("workload.steps=0x1" + "0" * 5000, "more than 64 bits"),
        ("workload.steps=1" + "0" * 5000, "limit"),
        ("x=" + "[" * 100_000, "deep"),
        (".".join("a" * 20_000) + "=1", "at most 16 parts"),
        ("fabric=" + "a" * 1000, "no fabric"),
        ("fabric=" + "a" * 1000 + ".toml", "File name too long"),
        ('name="' + "a" * 1000 + '"', "part of a file's name"),
        ('name="a\\u0000b"', "part of a file's name"),
        ('fabric="a\\u0000b.toml"', "null byte"),
    ],
)
def test_odd_values_are_taken_or_refused_in_one_line(change: str, message: str) -> None:
    if not message:
        assert load_scenario("smoke", overrides=[change]).seeds == (BEYOND - 1,)
        return
    with pytest.raises(ScenarioError, match=re.escape(message)) as caught:
        load_scenario("smoke", overrides=[change])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x = " + "[" * 100_000, "deep"),
        (".".join("a" * 2_000) + " = 1", "deep"),
        ("x = 1" + "0" * 5000, "not valid TOML"),
        ("#" * (2 << 20), "larger than 1 MiB"),
    ],
)
def test_files_that_would_choke_a_reader_are_named(tmp_path: Path, body: str, message: str) -> None:
    for load in (lambda file: load_scenario(file), lambda file: load_fabric(file)):
        with pytest.raises((ScenarioError, FabricError), match=message) as caught:
            load(write(tmp_path, body))
        assert "mine.toml" in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_may_have_a_bom_be_a_pipe_or_lack_the_ending(tmp_path: Path) -> None:
    asked = load_scenario(write(tmp_path, GOOD)).workload
    assert load_scenario(write(tmp_path, "\ufeff" + GOOD)).workload == asked
    plain = tmp_path / "plain"
    plain.write_text(GOOD)
    assert load_scenario(str(plain)).workload == asked
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with subprocess.Popen(["cp", "--", str(plain), str(fifo)]):
        assert load_scenario(str(fifo)).workload == asked
    with pytest.raises(ScenarioError, match="is a directory: give a file in it"):
        load_scenario(str(tmp_path))


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_a_scenario_comes_from_standard_input(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert load_scenario(name).name == "stdin"


def test_a_fabrics_file_lies_beside_the_scenario_or_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, working = tmp_path / "beside", tmp_path / "working"
    shape = "format = 3\nplanes = 2\nt0_per_plane = 2\nt1_per_plane = 1\nhosts_per_t0 = "
    for folder, hosts in ((beside, 2), (working, 4)):
        folder.mkdir()
        (folder / "own.toml").write_text(f"{shape}{hosts}\n")
    monkeypatch.chdir(working)
    file = write(beside, GOOD.replace('"tiny"', '"own.toml"'))
    assert load_scenario(file).fabric.hosts_per_t0 == 2
    assert load_scenario(file, fabric="own.toml").fabric.hosts_per_t0 == 4, (
        "the command line's is the shell's"
    )
    (beside / "own.toml").unlink()
    assert load_scenario(file).fabric.hosts_per_t0 == 4
    (working / "own.toml").unlink()
    with pytest.raises(
        ScenarioError, match=f"No such file.*looked for in {beside} and in the working directory"
    ):
        load_scenario(file)


def test_names_that_files_cannot_have_are_refused_before_anything_runs(tmp_path: Path) -> None:
    long = tmp_path / f"{'a' * 110}.toml"
    long.write_text(
        "format = 3\nplanes = 2\nt0_per_plane = 2\nt1_per_plane = 1\nhosts_per_t0 = 2\n"
    )
    sweep = f'sweep={{"fault.0.name" = ["{"a" * 100}"]}}'
    with pytest.raises(ScenarioError, match="a run's name would have .* bytes, more than 200"):
        plan(load_scenario("smoke", fabric=str(long), overrides=[sweep]))


def test_a_slower_fabric_is_the_same_in_slow_motion() -> None:
    was, slow = load_scenario("demo"), load_scenario("demo", overrides=["nic_rate=25Gbit"])
    for before, after in zip(was.transports, slow.transports, strict=True):
        a, b = before.fabric, after.fabric
        assert (b.nic_rate * 4, b.fabric_rate * 4) == (
            a.nic_rate,
            a.fabric_rate,
        ) and b.delay_ps == a.delay_ps * 4
        assert b.base_rtt_ps == a.base_rtt_ps * 4 and b.plane_bdp == a.plane_bdp
    assert [t.fabric.name for t in slow.transports] == [
        "demo-25Gbit",
        "demo-25Gbit-1p-pfc",
        "demo-25Gbit",
    ]
    assert load_scenario("demo", overrides=["nic_rate=100Gbit"]).fabric == was.fabric
    for rate in ("true", "fast", "1"):
        with pytest.raises(ScenarioError, match="nic_rate"):
            load_scenario("demo", overrides=[f"nic_rate={rate}"])


def test_the_message_that_asks_for_a_slower_run_names_an_option_that_does_it() -> None:
    option = re.search(r"(--\w+)", SLOWER)
    assert option is not None and option[1] in {
        name for parameter in run.command.params for name in parameter.opts
    }
