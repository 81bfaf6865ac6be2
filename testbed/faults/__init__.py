"""Every kind of fault: what it takes, what it hits, and who keeps what down; both worlds share it. docs/faults.md is the manual."""
