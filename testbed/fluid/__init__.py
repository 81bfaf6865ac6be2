"""A cluster without packets: which links are up, the rates that flows then have, and what a failure loses.

``mrcbed fluid`` asks for clusters that no packet world can hold, ``mrcbed run --world fluid`` carries out scenarios. Everything here is
arithmetic on NumPy arrays in virtual time: no process, no socket, no clock of the machine. Random generators are arguments.
"""
