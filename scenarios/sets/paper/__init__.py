"""The MRC paper's claims (arXiv 2605.04333) on this testbed: what the paper says, what the testbed
shows, and whether they agree.

claims.toml has the claims, figures.toml the reproduced figures: scenarios, and statements with
numbers and conditions. ``statement`` judges them.
"""
