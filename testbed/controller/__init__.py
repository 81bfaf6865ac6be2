"""The Ryu controller (docs/why/controller.md), in a process of its own. It never re-routes and no
packet depends on it."""
