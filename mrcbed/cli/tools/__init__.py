"""Commands for this machine and for editors and shells."""
