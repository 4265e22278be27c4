"""Known good references that ship with Sparkproof: scores of fixed texts by our canaries, one JSON file each.

Trap: a canary's golden tokens are certain to 16 nats, and text of certain tokens hides a drift. Rule: the prompts, which the canary never
learned, are scored with the same exact roundings of each numeric path as the margins (`suites.canaries.measure_paths`); nothing in these
files comes from an engine.
"""
