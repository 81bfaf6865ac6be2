"""Reads a file of results as a Struct, or raises :class:`ResultsError`, one line: *damaged: KEY in
FILE*."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from testbed.errors import UserError, first_line
from topologies.files import MOST_JSON, FileError, content, parse_json, typed

T = TypeVar("T")
AGAIN = "take it from a copy, or run the scenario again"


class ResultsError(UserError):
    """Results cannot be read. The message is one line with the file and the fix."""


@contextmanager
def believing(directory: Path) -> Iterator[None]:
    """Guards code that uses results. Each value was checked by itself: where they do not fit
    together, it raises :class:`ResultsError`."""
    try:
        yield
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        if hasattr(error, "exit_status") or os.environ.get("MRCBED_DEBUG"):
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        what = (
            f"{type(error).__name__}: {first_line(error)[:200]}, "
            f"{Path(frame.filename).name}:{frame.lineno}"
        )
        raise ResultsError(
            f"damaged: files in {directory} do not fit together, or mrcbed has a fault ({what}): "
            f"{AGAIN}"
        ) from error


def read_plain(path: Path, kind: type[T], fix: str = AGAIN) -> dict[str, Any]:
    return dict(_checked(path, kind, fix)[1])


def read(path: Path, kind: type[T], fix: str = AGAIN) -> T:
    """Raises :class:`ResultsError`, which names the file."""
    return _checked(path, kind, fix)[0]


def _checked(path: Path, kind: type[T], fix: str) -> tuple[T, Any]:
    try:
        data = parse_json(content(path, MOST_JSON), path)
        return typed(data, kind, path), data
    except FileNotFoundError:
        raise ResultsError(
            f"{path.parent} holds no results (no {path.name}): give a directory that mrcbed run "
            "wrote"
        ) from None
    except FileError as error:
        raise ResultsError(f"{error}: {fix}") from None
    except OSError as error:
        raise ResultsError(f"{path} cannot be read ({error}): {fix}") from None
