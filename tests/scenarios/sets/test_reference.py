"""Stored figures and tables: each has a stamp, each page shows what is stored, and what is stale is
made again and nothing else."""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mrcbed.cli.sets import run_one, run_part
from mrcbed.cli.tools import figures
from scenarios.sets import provenance, reference, speed
from scenarios.sets.paper import page, series
from scenarios.sets.paper.claims import Evidence
from scenarios.sets.paper.figures import FIGURES
from scenarios.sets.provenance import OfPart, Stamp
from scenarios.sets.reference import BLOCK, ITEMS, Item, Reference, Validated, chosen
from scenarios.sets.tables.table import (
    FUNCTIONS,
    TABLES,
    Cell,
    Row,
    StoredTable,
    Table,
    of,
    read_tables,
)
from scenarios.sets.validation.cases import Case
from testbed.errors import UserError
from testbed.machine.exclusive import Measuring, measuring
from testbed.results.summary import Run, Summary
from testbed.world import EMULATED, SIMULATED
from tests.made import made
from tests.scenarios.sets.test_paper_series import summary_of, write
from tests.scenarios.sets.test_validation import called_of
from tests.scenarios.small import undrawn
from topologies.structs import Refused

STORED = Reference()
TOML = """
[table.tiny]
title = "A tiny one"
parts = [{name = "main", scenario = "smoke", full = ["workload.steps=2"], transports = ["mrc"], seeds = [1, 2], world = "simulated"}]
corner = "transport"
columns = [{head = "slowest", value = "step_time_ns.max", form = ".1f µs"}, {head = "loss", value = "untrimmed_loss / 2", form = ".0f"}]
rows = [{head = "MRC", of = "mrc"}]
files = {"tiny.csv" = "tiny/main/runs.csv"}
"""  # noqa: E501
TINY = read_tables(TOML)[0]


# --- what is stored -------------------------------------------------------------------------------


def test_everything_that_is_stored_has_a_stamp(tmp_path: Path) -> None:
    assert STORED.unstamped() == []
    for name in ("paper/16", "tables"):
        shutil.copytree(STORED.folder / name, tmp_path / name)
    for name in ("goodput.png", "incast-flows.png", provenance.FINGERPRINTS):
        shutil.copy(STORED.folder / name, tmp_path / name)
    copy = Reference(tmp_path)
    assert copy.unstamped() == []
    (tmp_path / "of-nobody.png").write_bytes(b"")
    (tmp_path / "paper" / "16" / "fig-16-old.png").write_bytes(b"")
    for name in ("paper/16/figure.json", "tables/demo.json"):
        (tmp_path / name).write_text(
            json.dumps({**json.loads((tmp_path / name).read_text()), "stamp": None})
        )
    pictures = [
        "goodput.png",
        "of-nobody.png",
        *(f"paper/16/fig-16{end}.png" for end in ("-eight", "-old", "")),
    ]
    assert copy.unstamped() == ["paper/16/figure.json", "tables/demo.json", *pictures]


@pytest.mark.dear("asks the scenarios of all that is stored")
def test_every_page_shows_what_is_stored(tmp_path: Path) -> None:
    assert [path.name for path, _ in STORED.rewritten()] == [], (
        f"write the pages' tables anew: .venv/bin/{provenance.AGAIN}"
    )
    for path in STORED.paths():
        there = tmp_path / path.relative_to(STORED.pages)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there)
    copy = Reference(pages=tmp_path)
    assert list(copy.rewritten()) == []
    page = tmp_path / "docs" / "how" / "paper.md"
    text = page.read_text()
    page.write_text(
        text.replace("<!-- table: paper -->\n", "<!-- table: paper -->\nA number of mine: 7.\n")
    )
    assert [(path.name, new == text) for path, new in copy.rewritten()] == [("paper.md", True)]
    page.write_text(text.replace("<!-- table: paper -->", "<!-- table: papers -->"))
    with pytest.raises(UserError, match="there is no table 'papers'"):
        list(copy.rewritten())


def test_the_page_of_the_paper_is_made_of_the_figures() -> None:
    folder = STORED.folder / "paper"
    data = json.loads((folder / page.DATA).read_text())
    assert data["figures"] == series.concluded(folder) and len(data["figures"]) == len(FIGURES)
    assert data["claims"] == json.loads(json.dumps(series.by_claim(data["figures"])))


# --- what is declared -----------------------------------------------------------------------------


