"""Every kind of fault: its parameters, its effects, and the holders that keep things down; both worlds share it. docs/how/faults.md is the
manual."""
