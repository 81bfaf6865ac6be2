"""The algorithm that the option ``congestion`` names."""

from __future__ import annotations

import importlib

from agents.mrc.config import Config
from agents.mrc.congestion.base import Congestion
from agents.mrc.congestion.fixed import FixedWindow
from agents.mrc.congestion.nscc import Nscc


def make_congestion(config: Config, path_rtt: int) -> Congestion:
    """A new QP's: "nscc", "fixed", or "module:Class" for anybody's own. Raises ValueError, one line."""
    name = config.congestion
    if name == "nscc":
        return Nscc(config, path_rtt)
    if name == "fixed":
        return FixedWindow(config, path_rtt)
    module, colon, kind = name.partition(":")
    if not colon:
        raise ValueError(f"transport mrc: congestion = {name!r}: there are nscc and fixed, or write module:Class for your own")
    try:
        own = getattr(importlib.import_module(module), kind)
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # the last two: a relative or an empty module name
        raise ValueError(f"transport mrc: congestion = {name!r}: {error}") from None
    if not isinstance(own, type) or not issubclass(own, Congestion):
        raise ValueError(f"transport mrc: congestion = {name!r} is no agents.mrc.congestion.base.Congestion")
    return own(config, path_rtt)
