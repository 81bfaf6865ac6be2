"""``mrcbed up --world simulated --view``: an all-reduce without end, at the pace of an emulated
one."""

from __future__ import annotations

import signal
import sys

from agents.clock import WallClock
from agents.collectives.steer import connect
from mrcbed.cli.up_view import ViewOfUp, record_folder
from testbed.reconvergence import usual
from testbed.session import Session
from testbed.simulated.cluster import SimulatedCluster

SLICE_NS = 50 * 10**6  # between two looks at the view's commands, ns of this machine [ours]
STEPS = 100_000
BYTES = 1 << 20
COLLECTIVE = "ring-allreduce"


def run(session: Session, page: tuple[int, bool], out: str | None) -> int:
    """Return the exit status after Ctrl-C or SIGTERM. ``page``: its port, and whether it may
    command. ``out``: where to keep what it showed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    fabric, transport, seed = session.fabric, session.transport, session.seed
    hosts = list(range(fabric.host_count))
    with record_folder(out, transport) as folder, session.up(folder[1]) as cluster:
        assert isinstance(cluster, SimulatedCluster)
        view = None
        try:
            view = ViewOfUp(cluster, transport, seed, folder, *page)
            print(f"view: {view.url}", flush=True)
            print(
                f"{fabric.name} in virtual time, {len(hosts)} hosts, all-reduces of 1 MiB. "
                "Ctrl-C ends it.",
                flush=True,
            )
            connect(cluster.agents, hosts, COLLECTIVE)
            pace = WallClock(session.dilation)
            late = -cluster.network.time
            network = usual(cluster, transport)
            left = 0
            while True:
                if left == 0:
                    left = len(hosts)
                    for agent in cluster.agents:
                        agent.call(
                            "start",
                            collective=COLLECTIVE,
                            message_bytes=BYTES,
                            dtype="float32",
                            steps=STEPS,
                            warmup=0,
                            seed=seed,
                        )
                cluster.network.run(cluster.network.time + pace.span(SLICE_NS))
                if network is not None:
                    network.look()
                for agent in cluster.agents:
                    for note in agent.notifications():
                        left -= note["event"] == "done"
                        if note["event"] == "failed":
                            print(f"mrcbed: rank {note['rank']}: {note['reason']}", file=sys.stderr)
                            return 1
                view.living.tick()
                behind = pace.now() - late - cluster.network.time
                if behind < 0:
                    pace.sleep(-behind)
                else:
                    late += behind  # a machine that is too slow does not hurry afterwards
        except KeyboardInterrupt:
            return 0
        finally:
            if view is not None:
                view.end()
