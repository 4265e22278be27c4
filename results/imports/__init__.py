"""Bringing results of other nodes and numbers of other tools into this store.

Trap: somebody else's number, measured by another formula, slides into a history as if it had been measured here. Rule: boots come in as
boot folders with everything they left, by run id, once; numbers of other tools come in as claims, which no verdict reads.
"""
