"""The Ryu controller: programs every switch's static uN table, hears links fail, keeps the denylist, shows all on a loopback REST view.

Runs in a process of its own (``python -m testbed.controller --config FILE``), started by ``testbed.emulated.cluster``. It never
re-routes and no packet depends on it: tables live in the switches, endpoints recover alone.

    config.py      its configuration                  app.py         the Ryu application
    tables.py      uN tables: program, verify         ryu_base.py    every touch point with Ryu, nothing else
                                                   framework.py    Ryu, or os-ken where Ryu is not installed
    links.py       failed-link map                    southbound/    programs the switches
    steering.py    policies: lists for the agents     agents.py      sends them
    denylist.py    who denied what                    journal.py     what happened, and who follows it
    views.py       pages that show                    rest.py        the others
    owner.py       commands of its owner              client.py      REST from the other side
    __main__.py    the launcher                       ryu_openflow.py  the same for Ryu's OpenFlow (--switch ovs)
"""
