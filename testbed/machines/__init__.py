"""One emulated fabric on several machines: the world that a coordinator steers, and the far side that carries out a part of it."""
