"""Which controls there are for a failed boot, in the order of their use, and the cell that each of them boots.

Trap: "the same with another backend" silently changes three things: Marlin for experts, Marlin for linear layers and the default attention.
Rule: of a backend's settings only those of one kernel slot are taken, in the failed version's own spelling, and everything else of the
failed boot stays. A slot that the model does not have (experts in a dense model), or that the node cannot choose, has no control.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runners.diagnose.evidence import Evidence
from runners.diagnose.planner import Control, Family
from runners.engines.base import UNKNOWN
from runners.engines.kernels import agrees, family
from runners.plan import Cell
from runners.spec import EngineSpec
from suites.backends import Backend, Expressed, Expression, backend_for, express, load_all

REFERENCE_ENGINE = EngineSpec("transformers", "5.19.0")
REFERENCE_MOST_BYTES = 4 << 30
"""Weights up to this size are worth computing without an engine; beyond it a reference takes longer than all other controls."""

_SLOT_FLAGS: Mapping[Family, frozenset[str]] = {
    Family.MOE: frozenset({"--moe-backend", "--moe-runner-backend", "VLLM_MXFP4_USE_MARLIN"}),
    Family.LINEAR: frozenset(
        {
            "--linear-backend",
            "--fp4-gemm-backend",
            "VLLM_NVFP4_GEMM_BACKEND",
            "VLLM_USE_NVFP4_CT_EMULATIONS",
            "SGLANG_FLASHINFER_FP4_GEMM_BACKEND",
        }
    ),
    Family.ATTENTION: frozenset({"--attention-backend", "VLLM_ATTENTION_BACKEND"}),
}
"""Flags and variables that choose the kernel of one slot, over all versions of both engines."""
_CANDIDATES: Mapping[Family, tuple[str, ...]] = {
    Family.MOE: ("marlin", "triton", "cutlass", "flashinfer_cutlass", "emulation"),
    Family.LINEAR: ("marlin", "cutlass", "flashinfer_cutlass", "emulation"),
    Family.ATTENTION: ("TRITON_ATTN", "FLASHINFER", "FLASH_ATTN"),
}
"""Backends to take the other kernel from: what field reports found correct first."""
_ONE_SEQUENCE = {"vllm": ("--max-num-seqs", "1"), "sglang": ("--max-running-requests", "1")}
_NO_PREFIX_CACHE = {"vllm": ("--no-enable-prefix-caching",), "sglang": ("--disable-radix-cache",)}
_KV_FLAG = "--kv-cache-dtype"
_AUTO = ("", "auto", UNKNOWN)


@dataclass(frozen=True)
class Failed:
    """The failed boot as far as controls depend on it.

    `kernels` is what ran, `configured` what was asked for. `has_experts` and `quantised` describe the model, `weight_bytes` its size (None:
    not known). `proven` says what vouches for the weights. `previous_good` is the newest older release that passed this cell here.
    """

    cell: Cell
    has_cuda: bool
    evidence: Evidence
    kernels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    configured: Mapping[str, str] = dataclasses.field(default_factory=dict)
    has_experts: bool = False
    quantised: bool = False
    weight_bytes: int | None = None
    proven: str | None = None
    previous_good: str | None = None

    def ran(self, slot: str) -> str | None:
        """The kernel family that ran in a slot, else the one asked for; None if neither is known."""
        for source in (self.kernels, self.configured):
            if source.get(slot, UNKNOWN) not in ("", UNKNOWN):
                return family(self.cell.spec.name, slot, source[slot])
        return None


def controls_for(failed: Failed) -> tuple[Control, ...]:
    """Every control of a boot, the one to make first first. An endpoint has none: its server is not ours to change."""
    if failed.cell.spec.distribution == "endpoint" or not isinstance(failed.cell.expressed, Expressed):
        return ()
    kernels = [*_other_kernels(failed, Family.MOE), *_other_kernels(failed, Family.LINEAR)]
    execution = _eager(failed)
    chosen = failed.quantised and not failed.evidence.comes_and_goes and not failed.evidence.alone_right
    first = [*kernels, *execution] if chosen else [*execution, *kernels]
    attention = _other_kernels(failed, Family.ATTENTION)
    cache = [*_no_prefix_cache(failed), *_one_sequence(failed)]
    return (*_kv_auto(failed), *_reference(failed), *first, *attention, *cache, *_previous(failed))


def unchanged() -> Control:
    """The same boot once more."""
    return Control("no-change", Family.UNCHANGED)


def cell_of(cell: Cell, control: Control) -> Cell:
    """The cell of a control: the failed one with one thing changed. Its backend is named after both."""
    if control.family is Family.REFERENCE:
        default = backend_for("default")
        reference = REFERENCE_ENGINE
        return dataclasses.replace(
            cell, spec=reference, backend=default, expressed=express(default, reference.name, reference.version or "")
        )
    if control.version is not None:
        spec = dataclasses.replace(cell.spec, version=control.version)
        return dataclasses.replace(cell, spec=spec, expressed=express(cell.backend, spec.name, control.version))
    assert isinstance(cell.expressed, Expressed)
    if control.family is Family.UNCHANGED:
        return cell
    changed = Expressed(
        arguments=with_flags(cell.expressed.arguments, control.arguments),
        environment={**cell.expressed.environment, **dict(control.environment)},
        configured={k: v for k, v in cell.expressed.configured.items() if k not in _slots_of(control.family)},
    )
    entry = Expression(arguments=changed.arguments, environment=dict(changed.environment), kernels=dict(changed.configured))
    backend = Backend(
        name=f"{cell.backend.name}+{control.name}"[:96],
        description=f"Control: {cell.backend.name} with {control.name}.",
        engines={cell.spec.name: (entry,)},
    )
    return dataclasses.replace(cell, backend=backend, expressed=changed)


def with_flags(arguments: Sequence[str], changes: Sequence[str]) -> tuple[str, ...]:
    """`arguments` with the flags of `changes` set to their new values; a flag that was there before is there once, with the new one."""
    new = {name for name, _ in _flags(changes)}
    kept = [part for name, parts in _flags(arguments) if name not in new for part in parts]
    return (*kept, *changes)


def _flags(arguments: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """(flag, the flag with its values) in order."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for part in arguments:
        if part.startswith("--") or not found:
            found.append((part.partition("=")[0], (part,)))
        else:
            found[-1] = (found[-1][0], (*found[-1][1], part))
    return found


