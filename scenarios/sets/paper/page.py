"""Writes ``paper.html`` and a table for the terminal, from ``figure.json`` files only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import convert

from scenarios.run.resume import write_json
from scenarios.sets.paper.claims import AGREES, AT_THRESHOLD, CANNOT, COMPUTED, DIFFERS, NO_DATA
from scenarios.sets.paper.figures import FIGURES
from scenarios.sets.paper.registry import CLAIMS
from scenarios.sets.paper.series import FORMAT, by_claim, concluded, counts, read_form
from scenarios.sets.provenance import Stamp
from scenarios.show.document import (
    Block,
    Cell,
    Column,
    Document,
    Folded,
    Section,
    Table,
    Words,
    plain,
    rich,
)
from testbed.terminal import duration

NAME, DATA = "paper.html", "paper.json"
WORDS = {
    AGREES: "agree",
    DIFFERS: "differ",
    AT_THRESHOLD: "at the threshold",
    COMPUTED: "computed",
    CANNOT: "cannot be emulated here",
    NO_DATA: "without data",
}
MARKS = {
    AGREES: "good",
    DIFFERS: "doubt",
    AT_THRESHOLD: "doubt",
    COMPUTED: "soft",
    CANNOT: "soft",
    NO_DATA: "bad",
}

_ABOUT = (
    "Claims are those of arXiv 2605.04333, in our words. The condition for each verdict is "
    "this testbed's own reading of the claim. Nothing was tuned to agree. Times are the "
    "network's: what this machine took, divided by the dilation."
)

Conclusion = Mapping[str, Any]


def trust(figure: Conclusion) -> str:
    if not figure["parts"]:
        return (
            "computed, nothing was run" if not figure["trouble"] else "; ".join(figure["trouble"])
        )
    runs = sum(part["runs"] for part in figure["parts"])
    doubtful = sum(part["not_trustworthy"] for part in figure["parts"])
    rtts = {name: rtt for part in figure["parts"] for name, rtt in part["base_rtts_ns"].items()}
    where = ", ".join(f"{name}: base RTT {duration(rtt)}" for name, rtt in rtts.items())
    fidelity = "all trustworthy" if not doubtful else f"{doubtful} NOT TRUSTWORTHY"
    seeds = max(part["seeds"] for part in figure["parts"])
    return (
        f"{runs} run{'s' if runs != 1 else ''}, {seeds} seed{'s' if seeds != 1 else ''}, "
        f"{fidelity}; {where}"
    )


def _verdict(row: Conclusion) -> Cell:
    flag = (
        "\nnot trustworthy"
        if row["doubtful"] and row["verdict"] in (AGREES, DIFFERS, AT_THRESHOLD)
        else ""
    )
    return [(row["verdict"], MARKS[row["verdict"]]), (flag, "bad")]


def _seen(row: Conclusion) -> Cell:
    low, high = row.get("low"), row.get("high")
    seeds = (
        ""
        if low is None or high is None or low == high
        else f"\n{low:.4g} to {high:.4g} {row['unit']}, {row['n']} seeds"
    )
    return [(row["seen"], ""), (seeds, "soft"), (f"\n{row['why']}" if row["why"] else "", "soft")]


_EVIDENCE: list[Column] = [
    ("of the paper", lambda row: str(row["claim"])),
    ("here", _seen),
    ("condition", lambda row: str(row["asked"])),
    ("ideal", lambda row: str(row["ideal"])),
    ("verdict", _verdict),
    ("figure", lambda row: [(row["figure"], f"#fig-{row['figure']}")]),
]
HEADS = [head for head, _ in _EVIDENCE]


def table(conclusions: Sequence[Conclusion]) -> Any:
    rows: list[list[Cell] | None] = []
    every = len(conclusions) == len(FIGURES)  # else only what the figures that were chosen speak of
    for claim in (claim for claim in by_claim(conclusions) if claim["evidence"] or every):
        reason = (f"\n{claim['why']}" if claim["why"] else "", "soft")
        verdict = [(claim["verdict"], MARKS[claim["verdict"]])]
        rows.append(
            [str(claim["number"]), [(claim["text"], "strong"), reason], "", "", "", verdict, ""]
        )
        rows += [["", *(cell(row) for _, cell in _EVIDENCE)] for row in claim["evidence"]]
        rows.append(None)
    return rich(
        plain(
            ["claim", *HEADS],
            rows,
            title="The MRC paper's claims",
            words=HEADS,
            details=("condition", "ideal", "figure"),
        )
    )


def summary_line(conclusions: Sequence[Conclusion]) -> str:
    verdicts = ", ".join(
        f"{number} {WORDS[verdict]}" for verdict, number in counts(conclusions).items()
    )
    figures = f"{len(conclusions)} figure{'s' if len(conclusions) != 1 else ''}"
    return f"{len(CLAIMS)} claims, after {figures}: {verdicts}"


def write_page(out: Path) -> Path:
    """The same files give the same bytes."""
    from scenarios.show.html import write_page as write

    conclusions = concluded(out)
    claims = by_claim(conclusions)
    form = read_form(out)
    write_json(
        out / DATA,
        {
            "format": FORMAT,
            **form.to_dict(),
            "counts": counts(conclusions),
            "claims": claims,
            "figures": conclusions,
        },
    )
    quick = (
        [
            Words(
                "Quick form: one seed, shorter runs and fewer sizes. Medians need the full form.",
                "banner",
            )
        ]
        if form.quick
        else []
    )
    head = [Words(f"{summary_line(conclusions)}.", "lead"), *quick, Words(_ABOUT)]
    sections = [
        Section("claims", "The claims", [block for claim in claims for block in _claim(claim)])
    ]
    sections += [
        Section(f"fig-{f['id']}", f"{f['heading']}: {f['title']}", list(_figure(f, out)))
        for f in conclusions
    ]
    return write(Document("The MRC paper's claims", head, sections), out / NAME)


def _claim(claim: Conclusion) -> Iterator[Block]:
    yield Words(
        [(f"{claim['number']}. ", "strong"), (claim["verdict"], MARKS[claim["verdict"]])], "head"
    )
    yield Words([(f"{claim['text']} ", ""), (claim["source"], "soft")], "")
    if claim["why"]:
        yield Words(claim["why"])
    if claim["evidence"]:
        yield Table(_EVIDENCE, claim["evidence"], words=HEADS)


def _figure(figure: Conclusion, out: Path) -> Iterator[Block]:
    from scenarios.show.html import embedded

    yield Words(trust(figure) + (f". {figure['note']}" if figure["note"] else ""))
    if "stamp" in figure:  # not in those of former versions
        yield Words(f"{convert(figure['stamp'], Stamp).words()}.")
    yield from (Words(trouble, "banner") for trouble in figure["trouble"])
    pictures = (out / name for name in figure["plots"] if name.endswith(".png"))
    yield from (
        embedded(path, f"Drawing of figure {figure['id']}") for path in pictures if path.is_file()
    )
    for part in figure["parts"]:
        if part["doubts"]:
            yield Folded(
                f"{len(part['doubts'])} notes on runs of {part['scenario']}",
                [Words(doubt) for doubt in part["doubts"]],
            )
        yield Words(f"Data: {part['directory']}/")
