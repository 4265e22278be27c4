"""Which weight formats are refused before anything starts."""

from __future__ import annotations

import pytest

from suites.format_support import cannot_run


@pytest.mark.parametrize(
    ("engine", "weight_format", "cuda", "capability", "refused"),
    [
        ("vllm", "bf16", False, None, False),
        ("vllm", "int4", False, None, False),
        ("vllm", "fp8", False, None, True),
        ("vllm", "nvfp4", False, None, True),
        ("vllm", "nvfp4", True, "12.1", False),
        ("vllm", "nvfp4", True, "9.0", False),
        ("vllm", "int4", True, "7.5", True),
        ("vllm", "bf16", True, "7.5", False),
        ("vllm", "nvfp4", True, None, False),
        ("sglang", "int4", False, None, True),
        ("sglang", "nvfp4", True, "9.0", False),
        ("sglang", "nvfp4a16", True, "12.1", False),
        ("an-engine-nobody-read", "nvfp4", True, "12.1", False),
    ],
)
def test_only_what_is_known_not_to_run_is_refused(
    engine: str, weight_format: str, cuda: bool, capability: str | None, refused: bool
) -> None:
    reason = cannot_run(engine, weight_format, has_cuda=cuda, compute_capability=capability)
    assert (reason is not None) is refused
    if reason is not None:
        assert reason.startswith(f"{weight_format}: ") and reason.endswith(".")
