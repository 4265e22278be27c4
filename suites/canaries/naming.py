"""Which tensors of a canary lie on the universal grid, by name alone.

The trap: two places that each decide which layers are quantised, and differ by one. The rule: training, packing and every writer of a
format ask here. On the grid is every linear weight inside a layer, except the small ones that quantised checkpoints of these families
leave in bf16: routers (``mlp.gate``, ``mlp.router``) and the per-head projections of linear attention (``in_proj_a``, ``in_proj_b``).
"""

from __future__ import annotations

import re

_GRID_NAME = re.compile(r"\.layers\.\d{1,3}\..{1,80}(?:_proj|\.in_proj_qkv|\.in_proj_z)(?:\.weight)?$")


def on_grid(name: str) -> bool:
    """True for linear weights inside a layer that quantised formats store in their own way."""
    return _GRID_NAME.search(name) is not None
