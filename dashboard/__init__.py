"""What is seen: Streamlit pages over `results/` only. No page exists yet; `sparkproof runs` and `show` read the same store."""
