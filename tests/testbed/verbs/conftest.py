from __future__ import annotations

from pathlib import Path

import pytest

from testbed.verbs import build


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library as it is built for programs, of the sources as they are now."""
    folder = tmp_path_factory.mktemp("verbs")
    to = folder / build.BUILT.name
    build.compile_library(to)
    return to
