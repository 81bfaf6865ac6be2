"""Shapes as pure data: multi-plane Clos fabrics, their addresses, paths and what theory allows. It
imports nothing else of ours."""

from topologies.clos import Fabric, FabricError, Link, Port
from topologies.fabrics import load_fabric, named_fabrics

__all__ = ["Fabric", "FabricError", "Link", "Port", "load_fabric", "named_fabrics"]
