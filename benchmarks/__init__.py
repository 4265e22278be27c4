"""Benchmarks of our own tools; nothing here is installed with the package."""
