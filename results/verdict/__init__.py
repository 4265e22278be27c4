"""Verdicts between releases of one cell: outcomes as a state machine, numbers by screen and confirm, history by segments.

Trap: a detector that reads noise as news is switched off within a week. Rule: the boot is the unit of evidence, a change is only
told after an interleaved re-run repeated it, and a failure is never a number. Everything here is pure: no database, no files, no clock.
"""
