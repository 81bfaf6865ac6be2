"""One emulated fabric on several machines (docs/how/machines.md): the coordinator's world, and the
far side that carries out a part."""
