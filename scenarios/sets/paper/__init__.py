"""The MRC paper's figures (arXiv 2605.04333) on this testbed: what the paper says, what the testbed shows, and whether they agree.

``figures`` is the registry; the modules beside it hold a group of figures each: claims with their source, the scenarios to run and a pure
function from their summaries to rows of verdicts. ``series`` runs them, ``page`` shows them. Claims depend on their sources: the paper
itself was not available, so each claim says whether its words are the paper's, as public readings quote them, or only its content.
"""
