"""What differs between two wheel sets.

Trap: "we only changed vLLM" while torch, FlashInfer and forty others came along. Rule: every package that differs is a row, the engine's
own and those that bring kernels first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_KERNELS = ("vllm", "sglang", "torch", "triton", "flashinfer", "sgl-kernel", "nvidia", "xgrammar", "transformers", "compressed-tensors")


@dataclass(frozen=True)
class WheelChange:
    """One package: its version on both sides; None where it is not there."""

    name: str
    before: str | None
    after: str | None


def wheel_changes(before: Iterable[str], after: Iterable[str]) -> tuple[WheelChange, ...]:
    """Packages (`name==version`) that differ: those that bring kernels first, then by name."""
    old, new = _versions(before), _versions(after)
    changed = [WheelChange(name, old.get(name), new.get(name)) for name in old.keys() | new.keys() if old.get(name) != new.get(name)]
    return tuple(sorted(changed, key=lambda change: (_rank(change.name), change.name)))


def _versions(wheels: Iterable[str]) -> dict[str, str]:
    return {name.strip().lower(): version.strip() for name, _, version in (wheel.partition("==") for wheel in wheels)}


def _rank(name: str) -> int:
    return next((rank for rank, start in enumerate(_KERNELS) if name.startswith(start)), len(_KERNELS))
