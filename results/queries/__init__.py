"""Questions that pages and commands ask the store, each with its SQL and its parameters."""
