"""What the suite plays in small: lessons as they are typed, sweeps that lose many processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.lessons.pages import SIMULATED
from tests.scenarios.lessons.test_lessons import play
from tests.scenarios.run.test_dask import Cluster, kill
from tests.scenarios.run.test_dask import cluster as cluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]


@pytest.mark.parametrize("page", SIMULATED, ids=lambda page: page.stem)
def test_a_lesson_is_what_its_page_says(page: Path, tmp_path: Path) -> None:
    play(page, tmp_path, shorter=False)


def test_a_sweep_whose_processes_are_killed_again_and_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    kill(cluster, tmp_path, 48, 10)
