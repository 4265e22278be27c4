"""Shapes: real models' configurations without their weights, served with the engine's dummy loader. TOML beside this module.

Trap: a canary is too small to say anything about a kernel's speed, and the model that could is 65 GB away; or numbers of random weights
end up beside those of the model they imitate. Rule: a shape is a configuration, a quantisation config and a filler tokenizer, with the
source of its numbers; it is called `shape-...` wherever it appears, and only timed where the canaries of its kernels were right.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field

from suites.canaries.quantization import MXFP4_BLOCK, NVFP4_BLOCK, quantization_config
from suites.errors import SuiteError
from suites.kv_cache import KvShape, kv_bytes, kv_shape_from_config
from suites.roofline import LEAST_BYTES, roofline_tok_s
from suites.shapes.tensors import Tensor, tensors_of
from suites.toml_files import SOURCE, SuiteModel, read_toml

PREFIX = "shape-"
TINY = "tiny-"
MAX_MODEL_LEN = 20_480
"""Context that a shape is served with: the standard workloads, and long prompts of a user's own."""

_HERE = Path(__file__).parent
_SPECIAL_IDS = ("pad_token_id", "bos_token_id", "eos_token_id")
_BF16 = 2


class Family(SuiteModel):
    """One file: a model's configuration, the formats it is measured in, and what makes its tiny twin tiny.

    `canaries` are those whose kernels it needs. `layer_pattern` is repeated over the layers. `keep_bf16` maps a format to parts of the
    names of layers that its checkpoints leave in bf16, beside those that every format leaves (routers and the like).
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,40}$")
    formats: tuple[str, ...] = Field(min_length=1)
    canaries: tuple[str, ...] = Field(min_length=1)
    source: str = Field(pattern=SOURCE)
    layer_pattern: tuple[str, ...] = ()
    uncounted: str = ""
    keep_bf16: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    config: dict[str, Any]
    tiny: dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """One family in one weight format, in full size or tiny."""

    family: Family
    weight_format: str
    is_tiny: bool = False

    @property
    def name(self) -> str:
        """`llama-3.1-8b-fp8`; a family's first format goes without saying."""
        ending = "" if self.weight_format == self.family.formats[0] else f"-{self.weight_format}"
        return f"{TINY if self.is_tiny else ''}{self.family.name}{ending}"

    @cached_property
    def config(self) -> dict[str, Any]:
        """`config.json`. The special ids are the filler tokenizer's: the last three."""
        config = {**self.family.config, **(self.family.tiny if self.is_tiny else {}), "dtype": "bfloat16", "torch_dtype": "bfloat16"}
        if self.family.layer_pattern:
            pattern = self.family.layer_pattern
            config["layer_types"] = [pattern[i % len(pattern)] for i in range(config["num_hidden_layers"])]
        first = config["vocab_size"] - len(_SPECIAL_IDS)
        config |= {name: first + i for i, name in enumerate(_SPECIAL_IDS)}
        quantization = quantization_config(self.weight_format, self._unquantised(config))
        return config if quantization is None else {**config, "quantization_config": quantization}

    @property
    def revision(self) -> str:
        """Twelve hex digits of `config.json`: a corrected number is another shape."""
        return hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()[:12]

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every weight of it."""
        return tensors_of(self.config)

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(tensor.values * tensor.copies for tensor in self.tensors)

    @property
    def active_parameters(self) -> int:
        """Number of weights that one token reads."""
        return sum(tensor.values * tensor.read for tensor in self.tensors)

    @property
    def total_bytes(self) -> int:
        """Bytes of all weights in the layout of its checkpoint, scales included. An engine may repack them."""
        return sum(self._bytes(tensor) * tensor.copies for tensor in self.tensors)

    @property
    def active_bytes(self) -> int:
        """Bytes of the weights that one token reads."""
        return sum(self._bytes(tensor) * tensor.read for tensor in self.tensors)

    @property
    def kv(self) -> KvShape:
        """What its KV cache holds."""
        shape = kv_shape_from_config(self.config, self.family.source)
        assert shape is not None, "a family's configuration names every kind of its layers"
        return shape.model_copy(update={"uncounted": self.family.uncounted})

    def kv_bytes_per_token(self, kv_cache_dtype: str = "auto") -> int:
        """Bytes that the KV cache grows by with each further token of a context longer than any sliding window."""
        window = self.kv.sliding_window or 0
        sizes = [kv_bytes(self.kv, tokens, kv_cache_dtype) for tokens in (window, window + 1)]
        if sizes[0] is None or sizes[1] is None:
            raise ValueError(f"the size of a KV cache of type {kv_cache_dtype[:40]!r} is not known")
        return sizes[1] - sizes[0]

    def roofline_tok_s(self, bandwidth_bytes_s: float, context: int = 0) -> float:
        """Ceiling of decode at batch 1 with `context` tokens in a 16-bit KV cache."""
        return roofline_tok_s(self.active_bytes + (kv_bytes(self.kv, context) or 0), bandwidth_bytes_s)

    @property
    def launch_bound(self) -> bool:
        """Too small for its speed to be that of memory."""
        return self.active_bytes < LEAST_BYTES

    def _unquantised(self, config: dict[str, Any]) -> list[str]:
        return [tensor.name for tensor in tensors_of(config) if tensor.linear and not self._is_quantised(tensor)]

    def _is_quantised(self, tensor: Tensor) -> bool:
        kept = self.family.keep_bf16.get(self.weight_format, ())
        return self.weight_format != "bf16" and tensor.quantisable and not any(part in tensor.name for part in kept)

    def _bytes(self, tensor: Tensor) -> int:
        """Bytes of one copy, by the layouts of `suites.canaries.formats`."""
        if not self._is_quantised(tensor):
            return tensor.values * _BF16
        rows = tensor.size[0]
        match self.weight_format:
            case "fp8":
                return tensor.values + rows * _BF16
            case "nvfp4":
                return tensor.values // 2 + tensor.values // NVFP4_BLOCK + 8  # two float32: scales of the weight and of its input
            case "mxfp4":
                return tensor.values // 2 + tensor.values // MXFP4_BLOCK
        raise ValueError(f"{self.name}: the size of weight format {self.weight_format} is not known here")


@lru_cache(maxsize=1)
def all_shapes() -> dict[str, Shape]:
    """Every shape by name, full sizes first. Raises SuiteError for a file that cannot be used."""
    families = [read_toml(path, Family) for path in sorted(_HERE.glob("*.toml"))]
    shapes = [Shape(family, form, tiny) for tiny in (False, True) for family in families for form in family.formats]
    return {shape.name: shape for shape in shapes}


def shape_for(name: str) -> Shape:
    """The shape called `name`, with or without `shape-`. Raises SuiteError naming those that exist."""
    shapes = all_shapes()
    found = shapes.get(name.removeprefix(PREFIX))
    if found is None:
        raise SuiteError(f"there is no shape {name[:80]!r}.", todo=f"Known: {', '.join(shapes)}.")
    return found
