"""Will it fit? Arithmetic before a boot, from what is known.

Traps: a boot that cannot fit takes ten minutes to die, or takes the whole node with it (on a GB10, memory that the driver cannot get has
wedged the host, NVIDIA/open-gpu-kernel-modules#1358); and a guess refuses a model that fits. Rules: every term is a lower bound and is
shown; only a sum of known terms refuses; what is not known is named and never stands in as a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from suites.kv_cache import KvShape, kv_bytes
from suites.recipes import Recipe

GB10_TOTAL_BYTES = int(121.69 * 2**30)
"""What the operating system of a GB10 sees of its 128 GB."""
USABLE_SHARE = 0.88
"""Largest share of a GB10's memory that reports call workable for an engine (0.80-0.88; vllm-project/recipes#632 uses 0.85, vLLM's default
of 0.92 does not start with large models). Newer kernels cap near 102 of 121.69 GiB (MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#47)."""
TIGHT_SHARE = 0.80
"""Share above which a boot is allowed with a warning."""
NOTICED_SHARE = 0.25
"""Share of the usable memory below which what is not known about a model's needs is no news: a small model would warn at every boot."""
_ESTIMATE_FACTOR = 2.0
"""An `about` size refuses only if even half of it does not fit."""

Verdict = Literal["fits", "tight", "does_not_fit", "unknown"]


@dataclass(frozen=True)
class Fit:
    """`needed_bytes` sums what is known (a lower bound), `usable_bytes` is what the node can give; `sentence` shows the arithmetic."""

    verdict: Verdict
    needed_bytes: int
    usable_bytes: int
    unknown: tuple[str, ...]
    sentence: str

    @property
    def refused(self) -> bool:
        """Whether the boot must not start."""
        return self.verdict == "does_not_fit"

    @property
    def worth_a_warning(self) -> bool:
        """Whether a boot should say it: not that it fits, and not that a model which is small in any case might not.

        A node of unknown size counts as a GB10.
        """
        usable = self.usable_bytes or USABLE_SHARE * GB10_TOTAL_BYTES
        return self.verdict != "fits" and self.needed_bytes >= NOTICED_SHARE * usable


def memory_fit(
    recipe: Recipe,
    node_bytes: int | None,
    *,
    max_model_len: int | None = None,
    kv_cache_dtype: str = "auto",
    weight_bytes: int | None = None,
    kv: KvShape | None = None,
    overhead_bytes: int | None = None,
    usable_share: float = USABLE_SHARE,
) -> Fit:
    """Compare weights + KV cache of one full sequence + overhead with `usable_share` of the node's memory.

    `node_bytes` is MemTotal of a unified-memory node, else the GPU's memory. `weight_bytes` (measured: file sizes) and `kv` (from the
    checkpoint's config) go before what the recipe says. `overhead_bytes` is what earlier boots needed beside both; None: not counted.
    """
    tokens = max_model_len or recipe.max_model_len
    terms: list[str] = []
    unknown: list[str] = []
    weights, estimated = _weights(recipe, weight_bytes, terms, unknown)
    cache = _cache(kv or recipe.kv, tokens, kv_cache_dtype, terms, unknown)
    if overhead_bytes is None:
        unknown.append("what the engine needs beside weights and cache")
    else:
        terms.append(f"{_gib(overhead_bytes)} overhead seen in earlier boots")
    needed = weights + cache + (overhead_bytes or 0)
    if node_bytes is None:
        needed = max(needed, int((recipe.vram_minimum_gb or 0) * 1e9))
        return Fit(
            "unknown", needed, 0, (*unknown, "the memory of the node"), "The memory of this node is not known, so nothing is refused."
        )
    usable = int(node_bytes * usable_share)
    return _judge(recipe, node_bytes, usable, needed, estimated, terms, unknown)


def _weights(recipe: Recipe, measured: int | None, terms: list[str], unknown: list[str]) -> tuple[int, int]:
    """Bytes of weights, and how many of them are only an estimate."""
    if measured is not None:
        terms.append(f"{_gib(measured)} weights (file sizes)")
        return measured, 0
    if recipe.weights is None or recipe.weights.total_bytes is None:
        unknown.append("the size of the weights")
        return 0, 0
    total, bound = recipe.weights.total_bytes, recipe.weights.bound
    terms.append(f"{'' if bound == 'exact' else bound.replace('_', ' ') + ' '}{_gib(total)} weights")
    return total, total if bound == "about" else 0


def _cache(shape: KvShape | None, tokens: int, dtype: str, terms: list[str], unknown: list[str]) -> int:
    size = None if shape is None else kv_bytes(shape, tokens, dtype)
    if shape is None or size is None:
        unknown.append("the size of the KV cache" + ("" if shape is None else f" of type {dtype[:40]}"))
        return 0
    terms.append(f"{_gib(size)} KV cache for one sequence of {tokens:,} tokens ({dtype})")
    if shape.uncounted:
        unknown.append(shape.uncounted)
    return size


def _judge(recipe: Recipe, node: int, usable: int, needed: int, estimated: int, terms: list[str], unknown: list[str]) -> Fit:
    limit = f"{_gib(usable)} usable of {_gib(node)}"
    not_counted = f" Not counted: {'; '.join(unknown)}." if unknown else ""
    asked = recipe.vram_minimum_gb
    if asked is not None and asked * 1e9 > node:
        sentence = f"{recipe.name} does not fit: its recipe asks for {asked:g} GB, this node has {node / 1e9:.1f} GB ({recipe.verified})."
        return Fit("does_not_fit", max(needed, int(asked * 1e9)), usable, tuple(unknown), sentence)
    if asked is not None and not terms:
        sentence = f"{recipe.name} fits: its recipe asks for {asked:g} GB, this node has {node / 1e9:.1f} GB ({recipe.verified})."
        return Fit("fits", int(asked * 1e9), usable, tuple(unknown), sentence)
    if not terms:
        return Fit("unknown", needed, usable, tuple(unknown), f"Whether {recipe.name} fits is not known.{not_counted}")
    arithmetic = " + ".join(terms) + (f" = {_gib(needed)}" if len(terms) > 1 else "")
    if needed - estimated + estimated / _ESTIMATE_FACTOR > usable:
        return Fit("does_not_fit", needed, usable, tuple(unknown), f"{recipe.name} does not fit: {arithmetic}; {limit}.{not_counted}")
    if needed > usable:
        sentence = f"{recipe.name} will hardly fit, by an estimate: {arithmetic}; {limit}.{not_counted}"
        return Fit("unknown", needed, usable, tuple(unknown), sentence)
    if needed > node * TIGHT_SHARE:
        return Fit("tight", needed, usable, tuple(unknown), f"{recipe.name} fits narrowly: {arithmetic}; {limit}.{not_counted}")
    if any(part.startswith("the size of") for part in unknown):
        return Fit("unknown", needed, usable, tuple(unknown), f"{recipe.name}: {arithmetic}; {limit}.{not_counted}")
    return Fit("fits", needed, usable, tuple(unknown), f"{recipe.name} fits: {arithmetic}; {limit}.{not_counted}")


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
