"""The MRC paper's claims (arXiv 2605.04333) on this testbed: what the paper says, what the testbed shows, and whether they agree.

claims.toml has the claims by number. figures.toml has the reproduced figures: scenarios, and statements with their numbers and conditions.
``statement`` judges them; functions in modules by group of figures give numbers that are more than a median.
"""
