"""Between which two releases something changed, in log2 steps over releases that were really published.

Trap: a bisect that counts "could not be installed" as bad names an innocent release. Rule: a release that cannot be tested is stepped
around, and the answer is the honest range.
"""
