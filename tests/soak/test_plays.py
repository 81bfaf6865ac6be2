"""What the suite plays in small: lessons as they are typed, sweeps that lose many processes, every value in every place of a block."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.lessons.pages import PAGES
from tests.scenarios.lessons.test_lessons import play
from tests.scenarios.sweeps.test_hostile_blocks import BASES, change_values
from tests.scenarios.sweeps.test_killed import kill

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_lesson_is_what_its_page_says(page: Path, tmp_path: Path) -> None:
    play(page, tmp_path, shorter=False)


def test_a_sweep_whose_processes_are_killed_again_and_again(tmp_path: Path) -> None:
    kill(tmp_path, 48, 10)


@pytest.mark.parametrize("name", BASES)
def test_every_value_in_every_place_of_a_block(name: str) -> None:
    change_values(name, 1)
