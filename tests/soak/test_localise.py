"""Each link of a fabric broken in each of the ways that the suite deals out: the link that is named
is the link that was broken."""

from __future__ import annotations

import pytest

from tests.agents.clustermapper.test_localise import WAYS, every_link_is_named

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]


@pytest.mark.parametrize("shift", range(len(WAYS)))
def test_every_link_is_named_however_it_is_broken(shift: int) -> None:
    every_link_is_named(shift)
