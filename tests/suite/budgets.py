"""What test files may cost: CPU seconds, in one table (budgets.toml), and what a run says about it.

CPU time, of a test's own process and of the children that it waited for, and not time on the clock:
that is the machine's. A loop of fixed work after each file says how much slower this machine is
just then, and all figures are divided by that, so that the table holds on any machine. A file that
is not in the table may take :data:`USUAL_S`. A run prints what went over; it does not fail for it.
"""

from __future__ import annotations

import resource
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import thread_time  # the process's goes in ticks where a timer of CPU time is set

import pytest

TABLE = Path(__file__).with_name("budgets.toml")
USUAL_S = 2.0
"""CPU seconds of a file without a line in the table [ours]."""
DEAR_S, DEAR_EMULATED_S = 1.0, 5.0
"""A test that takes more says why: ``@pytest.mark.dear("...")``. On the kernel a whole run of the
command takes 2 to 4 [ours, measured]."""
SLACK = 1.5
"""A file went over when it took so many times its budget: the same work varies by a third between
two runs [measured]."""
ROUND_S = 0.0027
"""CPU time of the fixed work on the machine for which the table is written, as in
testbed/machine/slowness.py."""


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended and were waited for."""
    own, children = (
        resource.getrusage(resource.RUSAGE_SELF),
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def slowness() -> float:
    """How many times longer this machine takes now for the same work."""

    def once() -> float:
        begun, total = thread_time(), 0
        for i in range(100_000):
            total += i & 7
        return thread_time() - begun

    return min(once() for _ in range(3)) / ROUND_S


@dataclass
class Cost:
    """CPU seconds of a file or of a test, as measured, and of the table's machine."""

    measured: float = 0.0
    usual: float = 0.0

    def add(self, seconds: float, slower: float) -> None:
        self.measured += seconds
        self.usual += seconds / slower


@dataclass
class Costs:
    """What a run cost: by file, and by test function all of whose cases are one."""

    files: dict[str, Cost] = field(default_factory=dict)
    tests: dict[str, Cost] = field(default_factory=dict)
    reasoned: set[str] = field(default_factory=set)

    def add(self, nodeid: str, seconds: float, slower: float, reasoned: bool) -> None:
        """One test with its parameters took so long."""
        self.files.setdefault(nodeid.partition("::")[0], Cost()).add(seconds, slower)
        dearest = self.tests.setdefault(nodeid.partition("[")[0], Cost())
        if seconds > dearest.measured:
            dearest.measured, dearest.usual = seconds, seconds / slower
        if reasoned:
            self.reasoned.add(nodeid.partition("[")[0])

    def over(self, budgets: dict[str, float]) -> list[str]:
        """Files that took more than :data:`SLACK` times their budget, the worst first."""
        share = {file: cost.usual / budgets.get(file, USUAL_S) for file, cost in self.files.items()}
        return sorted(
            (file for file in share if share[file] > SLACK), key=lambda file: -share[file]
        )

    def unexplained(self) -> list[str]:
        """Tests that take so much in one case and do not say why."""

        def most(test: str) -> float:
            return SLACK * (DEAR_EMULATED_S if test.startswith("tests/emulated/") else DEAR_S)

        return sorted(
            test
            for test, cost in self.tests.items()
            if cost.usual > most(test) and test not in self.reasoned
        )

    def lines(self, budgets: dict[str, float]) -> Iterator[str]:
        """What is printed at the end of a run."""
        measured, usual = (
            sum(getattr(cost, name) for cost in self.files.values())
            for name in ("measured", "usual")
        )
        if not usual:
            return
        yield (
            f"CPU {measured:.0f} s, {measured / usual:.2f} times what the table's machine takes; "
            "the dearest files, s of that machine:"
        )
        for file, cost in sorted(self.files.items(), key=lambda row: -row[1].usual)[:10]:
            yield f"{cost.usual:7.1f} of {budgets.get(file, USUAL_S):3.0f}  {file}"
        for file in self.over(budgets):
            yield (
                f"over its budget: {file}, {self.files[file].usual:.1f} s of "
                f"{budgets.get(file, USUAL_S):g} s"
            )
        for test in self.unexplained():
            yield (
                f'dear, and does not say why (pytest.mark.dear("...")): {test}, '
                f"{self.tests[test].usual:.1f} s"
            )


def budgets() -> dict[str, float]:
    """The table: CPU seconds by file."""
    return dict(tomllib.loads(TABLE.read_text()))


def table(files: dict[str, float]) -> str:
    """The table's text; what a usual file takes is left out."""
    rows = (
        f'"{file}" = {round(seconds) or 1}\n'
        for file, seconds in sorted(files.items(), key=lambda row: (-row[1], row[0]))
        if seconds > USUAL_S
    )
    return (
        "# CPU seconds that a test file may take on a quick machine; all others 2 s. "
        "tests/suite/budgets.py says how they are counted.\n"
        "# Written by `make test BUDGETS=write`, which only raises: a budget that grows says in "
        "its commit why; one shrinks by hand.\n" + "".join(rows)
    )


DEADLINE = "deadline"
"""The plugin of `make quick`, which runs the nearest file first."""


class Plugin:
    """Measures in each worker of pytest, adds up and prints where the run began."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.costs = Costs()
        self.mark = cpu_s()
        self.file, self.slower = "", 1.0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The dearest file first, or the last one runs alone; emulated files wait more than they
        work, and keep the Makefile's order, `make quick` its own."""
        if self.config.pluginmanager.has_plugin(DEADLINE):
            return
        cost = {} if any(item.nodeid.startswith("tests/emulated/") for item in items) else budgets()
        items.sort(key=lambda item: -cost.get(item.nodeid.partition("::")[0], USUAL_S))

    def pytest_collection_finish(self) -> None:
        self.mark = cpu_s()  # what finding all tests takes is no file's

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.when != "teardown":
            return
        seconds = cpu_s() - self.mark
        if (file := item.nodeid.partition("::")[0]) != self.file:
            self.file, self.slower = file, slowness()
        item.user_properties.append(
            ("cost", (seconds, self.slower, item.get_closest_marker("dear") is not None))
        )
        self.mark = cpu_s()  # without what the fixed work took

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties if report.when == "teardown" else ():
            if name == "cost":
                self.costs.add(report.nodeid, *value)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        kept = budgets()
        for line in self.costs.lines(kept):
            terminalreporter.write_line(line)
        if self.config.getoption("write_budgets"):
            TABLE.write_text(
                table(
                    kept
                    | {
                        file: max(cost.usual, kept.get(file, 0))
                        for file, cost in self.costs.files.items()
                    }
                )
            )
