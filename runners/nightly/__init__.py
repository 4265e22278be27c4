"""What a node does by itself each night: find new releases, measure what is missing, and say what broke."""
