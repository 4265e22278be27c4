"""Data of the MoE canary (Qwen3-MoE, 7.6 M parameters, 8 experts, top-2). Written by `suites.canaries.pack`; final, never edited."""
