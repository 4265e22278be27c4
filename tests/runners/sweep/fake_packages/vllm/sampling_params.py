"""Stands for vllm.sampling_params."""


class RequestOutputKind:
    """Two of its three values."""

    DELTA = "delta"
    FINAL_ONLY = "final"
