"""The tables of a scenario file but for ``[workload]``, ``[[fault]]`` and ``[[background]]``."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from agents.kernel.options import KINDS as KERNEL_KINDS
from agents.kernel.options import MPTCP, TCP
from scenarios.schema.checks import CheckError, names_in
from scenarios.schema.fabrics import QueueOptions
from scenarios.schema.iperf_tables import Entries
from testbed.controller.steering import POLICIES
from testbed.reconvergence import RECONVERGENCE
from testbed.world import WORLDS
from topologies.fabrics import MAX_DILATION
from topologies.structs import NAME, Doc, Refused, one_of, text
from topologies.theory import PLACEMENTS
from topologies.toml_files import MAX_WHOLE
from topologies.units import US, Duration, Rate, Span

TRANSPORTS = {
    "mrc": "MRC over several planes: sprayed, source-routed, placed in any order",
    "roce": (
        "RoCE v2, the baseline: one path per queue pair, go-back-N or selective repeat, DCQCN or "
        "a window"
    ),
    TCP: "the kernel's TCP, one path per connection",
    MPTCP: "the kernel's Multipath TCP, a subflow per plane",
}
KINDS = tuple(TRANSPORTS)
MAX_SEEDS, MAX_TRANSPORTS, MAX_TABLES = 10_000, 64, 1000
"""Most seeds, transports, and faults or checks of a scenario [ours]."""
OUTCOMES = ("done", "failed")
"""A run may be expected to fail if a fault takes something that every run needs."""
Table = dict[str, Any]
"""A table whose kind decides what it holds: whoever knows the kind converts it."""
_Fabric = Annotated[str, Meta(description="a fabric's name or file")] | Table


class Expect(Struct, frozen=True, forbid_unknown_fields=True):
    check: Annotated[
        str,
        Doc("comparison of figures of summary.json, which must hold", example='"mrc.wrong == 0"'),
    ]
    name: Annotated[
        str, NAME, Doc("its name in results", default="the check", example='"slowest step"')
    ] = ""
    placement: Annotated[
        Annotated[str, one_of(PLACEMENTS)] | None,
        Doc("the only placement that it applies to", default="all"),
    ] = None
    median: Annotated[
        bool, Doc("checked once, on the medians over the seeds, instead of on each seed")
    ] = False
    setting: Annotated[
        Table,
        Doc(
            "applies only where the sweep's keys have these values",
            example='{ "workload.message_bytes" = "1MiB" }',
        ),
    ] = {}
    only_in: Annotated[
        Annotated[str, one_of(WORLDS)] | None,
        Doc("the only world that it applies to", default="both"),
    ] = None
    unusual: Annotated[
        bool, Doc("where it does not hold, a line says *unusual*, and the verdict stays")
    ] = False
    because: Annotated[
        str,
        Doc(
            "why the other world cannot be asked; needed with only_in",
            example='"RoCE\'s timer is 67 ms"',
        ),
    ] = ""

    def __post_init__(self) -> None:
        try:
            names_in(self.check)
        except CheckError as error:
            raise Refused("check", f"= {self.check!r}: {error}") from None
        if self.only_in is not None and not self.because:
            raise Refused(
                "only_in", 'needs a reason: because = "...", why the other world cannot be asked'
            )
        force_setattr(self, "name", self.name or self.check)


class TransportTable(Struct, frozen=True, forbid_unknown_fields=True):
    kind: Annotated[str, one_of(KINDS), Doc("the protocol", example='"mrc"')]
    name: Annotated[
        str,
        text("[A-Za-z][A-Za-z0-9_-]{0,30}", "letters, digits, '-' or '_'"),
        Doc(
            "its name in tables, plots, --transport and checks, where - becomes _",
            default="the kind",
            example='"roce-16qp"',
        ),
    ] = ""
    fabric: Annotated[
        _Fabric | None,
        Doc(
            "the fabric it runs on; twin: one plane with the same rate per host",
            default="the scenario's",
            example='"twin"',
        ),
    ] = None
    fabric_options: Annotated[
        QueueOptions, Doc("how its fabric's queues behave", example="{ trimming = false }")
    ] = QueueOptions()
    options: Annotated[Table, Doc("its own options, by kind", example="{ qps = 1 }")] = {}
    controller: Annotated[
        str, one_of(POLICIES), Doc("what the controller tells MRC's endpoints about link events")
    ] = "none"
    clustermapper: Annotated[
        bool | Table,
        Doc(
            "hosts probe their own links; true, or a table of its options",
            example='{ policy = "report" }',
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.controller != "none" and self.kind != "mrc":
            raise Refused(
                "controller",
                f'= "{self.controller}" is for kind = "mrc": {self.kind} cannot choose its paths',
            )
        if self.clustermapper is not False and self.kind in KERNEL_KINDS:
            raise Refused(
                "clustermapper",
                f"needs raw sockets, which {self.kind} does not use: remove the key",
            )


class CommonOptions(Struct, frozen=True):
    """Options of every transport. The engine defines and checks all others."""

    qps: Annotated[
        int,
        Meta(ge=1, le=64),
        Doc("queue pairs per flow, or per pair of ranks that exchange messages"),
    ] = 1
    reconvergence: Annotated[
        Duration | None,
        Doc(
            "network time from a failure until the network has re-routed; not for MRC over SRv6",
            default=f"{RECONVERGENCE // US} us",
        ),
    ] = None
    repair: Annotated[
        Duration | None,
        Doc(
            "network time from a failure until the T0 at the cable hashes over its other "
            "uplinks; not for kernels",
            default="reconvergence",
        ),
    ] = None


class ScenarioFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[
        str,
        text(
            r"[^/\x00-\x1f\x7f-\x9f\u2028\u2029]{1,100}",
            "text that can be part of a file's name, of at most 100 letters",
        ),
        Doc("name of results directories", default="the file's", example='"my-run"'),
    ]
    description: Annotated[
        str, Doc("what happens, for the report", example='"A cable dies under a ring."')
    ] = ""
    fabric: Annotated[
        _Fabric,
        Doc(
            "a named fabric, a fabric file beside this file, or the table of one", example='"demo"'
        ),
    ]
    nic_rate: Annotated[
        Rate | None,
        Doc("makes the fabric slower or faster; BDPs and round trips stay", default="the fabric's"),
    ] = None
    dilation: Annotated[
        Annotated[float, Meta(ge=1.0, le=MAX_DILATION)] | None,
        Doc(
            "how many times slower than the network machines run it",
            default="the fabric's",
            example="25000",
        ),
    ] = None
    seeds: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=MAX_WHOLE)], ...],
        Meta(min_length=1, max_length=MAX_SEEDS),
        Doc("every placement and transport runs once per seed", example="[1, 2, 3]"),
    ] = (1,)
    timeout: Annotated[
        Span | None,
        Doc("wall time of one run, after which it fails", default="120s", example='"90s"'),
    ] = None
    expect_outcome: Annotated[
        str, one_of(OUTCOMES), Doc("how every run must end", example='"failed"')
    ] = "done"
    workload: Annotated[Table, Doc("what the hosts do")]
    transport: Annotated[
        list[TransportTable],
        Meta(min_length=1, max_length=MAX_TRANSPORTS),
        Doc("the protocols that carry it, one run each"),
    ]
    fault: Annotated[list[Table], Meta(max_length=MAX_TABLES), Doc("what breaks, and when")] = []
    background: Annotated[Entries, Doc("other traffic on the same links")] = []
    expect: Annotated[
        list[Expect], Meta(max_length=MAX_TABLES), Doc("what the figures must satisfy")
    ] = []
    setting: Annotated[
        dict[
            str,
            Annotated[str | int | float | bool, Meta(description="text, a number, true or false")],
        ],
        Doc(
            "named in the runs' names and tables as a sweep's values are, and changes nothing",
            example='{ build = "a" }',
        ),
    ] = {}

    def __post_init__(self) -> None:
        if len(set(self.seeds)) < len(self.seeds):
            raise Refused(
                "seeds",
                f"= {list(self.seeds)!r} must be different: the same seed repeats the same draws",
            )
