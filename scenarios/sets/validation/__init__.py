"""``mrcbed validate``: the same scenarios in both worlds, compared with theory, and a cause for every difference.

``observed`` reads a world's results, ``expected`` computes theory, ``agreement`` compares them, ``causes`` lists known causes.
docs/why/fidelity.md is the manual.
"""
