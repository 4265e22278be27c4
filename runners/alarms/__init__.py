"""Telling somebody, once, that something confirmed broke, slowed down or was fixed, or that the night itself failed."""
