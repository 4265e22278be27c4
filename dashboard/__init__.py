"""What is seen: Streamlit pages over `results/` only. `views/` are the pages, `grid/` is the table they share."""
