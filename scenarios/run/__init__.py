"""Runs: carries out a scenario in either world and writes its records."""
