"""Carries out scenarios in either world and writes their records."""
