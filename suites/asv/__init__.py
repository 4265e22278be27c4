"""The asv suite: real boots of an engine release, driven by `asv run`."""
