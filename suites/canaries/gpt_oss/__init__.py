"""Data of the gpt-oss canary (7.6 M parameters, sinks, windows, 8 experts). Written by `suites.canaries.pack`; final, never edited."""
