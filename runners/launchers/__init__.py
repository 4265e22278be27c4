"""How a server gets onto the node besides a virtual environment: a container image, or an endpoint that already runs.

All of them become a `runners.serving.Serving`, so that the pipeline treats them alike.
"""
