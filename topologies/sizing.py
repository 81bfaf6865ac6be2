"""Computes how large a Clos of a given switch gets, and what it costs: multi-plane with two tiers
against a single plane with three or four.

This is section 2 of the MRC paper as arithmetic, for any number of NICs, NIC rate and switch.

A *plane* is a folded Clos of its own, of switches with k ports at the rate of one of the NIC's
ports. Below the top tier half of a switch's ports face down. With t tiers and n NICs, one port of
each in the plane:

- NICs at most:  2 (k/2)^t                       (t = 2: k^2/2; t = 3: k^3/4)
- switches:      n/(k/2) in each tier but the top, whose switches face down with all ports: n/k.
  Together (2t - 1) n/k
- links:         n below each tier, as nothing is oversubscribed: t n
- longest path:  up to the top tier and down again: 2t - 1 switches
- a lost T0-T1 link takes 1/(k/2) of the uplinks of a T0, and as large a part of what its hosts can
  send or receive in that plane; a lost NIC-T0 link takes 1/planes of a NIC

A switch of capacity C has k = C / port rate ports, so that p planes at 1/p of the NIC's rate have p
times the ports, and need p (2t - 1) n / (p k1) = (2t - 1) n/k1 switches, k1 being the ports at the
NIC's full rate: as many as one plane of as many tiers. Two tiers instead of three are 3/5 of the
switches. Links are counted in NIC rates (8 links of 100 Gb/s fit the optics of one of 800 Gb/s), so
that two tiers have 2/3 of three tiers' optics.

A T0 that is oversubscribed r : 1 has d = k r/(r + 1) ports down, rounded down, and u = k - d up.
Above it nothing is. Then n NICs need n/d T0s, whose n u/d uplinks are the links below each higher
tier; NICs at most: d (k/2)^(t - 2) k.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from topologies.clos import FabricError

GBIT = 10**9
SWITCH_RATE = 51_200 * GBIT
"""Bits/s of a switch, one direction (MRC paper, section 2)."""
NIC_RATE = 800 * GBIT
PAPER_NICS = 131_072
MAX_TIERS = 6


@dataclass(frozen=True)
class Size:
    """Rates are in bits/s; ``optics`` in transceivers at the NIC's full rate, two a link; counts
    are without spares."""

    nics: int
    nic_rate: int
    switch_rate: int
    planes: int
    tiers: int
    oversubscription: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if self.nics < 1 or self.planes < 1 or self.nic_rate < 1 or self.switch_rate < 1:
            raise FabricError("sizing: NICs, planes and rates must be 1 or more")
        if not self.oversubscription >= 1:
            raise FabricError(f"sizing: an oversubscription of {self.oversubscription}: 1 or more")
        if not 1 <= self.tiers <= MAX_TIERS:
            raise FabricError(f"sizing: {self.tiers} tiers: from 1 to {MAX_TIERS}")
        if (
            self.nic_rate % self.planes
            or self.switch_rate % self.port_rate
            or self.radix % 2
            or self.radix < 2
        ):
            raise FabricError(
                f"sizing: {self.planes} planes of a {self.nic_rate / GBIT:g} Gb/s NIC, a switch "
                f"of {self.switch_rate / GBIT:g} Gb/s: the port rate must divide both, and give "
                "the switch an even number of ports"
            )

    @property
    def port_rate(self) -> int:
        return self.nic_rate // self.planes

    @property
    def radix(self) -> int:
        return self.switch_rate // self.port_rate

    @property
    def down(self) -> int:
        ratio = self.oversubscription
        return self.radix if self.tiers == 1 else int(self.radix * ratio / (ratio + 1))

    @property
    def up(self) -> int:
        return self.radix - self.down

    @property
    def t0s(self) -> int:
        return ceil(self.nics / self.down)

    @property
    def most_nics(self) -> int:
        if self.tiers == 1:
            return self.radix
        above: int = (self.radix // 2) ** (self.tiers - 2)
        return self.down * above * self.radix

    @property
    def fits(self) -> bool:
        return self.nics <= self.most_nics

    @property
    def switches(self) -> int:
        if self.tiers == 1:
            return self.planes * self.t0s
        uplinks = self.t0s * self.up
        return self.planes * (
            self.t0s
            + (self.tiers - 2) * ceil(2 * uplinks / self.radix)
            + ceil(uplinks / self.radix)
        )

    @property
    def links(self) -> int:
        return self.planes * (self.nics + (self.tiers - 1) * self.switch_links)

    @property
    def switch_links(self) -> int:
        """Links between two tiers of a plane: as many as NICs without oversubscription, T0s that
        are not full included."""
        return 0 if self.tiers == 1 else ceil(Fraction(self.nics * self.up, self.down))

    @property
    def optics(self) -> int:
        """Two transceivers a link, had each the NIC's full rate."""
        return ceil(Fraction(2 * self.links, self.planes))

    @property
    def longest_path(self) -> int:
        return 2 * self.tiers - 1

    @property
    def one_hop_nics(self) -> int:
        return self.down

    @property
    def uplink_share(self) -> Fraction:
        """What one T0-T1 link takes of a T0's capacity, and of a host's in that plane; 0 without a
        T1."""
        return Fraction(0) if self.tiers == 1 else Fraction(1, self.up)

    @property
    def nic_link_share(self) -> Fraction:
        return Fraction(1, self.planes)

    @property
    def paths(self) -> int:
        """Shortest paths between NICs under different T0s that meet in the top tier."""
        if self.tiers == 1:
            return self.planes
        above: int = (self.radix // 2) ** (self.tiers - 2)
        return self.planes * self.up * above


def fewest_tiers(
    nics: int,
    nic_rate: int,
    switch_rate: int,
    planes: int,
    oversubscription: Fraction = Fraction(1),
) -> Size:
    for tiers in range(1, MAX_TIERS + 1):
        size = Size(nics, nic_rate, switch_rate, planes, tiers, oversubscription)
        if size.fits:
            return size
    raise FabricError(
        f"sizing: {nics:,} NICs do not fit {MAX_TIERS} tiers of switches with {size.radix} ports"
    )


def splits(
    nics: int = PAPER_NICS, nic_rate: int = NIC_RATE, switch_rate: int = SWITCH_RATE
) -> list[Size]:
    return [fewest_tiers(nics, nic_rate, switch_rate, planes) for planes in (1, 2, 4, 8)]
