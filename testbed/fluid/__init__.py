"""A cluster without packets: which links are up, the rates that flows then have, and what a failure loses.

``mrcbed fabric fluid`` asks for clusters that no packet world can hold. Everything is arithmetic on NumPy arrays. Random generators are
arguments.
"""
