"""Generated pages of docs/reference: whatever code holds as data or in docstrings, such as every
key of a scenario and every kind of fault. ``python -m docs.tools.keys`` writes them whole;
tests/docs/test_keys.py compares.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path

from agents.communicator import Communicator
from docs.tools.check import ROOT
from mrcbed.prompt.cli import Prompt
from mrcbed.prompt.help import GROUPS, MININET, headline
from scenarios.figures.comparison import COLUMNS
from scenarios.figures.measure import TABLES, Run
from scenarios.figures.results import Results
from scenarios.schema.keys import FABRIC, SCENARIO, Key, keys, of_kinds
from scenarios.schema.result_keys import reference
from scenarios.show.html.drawings import KINDS as KINDS_OF_FIGURES
from testbed.conform.cases import KEYS, STEPS
from testbed.conform.targets import METHODS, ORDERS
from testbed.emulated.cluster import Cluster
from testbed.faults.keys import Key as FaultKey
from testbed.faults.kinds import KINDS, USED_BY_QP
from testbed.view.fold import FRAMES
from topologies.fabrics import load_fabric, usual_dilation

EXPLAINED = {
    SCENARIO: "[scenarios.md](../how/scenarios.md) explains the file",
    FABRIC: "[fabrics.md](../how/fabrics.md) explains the file, and lists some that ship",
}
COMMUNICATOR = (
    "open",
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "broadcast",
    "barrier",
    "send",
    "recv",
    "group",
    "compute",
    "now",
    "tell",
    "pause",
)
CLUSTER = (
    "set_link",
    "set_switch",
    "inject",
    "clear",
    "faults",
    "fault_events",
    "heal",
    "link_states",
    "counters",
    "quiesce",
    "start_agents",
    "stop_agents",
    "deny",
    "allow",
    "denied",
    "controller_journal",
    "check",
)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    heads = list(head)
    cells = [
        heads,
        ["---"] * len(heads),
        *([cell.replace("|", "\\|") for cell in row] for row in rows),
    ]
    return [f"| {' | '.join(row)} |" for row in cells]


def row(key: Key) -> tuple[str, ...]:
    kinds = f" ({of_kinds(key)})" if key.kinds else ""
    unit = f" [{key.unit}]" if key.unit else ""
    return f"`{key.dotted}`{kinds}", f"{key.must}{unit}", key.default or "required", key.meaning


def every_key(file: str) -> str:
    """A section for each table of the file; the first is the top of the file."""
    lines = [
        f"# Every key of a {file} file",
        "",
        "Made by `python -m docs.tools.keys` from `scenarios/schema/keys.py`; "
        f"{EXPLAINED[file]}. `mrcbed explain KEY` prints a row with an example. In round "
        "brackets: the kinds that have the key. In square brackets: the unit of a number.",
    ]
    for path, group in groupby(keys(file), key=lambda key: key.path):
        lines += [
            "",
            f"## {f'`{path}`' if path else 'The file'}",
            "",
            *table(("key", "must be", "default", "means"), map(row, group)),
        ]
    return "\n".join(lines) + "\n"


def every_fault() -> str:
    places = [key for key in keys(SCENARIO) if (key.path, key.name) == ("fault", "on")]
    on = {
        kind: key.must + (f", {USED_BY_QP}" if USED_BY_QP in key.meaning else "")
        for key in places
        for kind in key.kinds
    }

    def of(key: FaultKey) -> str:
        return f"`{key.name}`" if key.required else f"[`{key.name}`]"

    rows = (
        (f"`{name}`", on[name], " ".join(map(of, kind.keys)) or "–", kind.doc)
        for name, kind in KINDS.items()
    )
    lines = [
        "# Every kind of fault",
        "",
        "Made by `python -m docs.tools.keys` from `testbed/faults/kinds/`; "
        "[faults.md](../how/faults.md) says how to use them. [ ]: the key may be left out. What "
        "a key means: [its row](scenarios.md#fault).",
        "",
        *table(("kind", "on", "keys", "what happens"), rows),
    ]
    return "\n".join(lines) + "\n"


def every_fabric() -> list[str]:
    def of(path: Path) -> tuple[str, ...]:
        fabric = load_fabric(path.stem)
        numbers = (
            fabric.host_count,
            fabric.planes,
            fabric.t0_per_plane,
            fabric.t1_count,
            fabric.paths_per_pair,
        )
        return f"`{path.stem}`", *map(str, numbers), f"{usual_dilation(path.stem):,.0f}"

    rows = sorted(
        (ROOT / "topologies" / "fabrics").glob("*.toml"),
        key=lambda path: (load_fabric(path.stem).host_count, path.stem),
    )
    return table(
        (
            "fabric",
            "hosts",
            "planes",
            "T0s per plane",
            "T1s per plane",
            "paths across T1s",
            "dilation",
        ),
        map(of, rows),
    )


def every_scenario() -> str:
    def of(path: Path) -> tuple[str, ...]:
        file = tomllib.loads(path.read_text(encoding="utf-8"))
        fabric, transports = (
            file["fabric"],
            dict.fromkeys(transport["kind"] for transport in file["transport"]),
        )
        return (
            f"`{path.stem}`", " ".join(file["description"].split()), file["workload"]["kind"],
            f"`{fabric}`" if isinstance(fabric, str) else "of its own", ", ".join(transports),
        )  # fmt: skip

    lines = [
        "# The scenarios and fabrics that ship",
        "",
        "Made by `python -m docs.tools.keys` from the files in `scenarios/`. `mrcbed run NAME` "
        "runs one, and `mrcbed check NAME` says what it would do, how long that takes, and which "
        "world can run it. How to write one: [scenarios.md](../how/scenarios.md).",
        "",
        *table(
            ("name", "what happens", "workload", "fabric", "transports"),
            map(of, sorted((ROOT / "scenarios").glob("*.toml"))),
        ),
        "",
        "## Fabrics",
        "",
        "The files are in `topologies/fabrics/`; [fabrics.md](../how/fabrics.md) says more.",
        "",
        *every_fabric(),
    ]
    return "\n".join(lines) + "\n"


def said(thing: object) -> str:
    """A docstring as a line of Markdown."""
    text = " ".join((inspect.getdoc(thing) or "").split()).replace("``", "`")
    return re.sub(
        r"docs/(\w+)/(\w+\.md)", r"[\2](../\1/\2)", re.sub(r":\w+:`[\w.]*?(\w+)`", r"`\1`", text)
    )


def of_code(what: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(f"`{name}`", text) for name, text in what.items()]


def every_table() -> str:
    frames = [
        (name, part)
        for name, part in vars(Results).items()
        if not name.startswith("_") and hasattr(part, "func")
    ]
    lines = [
        "# Every table of results",
        "",
        (
            "Made by `python -m docs.tools.keys` from `scenarios/figures/`; "
            "[results.md](../how/results.md) has the units."
        ),
        "",
        "## Files",
        "",
        *table(
            ("`NAME.parquet`", "columns", "a row is"),
            ((f"`{name}`", f"`{of}`", said(getattr(Run, name))) for name, of in TABLES.items()),
        ),
        "",
        "`runs` has a row per run, and a column per figure. `comparison` has a row per figure of "
        "a scenario, workload, fabric, placement, setting and transport "
        "([comparison.md](../how/comparison.md)):",
        "",
        *table(("column of `comparison`", "is"), of_code(COLUMNS)),
        "",
        "## Frames of `mrcbed.load`",
        "",
        "Every frame has `run`, `transport` and `seed` too. Times are ns, and count from the "
        "begin of the run's first measured step or of its flows.",
        "",
        *table(
            ("attribute", "is"),
            (
                (f"`{name}`", said(part))
                for name, part in frames
                if name not in ("seeds", "summary")
            ),
        ),
    ]
    return "\n".join(lines) + "\n"


def every_figure() -> str:
    lines = [
        "# Every figure of a run",
        "",
        "Made by `python -m docs.tools.keys` from `scenarios/show/html/drawings.py`, in the "
        "order of [the report](../how/report.md). A run has those for which it has the data. The "
        "name begins the names of the files in `plots/`.",
        "",
        *table(
            ("name", "figure", "caption"),
            ((f"`{name}`", heading, caption) for name, heading, caption in KINDS_OF_FIGURES),
        ),
    ]
    return "\n".join(lines) + "\n"


def every_command() -> str:
    lines = [
        "# Every command of the prompt",
        "",
        "Made by `python -m docs.tools.keys` from `mrcbed/prompt/`; "
        "[prompt.md](../how/prompt.md) says how to use them. `help` prints the same, `help "
        "COMMAND` more.",
    ]
    for title, names in GROUPS.items():
        docs = [
            MININET.get(name) or inspect.getdoc(getattr(Prompt, f"do_{name}")) or ""
            for name in names
            if name not in Prompt.refused
        ]
        rows = (headline(doc).partition(": ") for doc in docs)
        lines += [
            "",
            f"## {title}",
            "",
            *table(("command", "does"), ((f"`{usage}`", does) for usage, _, does in rows)),
        ]
    return "\n".join(lines) + "\n"


def every_step() -> str:
    lines = [
        "# The language of conform",
        "",
        (
            "Made by `python -m docs.tools.keys` from `testbed/conform/`; "
            "[conform.md](../how/conform.md) says how to use it."
        ),
        "",
        "## Steps of a case",
        "",
        *table(("step", "does"), of_code(STEPS)),
        "",
        "## Keys beside the fields of headers",
        "",
        *table(("of a", "keys"), of_code(KEYS)),
        "",
        "## Methods of an endpoint in Python",
        "",
        *table(("method", "returns"), of_code(METHODS)),
        "",
        "## Orders to the command of --connect",
        "",
        *table(("order", "answer"), of_code(ORDERS)),
    ]
    return "\n".join(lines) + "\n"


def call(thing: Callable[..., object]) -> str:
    """A method as one calls it."""
    form = inspect.signature(thing)
    given = [
        part.replace(annotation=part.empty)
        for name, part in form.parameters.items()
        if name != "self"
    ]
    return f"`{thing.__name__}{form.replace(parameters=given, return_annotation=form.empty)}`"


def every_call() -> str:
    def calls(of: type, names: Iterable[str]) -> list[str]:
        return table(
            ("call", "does"),
            ((call(way), said(way)) for way in (getattr(of, name) for name in names)),
        )

    lines = [
        "# Every call from Python",
        "",
        "Made by `python -m docs.tools.keys` from the classes' docstrings.",
        "",
        "## `mrcbed.Communicator`",
        "",
        (
            f"{said(Communicator)} Programs on hosts use it: "
            "[jobs.md](../how/jobs.md#programs-of-your-own)."
        ),
        "",
        *calls(Communicator, COMMUNICATOR),
        "",
        "## `mrcbed.Cluster`",
        "",
        "Also of `SimulatedCluster`: [python.md](../how/python.md). Times are ps of the network.",
        "",
        *calls(Cluster, CLUSTER),
    ]
    return "\n".join(lines) + "\n"


def every_frame() -> str:
    lines = [
        "# Every frame of a view",
        "",
        "Made by `python -m docs.tools.keys` from `testbed/view/fold.py`. "
        "[Pages](../how/view.md) and `mrcbed results top` take frames, one JSON object each: `f` "
        "is its kind, and what it says holds from its time `t` on (ns of the network since the "
        "run began). So the last frame of each subject is the state at a time. `replay.html` "
        "holds those of its runs, gzipped.",
        "",
        *table(("`f`", "subject", "fields"), ((f"`{kind}`", *of) for kind, of in FRAMES.items())),
    ]
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "scenarios": lambda: every_key(SCENARIO),
    "fabrics": lambda: every_key(FABRIC),
    "results": reference,
    "faults": every_fault,
    "shipped": every_scenario,
    "tables": every_table,
    "plots": every_figure,
    "prompt": every_command,
    "conform": every_step,
    "frames": every_frame,
    "calls": every_call,
}
"""Page of docs/reference -> its text."""


def path_of(page: str) -> Path:
    return ROOT / "docs" / "reference" / f"{page}.md"


if __name__ == "__main__":
    for page, text in PAGES.items():
        path_of(page).write_text(text(), encoding="utf-8")
