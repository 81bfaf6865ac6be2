"""Every kind of fault: its parameters, its effects, and the holders that keep things down
(docs/how/faults.md). Both worlds share it."""
