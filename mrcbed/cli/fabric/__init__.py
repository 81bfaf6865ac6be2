"""Commands that ask a running fabric, and those that need only its file."""
