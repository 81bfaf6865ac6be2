"""``mrcbed validate``: the same scenarios in both worlds, beside theory, and a cause wherever they part.

``cases`` is the registry; ``observed`` reads a world's results, ``expected`` says what theory does, ``agreement`` holds them against each
other, ``causes`` knows why some part, ``page`` shows it. docs/fidelity.md is the manual.
"""
