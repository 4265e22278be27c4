"""A model that a package of the index carries as one GGUF file, dequantised to a bf16 checkpoint once.

Trap: a conversion that was interrupted is served, or the conversion's torch gets into an engine's environment. Rule: the converter has an
environment of its own, writes into a temporary folder, and the folder gets its name only when it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from runners.envs.command import run_command
from runners.envs.environment import ensure_tool
from runners.errors import InfrastructureError

_SCRIPT = Path(__file__).parent / "envs" / "gguf_convert.py"
_TIMEOUT_S = 1800.0


def dequantised(package: str, cache_root: Path, progress: Callable[[str], None]) -> Path:
    """The checkpoint folder made from the GGUF file that `package` carries. Raises InstallFailed or InfrastructureError."""
    target = cache_root / "models" / package
    if (target / "config.json").exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if (target / "config.json").exists():
            return target
        tool = ensure_tool("gguf-converter", extra=(package,), progress=progress, cache_root=cache_root)
        progress(f"dequantising the GGUF of {package} to bf16")
        done = run_command(
            [str(tool.python), str(_SCRIPT), package, str(target)],
            environment={**os.environ, "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"},
            folder=target.parent,
            timeout_s=_TIMEOUT_S,
            on_message=progress,
        )
    if done.returncode != 0 or not (target / "config.json").exists():
        said = " ".join(done.messages[-3:])[:600]
        raise InfrastructureError(f"the GGUF of {package} could not be dequantised: {said}", where=str(target))
    return target
