"""``mrcbed validate``: the same scenarios in both worlds, compared with theory, and a cause for
every difference. docs/why/fidelity.md is the manual."""
