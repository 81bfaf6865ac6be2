"""Writes ``paper.html``, self-contained, and a table for the terminal, from ``figure.json`` files only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scenarios.run.resume import write_json
from scenarios.sets.paper.claims import AGREES, CANNOT, DIFFERS, NO_DATA
from scenarios.sets.paper.figures import FIGURES
from scenarios.sets.paper.registry import CLAIMS
from scenarios.sets.paper.series import FORMAT, by_claim, concluded, counts, read_form
from testbed import terminal
from testbed.terminal import duration

NAME, DATA = "paper.html", "paper.json"
_STYLE = {AGREES: "green", DIFFERS: "yellow", CANNOT: "dim", NO_DATA: "red"}
WORDS = {AGREES: "agree", DIFFERS: "differ", CANNOT: "cannot be emulated here", NO_DATA: "without data"}
MARKS = {AGREES: "good", DIFFERS: "doubt", CANNOT: "soft", NO_DATA: "bad"}

Conclusion = Mapping[str, Any]


def trust(figure: Conclusion) -> str:
    """Write one line: runs, seeds, base RTT, fidelity."""
    if not figure["parts"]:
        return "computed, nothing was run" if not figure["trouble"] else "; ".join(figure["trouble"])
    runs = sum(part["runs"] for part in figure["parts"])
    doubtful = sum(part["not_trustworthy"] for part in figure["parts"])
    rtts = {name: rtt for part in figure["parts"] for name, rtt in part["base_rtts_ns"].items()}
    where = ", ".join(f"{name}: base RTT {duration(rtt)}" for name, rtt in rtts.items())
    fidelity = "all trustworthy" if not doubtful else f"{doubtful} NOT TRUSTWORTHY"
    seeds = max(part["seeds"] for part in figure["parts"])
    return f"{runs} run{'s' if runs != 1 else ''}, {seeds} seed{'s' if seeds != 1 else ''}, {fidelity}; {where}"


def doubtful(figure: Conclusion) -> bool:
    return any(part["not_trustworthy"] for part in figure["parts"])


def table(conclusions: Sequence[Conclusion]) -> Any:
    """Return a table for the terminal: the paper's claims in its order, each with its evidence."""
    from rich.text import Text

    rows: list[list[terminal.Cell] | None] = []
    every = len(conclusions) == len(FIGURES)  # else only what the figures that were chosen speak of
    for claim in (claim for claim in by_claim(conclusions) if claim["evidence"] or every):
        verdict = (claim["verdict"], _STYLE[claim["verdict"]])
        reason = (f"\n{claim['why']}", "dim") if claim["why"] else ""
        rows.append([str(claim["number"]), Text.assemble((claim["text"], "bold"), reason), "", Text.assemble(verdict)])
        for row in claim["evidence"]:
            flag = "\nnot trustworthy" if row["doubtful"] and row["verdict"] in (AGREES, DIFFERS) else ""
            seen = Text.assemble(row["seen"], (f"\n{row['why']}" if row["why"] else "", "dim"))
            rows.append(["", row["claim"], seen, Text.assemble((row["verdict"], _STYLE[row["verdict"]]), (flag, "red"))])
        rows.append(None)
    heads = ("claim", "of the paper", "here", "verdict")
    return terminal.table(heads, rows, title="The MRC paper's claims", words=heads[1:])


def summary_line(conclusions: Sequence[Conclusion]) -> str:
    verdicts = ", ".join(f"{number} {WORDS[verdict]}" for verdict, number in counts(conclusions).items())
    figures = f"{len(conclusions)} figure{'s' if len(conclusions) != 1 else ''}"
    return f"{len(CLAIMS)} claims, after {figures}: {verdicts}"


def write_page(out: Path) -> Path:
    """Write ``paper.html`` and ``paper.json`` from the conclusions in a directory. The same files give the same bytes."""
    from scenarios.show.html import embedded, rendered

    conclusions = concluded(out)
    claims = by_claim(conclusions)
    form = read_form(out)
    write_json(
        out / DATA,
        {"format": FORMAT, **form.to_dict(), "counts": counts(conclusions), "claims": claims, "figures": conclusions},
    )
    figures = [
        {
            **figure,
            "trust": trust(figure),
            "doubtful": doubtful(figure),
            "images": [embedded(out / name) for name in figure["plots"] if name.endswith(".png") and (out / name).is_file()],
        }
        for figure in conclusions
    ]
    values = {"claims": claims, "figures": figures, "line": summary_line(conclusions), "quick": form.quick, "marks": MARKS}
    text = rendered(Path(__file__).parent / "paper.html.j2", verdicts=(AGREES, DIFFERS, CANNOT, NO_DATA), **values)
    path = out / NAME
    path.write_text(text, encoding="utf-8")
    return path