def test_each_table_is_on_one_page_and_its_name_is_its_own() -> None:
    assert len({item.id for item in ITEMS}) == len(ITEMS)
    shown = [found["id"] for path in STORED.paths() for found in BLOCK.finditer(path.read_text())]
    of_the_set = {reference.CLAIMS, reference.DIFFERING}  # of which several pages may speak
    assert sorted(id for id in shown if id not in of_the_set) == sorted(
        [speed.NAME, reference.VALIDATION, *(table.id for table in TABLES if table.rows)]
    )


@pytest.mark.parametrize("table", TABLES, ids=[table.id for table in TABLES])
def test_a_table_asks_what_its_scenarios_have(table: Table) -> None:
    known = {part.name: part.load() for part in table.parts}
    for row in table.rows:
        for column in table.columns:
            line = row.and_of(column)
            scenario = known[line.part or table.parts[0].name]
            assert line.of in {transport.name for transport in scenario.transports}, line
            settings = [
                {**variant.settings, "placement": place}
                for variant in scenario.variants
                for place in scenario.workload.placement
            ]
            assert any(line.where.items() <= values.items() for values in settings), line
            names = [
                name.rpartition(":") for name in line.value.split()[::2] if not name[0].isdigit()
            ]
            assert (
                all(
                    key in FUNCTIONS or key.split(".")[0] in Run.__struct_fields__
                    for _, _, key in names
                )
                and line.form
            ), line
            assert {other for other, _, _ in names if other} < {
                transport.name for transport in scenario.transports
            }, line
    assert all(part.world for part in table.parts)  # a reader must see it here
    assert all((STORED.folder / name).suffix in (".png", ".json") for name in table.files)


def test_what_a_table_may_not_say_is_one_line() -> None:
    for wrong, said in (
        ("slowst = 1", "slowst is not a key"),
        ('form = "5"', "Python's form"),
        ("value = 5", "value"),
    ):
        with pytest.raises(Refused, match=said):
            read_tables(TOML.replace('of = "mrc"', wrong))
    with pytest.raises(KeyError, match="16/seventeen"):
        read_tables('[table.x]\ntitle = "x"\nparts = ["16/seventeen"]')


def run(seed: int, **more: Any) -> dict[str, Any]:
    return {
        "transport": "mrc",
        "seed": seed,
        "outcome": "done",
        "settings": {},
        "untrimmed_loss": seed,
        "step_time_ns": {"max": 1e3 * seed},
        **more,
    }


def test_a_cell_is_the_median_of_its_runs() -> None:
    line = TINY.rows[0].and_of(TINY.columns[0])

    def cell(*runs: dict[str, Any]) -> str:
        return str(TINY.cell(line, Evidence({"main": made(Summary, runs=runs)})))

    assert cell(*(run(seed) for seed in (1, 2, 9))) == "2.0 µs [1.0, 9.0]"
    assert cell(run(1), run(2, outcome="timeout"), run(3, transport="roce")) == "1.0 µs (1 of 2)"
    # no interval where seeds do not differ
    assert cell(run(3), run(4, step_time_ns={"max": 3e3})) == "3.0 µs"
    assert cell(run(1, outcome="failed")) == "–"
    assert str(Cell(".1%", 0.97, 0.951, 0.98, 3, 3)) == "97.0 % [95.1, 98.0]"
    it = made(Run, **run(8))
    assert [
        of(it, words)
        for words in ("untrimmed_loss / 2 - 1", "untrimmed_loss / 0", "kept_during / 2")
    ] == [3, None, None]
    others = [made(Run, **run(seed, transport="roce", untrimmed_loss=2 * seed)) for seed in (7, 8)]
    assert [
        of(it, f"untrimmed_loss / {name}:untrimmed_loss", others) for name in ("roce", "tcp")
    ] == [0.5, None]


def test_a_table_says_of_which_code_it_is() -> None:
    part = OfPart(SIMULATED, "s", seeds=(1, 2, 3), runs=3)
    table = StoredTable(
        "x",
        "X",
        "",
        ["", "a"],
        [Row("MRC", [Cell(".0f", 7, 6, 8, 3, 3)])],
        stamp=Stamp("abc", "2026-01-02", {"main": part}),
    )
    said = (
        "| | a |\n| --- | --- |\n| MRC | 7 [6, 8] |\n\n"
        "Simulated, commit abc, 2026-01-02, seeds 1 to 3{}: medians [range]."
    )
    assert table.markdown(False).replace("|  |", "| |") == said.format("")
    assert table.markdown(True).replace("|  |", "| |") == said.format(f", {provenance.OLDER}")
    two = replace(table, heads=["hosts | every", "a"], rows=[Row("MRC | 3", table.rows[0].cells)])
    assert two.markdown(False).startswith(
        "| hosts | every | a |\n| --- | --- | --- |\n| MRC | 3 | 7 [6, 8] |\n"
    )
    both = Stamp(
        "", "2026-01-02", {"main": part, "other": OfPart(EMULATED, "e", seeds=(4, 7), runs=2)}
    )
    assert both.words() == "Simulated and emulated, 2026-01-02, seeds 1 to 3 and seeds 4, 7"
    assert "7 doubts" not in table.markdown(False) and "; 2 doubts." in replace(
        table, doubts=["a", "b"]
    ).markdown(False)


