"""Does the verdict rule cry wolf, and does it see what it should? Our rule and its peers on data whose truth is known.

Run `python -m benchmarks.verdict --data FILE [--json]` on any file of the shape of `data/unchanged_binary_nights.json` (see nights.py).
"""
