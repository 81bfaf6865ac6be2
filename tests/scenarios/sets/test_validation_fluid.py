"""The fluid column of a validation: what it holds, and that only its median step times are judged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scenarios.sets.series import Form
from scenarios.sets.validation import concluding, page
from scenarios.sets.validation.agreement import AGREES, DIFFERS, rows_of
from scenarios.sets.validation.cases import CASES, Case, chosen
from scenarios.sets.validation.fluid import computed
from scenarios.sets.validation.observed import Seen
from testbed.cli.sets import run_one
from testbed.simulated import SIMULATED
from tests.scenarios.small import undrawn

QUICK = Form(quick=True, seeds=())


@pytest.fixture(scope="module", autouse=True)
def figures() -> Iterator[dict[str, dict[str, Seen]]]:
    """Case -> its figures in the fluid world, which runs each case once; concluding gets those, too. Runs are not drawn."""
    scenarios = {case.id: case.parts[0].load(quick=True) for case in CASES}
    found = {id: computed(scenario) for id, scenario in scenarios.items()}
    with undrawn(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "scenarios.sets.validation.fluid.computed", lambda asked: next(found[id] for id, s in scenarios.items() if s == asked)
        )
        patch.setattr("scenarios.sets.validation.plot.draw", lambda made, directory: [])
        yield found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_rings_and_the_permutation_under_mrc_have_figures_and_other_cases_none(case: Case, figures: dict[str, dict[str, Seen]]) -> None:
    rings = {id: {"p50", "goodput"} for id in ("ring-50", "ring-80", "ring-100", "permutation")}
    assert set(figures[case.id]) == {**rings, "link-failure": {"healthy", "slowest", "left", "found", "cost"}}.get(case.id, set())


def test_a_median_step_beyond_the_bound_differs_and_other_figures_are_only_shown() -> None:
    columns = {"fluid": {"p50": Seen(106.0), "goodput": Seen(1.0)}, "simulated": {"p50": Seen(100.0), "goodput": Seen(2.0)}}
    p50, goodput = rows_of("ring-50", "", columns, (SIMULATED,), ())
    assert p50.verdict == DIFFERS and [(p.of, p.against) for p in p50.partings] == [("fluid", "simulated")]
    assert not goodput.partings and goodput.value("fluid") == 1.0
    columns["fluid"]["p50"] = Seen(104.0)
    assert rows_of("ring-50", "", columns, (SIMULATED,), ())[0].verdict == AGREES


@pytest.mark.parametrize("name", ["ring-80", "link-failure"])
def test_the_column_stands_beside_the_simulated_one_and_agrees(name: str, tmp_path: Path) -> None:
    (case,) = chosen([name], (SIMULATED,))
    concluding.open_directory(tmp_path, QUICK, False)
    (part,) = case.parts
    case.directory(part, tmp_path).mkdir(parents=True)
    assert run_one(part.load(quick=True), case.directory(part, tmp_path), False, SIMULATED, apart=False) == 0
    rows = {row["figure"]: row for row in concluding.conclude(case, tmp_path, QUICK)["rows"]}
    median = rows["healthy" if name == "link-failure" else "p50"]
    assert median["fluid"] == pytest.approx(median["simulated"], rel=0.05)
    assert ("fluid", "simulated") in {(parting["of"], parting["from"]) for parting in median["partings"]}
    text = page.write_page(tmp_path).read_text()
    assert "fluid off sim." in text and page.format_value(median["fluid"], "ns") in text
    assert "fluid" in (tmp_path / page.TABLE).read_text().splitlines()[0].split(",")