# --- making ---------------------------------------------------------------------------------------


class Made:
    """A reference of our own with one item, and what was run for it."""

    def __init__(
        self, place: Path, patch: pytest.MonkeyPatch, item: Item = TINY, block: str = "tiny"
    ) -> None:
        self.place, self.ran, self.now = place, list[str](), {SIMULATED: "one", EMULATED: "one"}
        self.item = item
        (place / "docs").mkdir(parents=True)
        (place / "README.md").write_text(
            f"# A page\n<!-- table: {block} -->\n| by hand |\n<!-- end -->\nMore.\n"
        )
        patch.setattr(reference, "TABLES", (TINY,))
        patch.setattr(provenance, "fingerprint", self.now.__getitem__)
        patch.setattr("os.geteuid", lambda: 1000)
        patch.setattr(figures, "run_stamped", self.run)

    def run(self, part: Any, scenario: Any, directory: Path, resume: bool) -> int:
        self.ran.append(part.name)
        provenance.begin(part, scenario, directory)
        with undrawn():
            return run_part(part, scenario, directory, resume)

    @property
    def reference(self) -> Reference:
        (self.place / provenance.FINGERPRINTS).write_text(json.dumps(self.now))
        return Reference(self.place, self.place)

    def make(self) -> int:
        due = [self.item] if self.reference.state(self.item) else []
        return figures._made(due, self.place / "work", self.reference)


@pytest.mark.dear("runs of a small scenario, three times")
def test_what_is_missing_or_stale_is_made_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Made(tmp_path / "here", monkeypatch)
    readme = here.place / "README.md"
    # the table by hand stays
    assert here.reference.state(TINY) == "missing" and list(here.reference.rewritten()) == []
    assert here.make() == 0 and here.ran == ["main"]
    assert here.reference.state(TINY) == "" and (here.place / "tiny.csv").is_file()
    text = readme.read_text()
    assert re.search(
        r"\| MRC \| \d+\.\d µs \[.*\n\nSimulated, .*, seeds 1, 2: medians \[range\]\.\n\n<!-- "
        r"end -->\nMore\.\n",
        text,
    ), text
    assert here.make() == 0 and here.ran == ["main"]  # nothing is due

    here.reference.file(TINY).unlink()
    # its runs were kept
    assert here.make() == 0 and here.ran == ["main"] and readme.read_text() == text

    here.now[EMULATED] = "two"
    assert here.reference.state(TINY) == ""
    here.now[SIMULATED] = "two"
    assert "the simulated world has changed" in here.reference.state(TINY)
    here.reference.write_pages()
    assert provenance.OLDER in readme.read_text()
    assert here.make() == 0 and here.ran == ["main", "main"]  # and not those of the former state
    assert here.reference.state(TINY) == "" and readme.read_text() == text

    other = replace(TINY, columns=TINY.columns[:1])
    assert here.reference.state(other) == "stale: what is asked has changed"
    more = replace(TINY, parts=(replace(TINY.parts[0], seeds=(1, 2, 3)),))
    assert here.reference.state(more) == "stale: main was run as another scenario"
    monkeypatch.setattr(reference, "TABLES", (more,))
    here.reference.write_pages()
    assert provenance.OLDER in readme.read_text()
    data = json.loads(here.reference.file(TINY).read_text())
    here.reference.file(TINY).write_text(json.dumps({**data, "stamp": None}))
    assert here.reference.state(TINY) == "unstamped"


