"""Reads scenario files and checks them before anything is built."""