def _slots_of(changed: Family) -> tuple[str, ...]:
    return {
        Family.MOE: ("moe", "moe_experts"),
        Family.LINEAR: ("linear", "nvfp4_linear", "fp8_linear"),
        Family.ATTENTION: ("attention",),
        Family.KV_DTYPE: ("kv_cache_dtype",),
        Family.EXECUTION: ("graph_mode", "graph_decode", "graph_prefill"),
    }.get(changed, ())


def _other_kernels(failed: Failed, slot: Family) -> list[Control]:
    """Controls of one slot in the order of `_CANDIDATES`, without the kernel that failed. Kernels can be chosen on a GPU only."""
    wanted = {Family.MOE: failed.has_experts, Family.LINEAR: failed.quantised}.get(slot, True)
    if not failed.has_cuda or not wanted:
        return []
    engine, version = failed.cell.spec.name, failed.cell.spec.version or ""
    suspect = failed.ran(slot)
    found: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], Control] = {}
    for name in _CANDIDATES[slot]:
        expressed = express(load_all()[name], engine, version)
        if not isinstance(expressed, Expressed) or _is_suspect(engine, slot, expressed.configured, suspect):
            continue
        arguments = tuple(part for flag, parts in _flags(expressed.arguments) if flag in _SLOT_FLAGS[slot] for part in parts)
        environment = tuple((k, v) for k, v in sorted(expressed.environment.items()) if k in _SLOT_FLAGS[slot])
        if arguments or environment:
            instead = (*_pairs(arguments), *(f"{k}={v}" for k, v in environment))
            control = Control(f"{slot}={name}", slot, suspect or UNKNOWN, arguments, environment, use_instead=instead)
            found.setdefault((arguments, environment), control)
    return list(found.values())


