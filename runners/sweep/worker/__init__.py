"""Scripts that run inside an engine's own Python. They import one another by file name and nothing of this project: see `worker.py`."""
