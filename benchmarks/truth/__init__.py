"""How right our numbers are: a server that knows what it sent, and what Sparkproof and its peers say about it."""
