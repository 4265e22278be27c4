"""The machine a boot runs on: what it is, how much memory it has left, and who may measure on it now."""
