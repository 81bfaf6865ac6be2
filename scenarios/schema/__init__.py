"""Scenario files: reads and checks them before anything is built."""
