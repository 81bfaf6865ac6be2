"""A play: what two hosts do and what befalls them, as a list of small values that hypothesis can
draw, shrink and print.

:func:`play` acts a list out, mends everything, and asks for what MRC promises: with a path left for
long enough every write completes exactly once with exactly its bytes, immediates in order; every
path comes back; every frame is accounted for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from scenarios.figures.books import DROPS
from testbed.dataplane.counters import books
from testbed.faults.plan import back_after, used
from tests.properties.world import BITS, MANY, SMALL, Weather, World
from topologies.addressing import ev_fields
from topologies.clos import Fabric
from topologies.paths import path_evs
from topologies.units import MAX_TIME, written


class Setting(NamedTuple):
    """``active``: most paths in use; ``immediates``: most in flight; ``delay_ps``: of the fabric,
    -1 for its own; ``begin``: the time at the start."""

    fabric: str = "small"
    trimming: bool = True
    congestion: str = "nscc"
    active: int = 128
    immediates: int = 3
    seed: int = 1
    delay_ps: int = -1
    begin: int = 0

    def world(self, may_fail: bool = False, **options: int) -> World:
        fabric = {"small": SMALL, "many": MANY}[self.fabric].with_(trimming=self.trimming)
        if self.delay_ps >= 0:
            fabric = fabric.with_(delay_ps=self.delay_ps)
        mine = {
            "active_evs": self.active,
            "max_wimm": self.immediates,
            "congestion": self.congestion,
            "mpr": 128,
            "exponential": 25,
        }
        mine["timeout"] = 2  # 13 base RTTs: packets are short here
        return World(fabric, self.seed, may_fail, self.begin, **{**mine, **options})


class Post(NamedTuple):
    """A write by host 0 or 1."""

    side: int
    length: int
    immediate: bool = False


class Wait(NamedTuple):
    """Quarters of a base RTT."""

    quarters: int


class Break(NamedTuple):
    """A fault of the catalogue; ``n`` says where, ``percent`` how badly."""

    kind: str
    n: int = 0
    percent: int = 50


class Mend(NamedTuple):
    """The n-th trouble that is there goes."""

    n: int = 0


class Tell(NamedTuple):
    """The controller denies a cable (``deny``) or says that it is down (``hint``), to both hosts;
    with -1 nothing any more."""

    op: str
    n: int


class Stall(NamedTuple):
    """A host does not run, or runs again."""

    side: int
    stop: bool = True


Action = Post | Wait | Break | Mend | Tell | Stall | Weather
KINDS = (
    "link",
    "port",
    "flap",
    "switch",
    "silent",
    "plane",
    "dead-paths",
    "loss",
    "corrupt",
    "path-loss",
    "slow",
    "straggler",
)

SETTINGS = st.builds(
    Setting,
    st.sampled_from(["small", "many"]),
    st.booleans(),
    st.sampled_from(["nscc", "nscc", "fixed"]),
    st.sampled_from([128, 6, 2]),
    st.sampled_from([3, 1024]),
    st.integers(0, 1000),
    st.just(-1),
    st.sampled_from([0, MAX_TIME]),
)
SIDES = st.integers(0, 1)
POSTS = st.builds(
    Post, SIDES, st.one_of(st.integers(0, 300), st.integers(0, 20_000)), st.booleans()
)
WEATHER = st.builds(
    Weather,
    st.sampled_from(BITS),
    SIDES,
    st.integers(-1, 2),
    st.integers(1, 100),
    st.integers(0, 12),
)
ACTIONS = st.lists(
    st.one_of(
        POSTS,
        POSTS,
        st.builds(Wait, st.integers(1, 40)),
        st.builds(Wait, st.integers(40, 300)),
        WEATHER,
        st.builds(Break, st.sampled_from(KINDS), st.integers(0, 40), st.integers(1, 99)),
        st.builds(Mend, st.integers(0, 5)),
        st.builds(Tell, st.sampled_from(["deny", "hint"]), st.integers(-1, 40)),
        st.builds(Stall, SIDES, st.booleans()),
    ),
    min_size=1,
    max_size=25,
)


def play(setting: Setting, actions: Sequence[Action]) -> World:
    """Act it out, mend all, wait for the end; raises AssertionError where something is not as
    promised."""
    world = setting.world()
    begun = world.now
    for action in actions:
        act(world, action)
    world.run(1)
    world.mend()
    finish(world, 2 * (world.now - begun) + 8 * world.config.rto + 64 * world.rtt)
    recover(world)
    settle(world)
    return world


def act(world: World, action: Action) -> None:
    match action:
        case Post(side, length, immediate):
            world.hosts[side].post(length, immediate)
        case Wait(quarters):
            world.run(quarters)
        case Weather():
            world.weather.append(action)
        case Break(kind, n, percent):
            on, keys = somewhere(world.fabric, kind, n, percent)
            world.inject(kind, on, **keys)
        case Mend(n):
            world.mend(n)
        case Tell(op, n):
            links = world.fabric.links
            for host in world.hosts:
                getattr(host.engine, op)(world.now, [] if n < 0 else [links[n % len(links)].name])
                host.turn()
        case Stall(side, stop):
            world.hosts[side].pause(stop)


def somewhere(fabric: Fabric, kind: str, n: int, percent: int) -> tuple[str, dict[str, object]]:
    """What a fault of a kind is on, and its keys."""
    cable = fabric.links[n % len(fabric.links)].name
    nics = [
        link.a.name
        for link in fabric.links
        if link.kind == "nic" and link.a.node in ("h0", fabric.hosts[-1])
    ]
    share = percent / 100
    last = fabric.host_count - 1
    plane, uplink = ev_fields(path_evs(fabric, 0, last)[n % len(path_evs(fabric, 0, last))])
    cycle = written(fabric.base_rtt_ps * (1 + n % 9))
    return {
        "link": (cable, {}),
        "port": (nics[n % len(nics)], {}),
        "flap": (cable, {"period": cycle, "duty": share}),
        "switch": (fabric.switches[n % len(fabric.switches)], {}),
        "silent": (fabric.switches[n % len(fabric.switches)], {}),
        "plane": (f"p{n % fabric.planes}", {}),
        "dead-paths": ("fabric", {"share": share, "seed": n}),
        "loss": (cable, {"probability": share, "seed": n}),
        "corrupt": (cable, {"probability": share, "seed": n}),
        "path-loss": (f"h0>h{last}@p{plane}/{uplink}", {"probability": share, "seed": n}),
        "slow": (cable, {"rate": max(0.1, share)}),
        "straggler": (fabric.hosts[-1] if n % 2 else "h0", {"share": share, "period": cycle}),
    }[kind]


def finish(world: World, bound: int) -> None:
    """Everything posted completes within ``bound`` now that nothing is broken."""
    since = world.now
    while not world.all_done():
        assert world.now - since <= bound, (
            f"not done {(world.now - since) / world.rtt:.0f} RTTs after all was mended: "
            f"{state(world)}"
        )
        world.run(16)
    world.run(4)
    for host, peer in (world.hosts, world.hosts[::-1]):
        assert len(host.done) == len(host.writes) and len(host.got) == len(host.imms), (
            "something was told again"
        )
        assert peer.qp.placed == sum(len(data) for data, _, _ in host.writes), (
            "bytes that were placed twice"
        )
        assert [f for f in host.watch.of("qp") if f["state"] == "ERROR"] == []


def recover(world: World) -> None:
    """Every path is in use again, as from the first, or ready to be."""
    since, bound = world.now, back_after(world.config)
    stands_by = {"active": True} if world.config.active_evs < 128 else {}
    while idle := [
        row for host in world.hosts for row in host.engine.paths() if not used({**row, **stands_by})
    ]:
        assert world.now - since <= bound, (
            f"not in use {(world.now - since) / world.rtt:.0f} RTTs after all was mended: {idle[0]}"
        )
        world.run(64)


def settle(world: World) -> None:
    """Every frame is accounted for: sent = delivered + lost by a cause with a name."""
    for _ in range(100):
        if world.network.quiet():
            break
        world.run(1)
    world.run(16)  # what the weather made late
    rows = world.network.rows()
    assert world.network.quiet() and books(rows) == []
    sent = sum(host.engine.counters()["tx_packets"] for host in world.hosts)
    # a network in one place has no trunk
    lost = sum(row.get(cause, 0) for row in rows for cause in DROPS)
    assert sent == sum(host.frames_out for host in world.hosts) == world.taken + lost
    assert sum(host.frames_in for host in world.hosts) == world.taken + world.copied - world.lost
    for host in world.hosts:
        c = host.engine.counters()
        taken = sum(
            c[k]
            for k in (
                "data_rx",
                "sacks_rx",
                "acks_rx",
                "nacks_rx",
                "probes_rx",
                "endpoint_operations_rx",
            )
        )
        assert c["rx_packets"] == host.frames_in
        assert (
            c["trimmed_rx"]
            + taken
            + sum(v for k, v in c.items() if k.startswith("rx_") and k != "rx_packets")
            >= c["rx_packets"]
        )


def state(world: World) -> str:
    """Where the two queue pairs are, for a message."""
    said = []
    for host in world.hosts:
        r = host.qp.requester
        said.append(
            f"h{host.number} una {r.sent.una - host.qp.first_psn}, next "
            f"{r.sent.next - host.qp.first_psn}, end {r.queue.end - host.qp.first_psn}, firings "
            f"{r.timers.firings}, in flight {r.sent.in_flight} of {r.congestion.cwnd}, planes "
            f"{host.qp.health.state}, paths {[path.state for path in r.paths.all]}, deadline in "
            f"{(host.engine.deadline() - world.now) / world.rtt:.1f} RTTs"
        )
    return "; ".join(said)
