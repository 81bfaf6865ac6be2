"""The Ryu controller: programs every switch's static uN table, hears links fail, keeps the denylist, shows all on a loopback REST view.

Runs in a process of its own (``python -m testbed.controller --config FILE``). It never re-routes and no packet depends on it: tables live
in the switches, endpoints recover alone.
"""
