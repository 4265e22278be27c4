"""How much context really works: not what was configured, but what is still recalled, and what it costs."""