@pytest.mark.dear("runs of a small scenario")
def test_a_case_of_the_validation_is_made_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = ("workload.message_bytes=64KiB", "workload.steps=9")
    case = Validated(Case("ring-x", "A tiny ring", "ring.toml", full, worlds=(SIMULATED,)))
    here = Made(tmp_path / "here", monkeypatch, case, reference.VALIDATION)
    monkeypatch.setattr(reference, "ITEMS", (case,))
    readme = here.place / "README.md"
    before = readme.read_text()
    here.reference.write_pages()
    assert readme.read_text() == before, "the table by hand stays until all cases are stored"
    assert here.make() == 0 and here.ran == [SIMULATED] and here.reference.state(case) == ""
    rows = json.loads(here.reference.file(case).read_text())["rows"]
    median = next(row for row in rows if row["figure"] == "p50")
    theory, seen = (f"{median[column] / 1000:.2f} µs" for column in ("theory", SIMULATED))
    text = readme.read_text()
    line = f"| {theory} | {seen} | – | – | {median['verdict']} |"
    assert line in text and theory != seen
    assert (
        f"{len(rows)} figures in 1 case: " in text
        and " 0 of 3 runs, with seeds 1 to 3, are not" in text
    )
    assert here.make() == 0 and here.ran == [SIMULATED]  # nothing is due
    assert here.reference.unstamped() == []
    here.now[SIMULATED] = "two"
    here.reference.write_pages()
    assert "*Made on an older state*: ring-x." in readme.read_text()
    stored = json.loads(here.reference.file(case).read_text())
    here.reference.file(case).write_text(json.dumps({**stored, "stamp": None}))
    assert here.reference.unstamped() == ["validation/ring-x.json"]


def test_the_command_lists_checks_and_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Made(tmp_path / "here", monkeypatch)
    called = partial(called_of, figures.command)

    def played(part: Any, scenario: Any, directory: Path, resume: bool) -> int:
        provenance.begin(part, scenario, directory)
        write(directory, summary_of(scenario))
        (directory / "runs.csv").write_text("")
        return 0

    monkeypatch.setattr(figures, "run_stamped", played)
    monkeypatch.setattr(reference, "ITEMS", (TINY,))
    monkeypatch.setattr(reference, "Reference", lambda: here.reference)
    monkeypatch.setattr(provenance, "write", lambda: None)
    out = ("--out", str(tmp_path / "out"))
    for words, status in ((("--list",), 0), (("--check",), 1)):
        found = called(*words)
        assert found[0] == status and re.search(r"tiny +A tiny one +missing +\d+ s", found[1])
    emulated = replace(TINY, parts=(replace(TINY.parts[0], world=EMULATED),))
    monkeypatch.setattr(reference, "ITEMS", (emulated,))
    with pytest.raises(UserError, match="tiny needs root"):
        called(*out)
    # it chose nothing
    assert called("--world", "simulated", *out)[0] == 0 and here.reference.state(TINY) == "missing"
    monkeypatch.setattr(reference, "ITEMS", (TINY,))
    assert called("tiny", *out)[0] == 0 and called("--check")[0] == 0
    readme = here.place / "README.md"
    text = readme.read_text()
    readme.write_text(text.replace("| MRC |", "| mine |"))
    assert (
        called("--check")[0] == 1
        and "README.md: its tables are not those that are stored" in called("--check")[1]
    )
    assert called("--pages")[0] == 0 and readme.read_text() == text
    (here.place / "more.png").write_bytes(b"")
    assert called("--check")[0] == 1 and "more.png: without a stamp" in called("--check")[1]
    monkeypatch.setattr(figures, "is_clone", lambda: False)
    with pytest.raises(UserError, match="this is an installed package"):
        called("--check")


def test_a_simulated_part_waits_for_no_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = made(Summary, verdict="ok")
    monkeypatch.setattr("testbed.machine.sandbox.run", lambda work: work())
    for name in ("simulate.simulate", "runner.run_scenario"):
        monkeypatch.setattr(f"scenarios.run.{name}", lambda *given, **more: done)
    scenario = TINY.parts[0].load()
    with measuring(tmp_path):
        assert run_one(scenario, tmp_path, False, SIMULATED) == 0
        with pytest.raises(Measuring, match="another run is measuring"):
            run_one(scenario, tmp_path, False)
    assert run_one(scenario, tmp_path, False) == 0


def test_a_table_whose_runs_fail_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Made(tmp_path / "here", monkeypatch)
    for status in (1, series.INTERRUPTED):
        monkeypatch.setattr(
            figures, "run_stamped", lambda part, scenario, directory, resume, status=status: status
        )
        assert here.make() == status and here.reference.state(TINY) == "missing"


def test_items_are_chosen_by_name_and_world() -> None:
    assert [item.id for item in chosen(("thin-plane", "16"))] == ["thin-plane", "16"]
    assert [item.id for item in chosen(("thin-plane", "16", "incast-pfc"), SIMULATED)] == [
        "thin-plane"
    ]
    with pytest.raises(UserError, match="there is no figure or table '99'"):
        chosen(("99",))
