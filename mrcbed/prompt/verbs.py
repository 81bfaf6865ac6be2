"""The prompt's ``HOST verbs PROGRAM``."""

from __future__ import annotations

import shlex
from typing import Any

from testbed import terminal
from testbed.emulated.cluster import Cluster
from testbed.emulated.fault_socket import VARIABLE
from testbed.emulated.prompt import Prompt as FabricPrompt
from testbed.emulated.verbs_words import of_device, of_host, preloading
from testbed.errors import UserError
from testbed.machine.cleanup import read
from testbed.verbs.build import library
from testbed.world import Program
from topologies.addressing import management_address
from topologies.clos import Fabric

USAGE = (
    "usage: HOST verbs PROGRAM [ARGUMENT...], like h0 verbs ib_write_bw & and then h1 verbs "
    "ib_write_bw h0"
)


class VerbsCommands(FabricPrompt):
    """Part of the prompt; needs its ``cluster`` and ``fabric``."""

    cluster: Cluster
    fabric: Fabric

    def default(self, line: str) -> None:
        name, arguments, _ = self.parseline(line)
        if name in self.mn and arguments and arguments.split()[0] == "verbs":
            self.do_verbs(f"{name} {arguments.partition('verbs')[2]}")
        else:
            super().default(line)

    def do_verbs(self, line: str) -> None:
        """verbs [HOST PROGRAM [ARGUMENT...]]: run a program of RDMA verbs, also HOST verbs PROGRAM;
        verbs alone: those that run

        Like h0 verbs ib_write_bw & and then h1 verbs ib_write_bw h0. It runs at low priority. Host
        names are replaced by addresses of eth0, the management network, which is no part of the
        fabric.
        """
        if not line.strip():
            self._show_programs()
            return
        name, _, command = line.strip().partition(" ")
        if not command.strip():
            raise UserError(USAGE)
        host, made = self.fabric.host_number(name), library()
        self.cluster.management()
        # Of NCCL's and UCX's variables the shell takes those that it has.
        settings = [
            f"{key}={shlex.quote(value)}"
            for key, value in of_host(host, self.cluster.clock.dilation).items()
        ]
        settings.append(f"{VARIABLE}={self.cluster.injections.socket_for(None)}")
        settings += [f'{key}="${{{key}:-{value}}}"' for key, value in of_device(made).items()]
        words = ["nice", "-n", str(Program.nice), *preloading(made), *settings]
        places = {
            place: management_address(number) for number, place in enumerate(self.fabric.hosts)
        }
        typed = " ".join(places.get(word, word) for word in command.strip().split(" "))
        super().default(f"{name} {' '.join(words)} {typed}")

    def _show_programs(self) -> None:
        rows: list[list[terminal.Cell]] = []
        for host, agent in enumerate(self.cluster.agents):
            for row in agent.call("verbs"):
                counts = [f"{row[key]:,}" for key in ("qps", "mrs", "messages", "bytes")]
                rows.append(
                    [self.fabric.hosts[host], str(row["pid"]), read(row["pid"], "comm"), *counts]
                )
        heads = ("host", "process", "program", "queue pairs", "regions", "WRITEs sent", "bytes")
        told = (
            terminal.table(heads, rows, names=("host", "program"))
            if rows
            else "no program uses verbs: h0 verbs PROGRAM starts one"
        )
        self.console.print(told)

    def complete_verbs(self, word: str, *_: Any) -> list[str]:
        return [name for name in self.fabric.hosts if name.startswith(word)]
