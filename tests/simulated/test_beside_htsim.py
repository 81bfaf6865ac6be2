"""NSCC beside uet-htsim's: the rules that differ, and, where its program is built, the comparison
itself."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from statistics import median

import pytest

from agents.mrc.config import Config
from agents.mrc.sender.congestion.nscc import Nscc
from tests.simulated import beside_htsim
from tests.simulated.beside_htsim import OURS, PLANE, RULES, Figures, Like, htsim, ours
from topologies.clos import SACK_BYTES

BALANCING = ("uet-htsim, spraying without feedback", "uet-htsim")
HTSIM = os.environ.get("MRCBED_HTSIM", "")
CONFIG = Config.from_fabric(PLANE, {"receiver_penalty": 0})


def windows(kind: type[Nscc], seed: int) -> list[int]:
    """After each of 400 signals as a sender meets them: idle spells and crowded ones."""
    rng, it, now, made = Random(seed), kind(CONFIG, PLANE.base_rtt_ps), 0, []
    crowded = False
    for _ in range(400):
        now += PLANE.base_rtt_ps // rng.choice((1, 4, 16))
        crowded = crowded != (rng.random() < 0.05)
        flight = rng.randrange(1 + it.cwnd)
        what = rng.random()
        if crowded and what < 0.2:
            it.on_nack(now, it.mtu, flight, trimmed=True)
        elif what < 0.25:
            it.on_wrong_loss(now, it.mtu)
        else:
            rtt = (
                -1
                if what < 0.4
                else PLANE.base_rtt_ps
                + int(rng.random() ** 3 * (2 if crowded else 0.5) * PLANE.base_rtt_ps)
            )
            it.on_sack(
                now,
                rng.randrange(1, 5) * it.mtu,
                flight,
                rng.random() < 0.5 * crowded,
                rtt,
                0,
                restore=False,
            )
        made.append(it.cwnd)
    return made


def test_without_a_rule_it_is_nscc() -> None:
    assert all(windows(Like, seed) == windows(Nscc, seed) for seed in range(20))


@pytest.mark.parametrize("name", RULES)
def test_each_rule_moves_a_window(name: str) -> None:
    kind = getattr(beside_htsim, name)
    assert any(windows(kind, seed) != windows(Nscc, seed) for seed in range(20))


# --- where MRCBED_HTSIM names htsim_uec (docs/how/testing.md) -------------------------------------

BESIDE = pytest.mark.skipif(not HTSIM, reason="MRCBED_HTSIM names no htsim_uec")
NEAREST = "and T1s by hash"
WITHIN = {"permutation, 2:1": (0.08, 0.025), "incast": (0.03, 0.01)}
"""Most that share of the ideal and part of trims may differ by, medians of three seeds: hashes and
skips differ, the window does not."""


def middle(found: list[Figures]) -> Figures:
    return Figures(*(median(values) for values in zip(*found, strict=True)))


def close(pattern: str, here: Figures, there: Figures) -> bool:
    share, trimmed = WITHIN[pattern]
    return abs(here.share - there.share) <= share and abs(here.trimmed - there.trimmed) <= trimmed


@BESIDE
@pytest.mark.dear("three simulated seeds of a pattern")
@pytest.mark.parametrize("pattern", WITHIN)
def test_our_nscc_does_as_uet_htsims(pattern: str, tmp_path: Path) -> None:
    there = middle([htsim(HTSIM, pattern, [], seed) for seed in (1, 2, 3)])
    assert close(pattern, middle(ours(pattern, [NEAREST], (1, 2, 3), tmp_path)[NEAREST]), there)


@BESIDE
@pytest.mark.dear("six simulated permutations")
def test_skipping_once_is_between_no_feedback_and_many_skips(tmp_path: Path) -> None:
    """A permutation over enough uplinks, all found by hash: here a mark skips an EV once, there up
    to fifteen times in a row."""
    plain, often = (
        middle(
            [htsim(HTSIM, "permutation", beside_htsim.HTSIM[row], seed) for seed in (1, 2, 3)]
        ).share
        for row in BALANCING
    )
    assert (
        plain < middle(ours("permutation", [NEAREST], (1, 2, 3), tmp_path)[NEAREST]).share < often
    )


@BESIDE
@pytest.mark.dear("240 connections")
def test_all_to_all_is_as_much_slower_as_its_sacks_are_long(tmp_path: Path) -> None:
    """240 queue pairs take turns: a quarter base RTT passes between two packets of each, so every
    packet has a SACK of its own."""
    row = "and the whole line rate"
    here, there = (
        ours("all-to-all", [row], [1], tmp_path)[row][0],
        htsim(HTSIM, "all-to-all", [], 1),
    )
    assert here.trimmed == there.trimmed == 0
    assert here.share / there.share == pytest.approx(
        PLANE.frame_bytes / (PLANE.frame_bytes + SACK_BYTES), abs=0.01
    )


@BESIDE
def test_another_control_is_told_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OURS, "fixed", {**beside_htsim.UET, "options": {"congestion": "fixed"}})
    there = middle([htsim(HTSIM, "incast", [], seed) for seed in (1, 2, 3)])
    assert not close("incast", middle(ours("incast", ["fixed"], [1], tmp_path)["fixed"]), there)
