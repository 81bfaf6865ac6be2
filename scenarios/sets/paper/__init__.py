"""The MRC paper's claims (arXiv 2605.04333) on this testbed: what the paper says, what the testbed shows, and whether they agree.

claims.toml has the claims by number, figures.toml the paper's figures that are reproduced: the scenarios to run, and statements under the
claims' numbers, with the numbers that each asks for and the condition for its verdict. ``statement`` judges them; where a number is more
than a median, a pure function gives it, in the modules that have a group of figures each. ``series`` runs the figures and gathers the
evidence for each claim, ``page`` shows it.
"""
