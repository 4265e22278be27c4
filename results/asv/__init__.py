"""The history as asv knows it: a generated repository with one commit per release, and result files.

Trap: asv's step detector knows only "up is worse", reads the repository's order as time, and drops silently what does not fit its format.
Rule: numbers are exported as seconds per token, failures as 0/1, releases as commits in their own order; everything here is derived from
the store and made anew each time.
"""
