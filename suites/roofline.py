"""The ceiling that memory puts on decode: what one token reads, over what the memory gives.

Trap: a rate is called fast or slow by feeling; or a model that fits into a cache is compared with the memory's bandwidth and looks better
than physics. Rule: bytes per token and bandwidth are stated with their source, and below `LEAST_BYTES` there is no ceiling to speak of.
"""

from __future__ import annotations

GB10_BANDWIDTH_BYTES_S = 273e9
"""Nominal memory bandwidth of a GB10 (128 GB LPDDR5X): what decode at batch 1 is limited by."""

LEAST_BYTES = 256 << 20
"""Weights of fewer bytes may be read from a cache in part. The node's probe reads at least as much (`runners/node/probe.py`)."""


def roofline_tok_s(bytes_per_token: float, bandwidth_bytes_s: float = GB10_BANDWIDTH_BYTES_S) -> float:
    """Ceiling of decode at batch 1 in tokens/s: every token reads its active weights, and its KV cache, once: bandwidth / bytes.

    Given the weights alone it is the ceiling of an empty context. A rate above it, without speculative decoding, means that fewer bytes
    were read than assumed: find out why before believing it.
    """
    if not bytes_per_token > 0 or not bandwidth_bytes_s > 0:
        raise ValueError(f"bytes per token and bandwidth must be positive, not {bytes_per_token!r} and {bandwidth_bytes_s!r}")
    return bandwidth_bytes_s / bytes_per_token
