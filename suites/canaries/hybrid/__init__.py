"""Data of the hybrid canary (Qwen3.5 text, 3.9 M parameters, linear attention). Written by `suites.canaries.pack`; final, never edited."""
