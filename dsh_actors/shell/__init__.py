"""Runs commands: each in a session of its own, under a keeper, and gone when it has ended."""
