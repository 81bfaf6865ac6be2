"""Southbounds: each programs one kind of switch. The application knows only ``base.Southbound``."""
