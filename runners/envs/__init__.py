"""From an engine spec to an isolated environment: versions on the index, install recipes, uv, and what was really installed."""
