"""The MRC paper's claims (arXiv 2605.04333) on this testbed: what the paper says, what the testbed shows, and whether they agree.

claims.toml has the claims by number, figures.toml the paper's figures that are reproduced: the scenarios to run, and statements under the
claims' numbers. The modules beside them hold, for a group of figures each, pure functions from summaries to what was measured for each
statement; ``figures`` puts text and functions together, ``claims`` makes rows of verdicts of them. ``series`` runs the figures and gathers
the evidence for each claim, ``page`` shows it.
"""
