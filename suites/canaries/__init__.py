"""Canaries: tiny models that have memorised a fixed corpus, so that an engine running one correctly gives exact token ids."""
