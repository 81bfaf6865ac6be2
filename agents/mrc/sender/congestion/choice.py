"""Finds the algorithm that the option ``congestion`` names."""

from __future__ import annotations

import importlib

from agents.mrc.config import Config
from agents.mrc.sender.congestion.base import Congestion
from agents.mrc.sender.congestion.fixed import FixedWindow
from agents.mrc.sender.congestion.nscc import Nscc


def congestion_class(config: Config) -> type[Congestion]:
    """Raises ValueError, one line. Called when an endpoint is made: a scenario's mistake shows when
    the file is read, and root is not yet dropped."""
    name = config.congestion
    if name == "nscc":
        return Nscc
    if name == "fixed":
        return FixedWindow
    module, colon, kind = name.partition(":")
    if not colon:
        raise ValueError(
            f"transport mrc: congestion = {name!r}: there are nscc and fixed, or write "
            "module:Class for your own"
        )
    try:
        own = getattr(importlib.import_module(module), kind)
    except Exception as error:  # whatever somebody's module raises
        raise ValueError(f"transport mrc: congestion = {name!r}: {error}") from None
    if not isinstance(own, type) or not issubclass(own, Congestion):
        raise ValueError(
            f"transport mrc: congestion = {name!r} is no "
            "agents.mrc.sender.congestion.base.Congestion"
        )
    return own
