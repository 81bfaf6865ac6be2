"""Long runs, by `make soak` only: as the emulated tests, they need root and the sandbox."""

from __future__ import annotations

from tests.emulated.conftest import pytest_collection_modifyitems, pytest_configure

__all__ = ["pytest_collection_modifyitems", "pytest_configure"]
