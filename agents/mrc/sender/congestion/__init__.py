"""Congestion control: how much a QP may have in flight, one file per algorithm.

The option ``congestion = "module:Class"`` names an algorithm of your own, a subclass of
``base.Congestion``.
"""
