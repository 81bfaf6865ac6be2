"""Congestion control: how much a QP may have in flight, one file per algorithm.

``base.py`` defines the inputs and the output of an algorithm. A third party's algorithm is one file with one class of that shape, in any
importable module: the option ``congestion = "module:Class"`` names it.
"""
