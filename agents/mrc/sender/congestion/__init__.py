"""How much a QP may have in flight: one file per algorithm.

``base.py`` says what an algorithm is told and what it answers. A third party's own is one file with one class of that shape, in any
importable module: the option ``congestion = "module:Class"`` names it.
"""
