"""Data of the dense canary (Qwen3, 2.9 M parameters). Written by `suites.canaries.pack`; final, never edited."""
