"""How long it takes to plan a large session."""
