"""Commands on what a run left behind, or writes."""
