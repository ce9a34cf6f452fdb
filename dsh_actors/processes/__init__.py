"""Processes of the machine: which one is meant, what belongs to it, and how it is ended."""
