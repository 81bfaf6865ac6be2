"""``mrcbed validate``: the same scenarios in both worlds, compared with theory, and a cause for every difference.

``cases`` is the registry; ``observed`` reads a world's results, ``expected`` computes theory, ``agreement`` compares them, ``causes``
lists the known causes of differences, ``page`` shows the result. docs/why/fidelity.md is the manual.
"""
