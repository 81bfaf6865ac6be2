"""The Ryu controller: programs every switch's static uN table, hears links fail, shows both on a loopback REST view.

Runs in a process of its own (``python -m testbed.controller --config FILE``), started by ``testbed.cluster``. It never
re-routes and no packet depends on it: tables live in the switches, endpoints recover alone.

    config.py      what it is told                    app.py         the Ryu application
    tables.py      uN tables: program, verify         ryu_base.py    every touch point with Ryu, nothing else
    links.py       failed-link map, journal           southbound/    how switches are spoken to (eBPF maps; OpenFlow later)
    views.py       REST answers as plain data         __main__.py    the launcher
"""
