"""A *session*: a fabric brought up in one of the two worlds, broken by faults, and taken down
again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from testbed.faults.kinds import KINDS
from testbed.world import EMULATED, SIMULATED, World
from topologies.clos import Fabric

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Session:
    """``faults``: (kind, target, keys) each, from the begin to the end. ``dilation``: how many
    times slower an emulated fabric runs. ``options``: the transport's own."""

    fabric: Fabric
    world: str = EMULATED
    transport: str = "mrc"
    faults: Sequence[tuple[str, str, dict[str, str]]] = ()
    seed: int = 0
    dilation: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)

    def cluster(self, progress: Progress | None = None, **settings: Any) -> World:
        """Return the fabric in its world, not started. ``settings``: as the world's class has them
        (``switch``, ``pcap_links`` and so on)."""
        if self.world == SIMULATED:
            from testbed.simulated.cluster import SimulatedCluster

            return SimulatedCluster(self.fabric, **settings)
        from testbed.emulated.cluster import Cluster

        return Cluster(self.fabric, dilation=self.dilation, progress=progress, **settings)

    @contextmanager
    def up(
        self,
        logs: Path | None = None,
        bar: AbstractContextManager[Progress | None] | None = None,
        policy: str = "none",
        **settings: Any,
    ) -> Iterator[World]:
        """Bring it up with an agent of the transport on every host, and inject the faults; all of
        it ends with the context.

        ``logs``: where agents log, None: nowhere that stays. ``bar``: shows how far the bring-up
        is, and ends with it. ``policy``: what the controller tells agents of link failures. Raises
        :class:`testbed.errors.UserError`, :class:`testbed.errors.ClusterDied`.
        """
        with ExitStack() as stack:
            folder = logs or Path(stack.enter_context(TemporaryDirectory(prefix="mrcbed-logs-")))
            with bar or nullcontext() as progress:
                cluster = self.cluster(progress, **settings)
                stack.callback(cluster.stop)
                cluster.start()
                cluster.start_agents(self.transport, dict(self.options), folder, self.seed, policy)
            for kind, on, keys in self.faults:
                cluster.inject(kind, on, run_seed=self.seed, **keys)
            yield cluster

    @property
    def stalled(self) -> list[int]:
        """How late these hosts' agents are says nothing about the machine."""
        return [self.fabric.host_number(on) for kind, on, _ in self.faults if KINDS[kind].stalls]