def _is_suspect(engine: str, slot: Family, configured: Mapping[str, str], suspect: str | None) -> bool:
    kernel = next((configured[name] for name in _slots_of(slot) if name in configured), None)
    return suspect is not None and kernel is not None and agrees(engine, slot, kernel, suspect) is True


def _pairs(arguments: Sequence[str]) -> tuple[str, ...]:
    return tuple(" ".join(parts) for _, parts in _flags(arguments))


def _eager(failed: Failed) -> list[Control]:
    """No graphs and no compilation, unless that is how it failed."""
    engine, version = failed.cell.spec.name, failed.cell.spec.version or ""
    expressed = express(load_all()["eager"], engine, version)
    before = failed.cell.expressed
    if not isinstance(expressed, Expressed) or not isinstance(before, Expressed) or failed.ran("graph_mode") == "eager":
        return []
    given = {*before.arguments, *failed.cell.recipe.arguments.get(engine, ())}
    if set(expressed.arguments) <= given:
        return []
    what = "cuda_graphs" if failed.has_cuda else "compilation"
    return [Control("eager", Family.EXECUTION, what, expressed.arguments, use_instead=_pairs(expressed.arguments))]


def _kv_auto(failed: Failed) -> list[Control]:
    """The KV cache in the model's own type, if another one was asked for."""
    expressed = failed.cell.expressed
    assert isinstance(expressed, Expressed)
    arguments = (*failed.cell.recipe.arguments.get(failed.cell.spec.name, ()), *expressed.arguments)
    chosen = next((parts for flag, parts in reversed(_flags(arguments)) if flag == _KV_FLAG), ())
    dtype = chosen[-1].rpartition("=")[2] if chosen else ""
    if dtype in _AUTO:
        return []
    return [Control("kv-cache-dtype=auto", Family.KV_DTYPE, dtype, (_KV_FLAG, "auto"), use_instead=(f"{_KV_FLAG} auto",))]


def _no_prefix_cache(failed: Failed) -> list[Control]:
    arguments = _NO_PREFIX_CACHE.get(failed.cell.spec.name)
    if arguments is None or _given(failed, arguments):
        return []
    return [Control("no-prefix-cache", Family.PREFIX_CACHE, "prefix_cache", arguments, use_instead=_pairs(arguments))]


def _one_sequence(failed: Failed) -> list[Control]:
    arguments = _ONE_SEQUENCE.get(failed.cell.spec.name)
    if arguments is None or _given(failed, arguments):
        return []
    return [Control("one-sequence", Family.CONCURRENCY, "batch", arguments, use_instead=_pairs(arguments))]


def _given(failed: Failed, arguments: tuple[str, ...]) -> bool:
    expressed = failed.cell.expressed
    assert isinstance(expressed, Expressed)
    return {parts for _, parts in _flags(arguments)} <= {parts for _, parts in _flags(expressed.arguments)}


def _reference(failed: Failed) -> list[Control]:
    """The same weights without an engine, where nothing vouches for them yet and they are small enough."""
    if failed.proven is not None or failed.weight_bytes is None or failed.weight_bytes > REFERENCE_MOST_BYTES:
        return []
    return [Control("transformers", Family.REFERENCE)]


def _previous(failed: Failed) -> list[Control]:
    version, spec = failed.previous_good, failed.cell.spec
    if version is None or spec.distribution != "venv" or spec.target:
        return []
    instead = (str(dataclasses.replace(spec, version=version)),)
    suspect = f"{spec.version}, last good {version}"
    return [Control(str(dataclasses.replace(spec, version=version)), Family.VERSION, suspect, version=version, use_instead=instead)]
