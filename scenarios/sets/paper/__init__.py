"""The MRC paper's claims (arXiv 2605.04333) on this testbed: what the paper says, what the testbed shows, and whether they agree.

``registry`` has the claims by number, ``figures`` the paper's figures that are reproduced. The modules beside it hold a group of figures
each: statements under the claims' numbers, the scenarios to run, and a pure function from their summaries to rows of verdicts. ``series``
runs them and gathers the evidence for each claim, ``page`` shows it.
"""
