"""The prompt's ``mapper``: agents probe, and their findings are combined link by link."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from agents.clustermapper.options import Options
from testbed import terminal
from testbed.emulated.cluster import Cluster
from testbed.errors import UserError
from topologies.units import NS

_STYLES = {"clear": "green", "lossy": "yellow", "dead": "red"}
USAGE = "mapper [on [interval=2] [share=0] [threshold=0.01] | off]"


class MapperCommands:
    """Part of the prompt; needs its ``cluster`` and ``console``."""

    cluster: Cluster
    console: Console

    def do_mapper(self, line: str) -> None:
        """mapper [on [KEY=VALUE...]|off]: let hosts probe their links; alone, show lossy and dead
        ones

        Alone: what the probes found. on [interval=2] [share=0] [threshold=0.01]: begin, with the
        keys of a scenario's clustermapper table. Each host judges by itself here.
        """
        words = line.split()
        if not words:
            self._show()
        elif words[0] == "on":
            options = self._options(words[1:])
            if self.cluster.fabric.sites > 1:
                raise UserError("mapper on: it probes one site's links, and this fabric has two")
            for agent in self.cluster.agents:
                agent.call("mapper_start", options=options, seed=0, report=False)
        elif words == ["off"]:
            for agent in self.cluster.agents:
                agent.call("mapper_stop")
        else:
            raise UserError(f"usage: {USAGE}")

    def complete_mapper(self, word: str, *_: Any) -> list[str]:
        return [
            choice
            for choice in ("on", "off", "interval=", "share=", "threshold=")
            if choice.startswith(word)
        ]

    @staticmethod
    def _options(words: list[str]) -> Mapping[str, object]:
        values: dict[str, float] = {}
        for word in words:
            key, _, value = word.partition("=")
            if key not in ("interval", "share", "threshold"):
                raise UserError(
                    f"mapper on: {word!r} is not interval=, share= or threshold=; usage: {USAGE}"
                )
            if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
                raise UserError(f"mapper on: {word!r} needs a number, like {key}=1")
            values[key] = float(value)
        try:
            return Options.read(values).to_dict()
        except ValueError as error:
            raise UserError(f"mapper on: {error}") from None

    def _show(self) -> None:
        answers = [agent.call("mapper") for agent in self.cluster.agents]
        if not any(answers):
            raise UserError("no host probes yet: begin with mapper on")
        rows: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        for host, answer in enumerate(answers):
            for row in answer.get("links", ()):
                rows.setdefault(row["link"], []).append((host, row))
        sent, lost = (
            sum(sum(answer.get(key, ())) for answer in answers) for key in ("sent", "lost")
        )
        state = (
            "probing" if any(answer.get("running") for answer in answers) else "no longer probing"
        )
        if rows:
            now = self.cluster.clock.now()
            cells: list[list[terminal.Cell]] = []
            for link, reports in sorted(rows.items()):
                for name in ("dead", "lossy", "clear"):
                    matching = [(host, row) for host, row in reports if row["state"] == name]
                    if not matching:
                        continue
                    carrier = "" if all(row["carrier"] for _, row in matching) else ", no carrier"
                    cells.append(
                        [
                            link,
                            Text(f"{name}{carrier}", _STYLES[name]),
                            (
                                f"{sum(row['lost'] for _, row in matching)} of "
                                f"{sum(row['sent'] for _, row in matching)}"
                            ),
                            terminal.duration(
                                (now - max(row["since"] for _, row in matching)) / NS
                            ),
                            " ".join(f"h{host}" for host, _ in matching),
                        ]
                    )
            heads = ("link", "state", "probes lost", "for", "reported by")
            self.console.print(
                terminal.table(heads, cells, names=("state",), words=("reported by",))
            )
        else:
            self.console.print("no link is or was lossy or dead")
        self.console.print(f"{state}: {sent} probes, {lost} lost")
