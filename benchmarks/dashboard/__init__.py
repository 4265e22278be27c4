"""How long a person waits: first paint and answers to clicks, in a real browser, over a large store."""
