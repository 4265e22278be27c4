"""transformers: the reference without any engine, served by our own small server (`runners/sweep/worker/`).

Trap: a checkpoint that is itself broken makes every backend of every engine fail, and each of them is suspected in turn. Rule: the same
weights are computed once more by the library that defines the architecture, in float32 (bfloat16 where layers are quantised), and judged
like any other server. Slow on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runners.engines.base import HttpRequest, Identity, ServeCommand, ServeRequest
from runners.engines.identity import read_identity
from runners.engines.launch import command
from runners.engines.vllm import VllmAdapter

WORKER = Path(__file__).parents[1] / "sweep" / "worker" / "worker.py"


class TransformersAdapter(VllmAdapter):
    """See `EngineAdapter`. The worker answers in vLLM's dialect."""

    name = "transformers"

    def serve_command(self, python: Path, version: str, request: ServeRequest) -> ServeCommand:
        """The worker with the checkpoint; a reference has no kernels to choose, so a backend's arguments say nothing to it."""
        argv: tuple[str, ...] = (str(python), str(WORKER), "serve", "--engine", "transformers", "--model", request.model_path)
        argv += ("--served-model-name", request.served_name, "--host", request.host, "--port", str(request.port))
        return command(argv, request, {})

    def info_requests(self, version: str) -> Sequence[HttpRequest]:
        """Version and model; there is nothing else to ask."""
        return (HttpRequest("/version"), HttpRequest("/v1/models"))

    def identify(self, version: str, answers: Mapping[str, Any], log_text: str) -> Identity:
        """Version from /version; no kernels."""
        reported = answers.get("/version")
        said = reported.get("version") if isinstance(reported, Mapping) else None
        return read_identity(self.name, version, reported=said, answers=answers, log_text=log_text, server_info=None)

    def generated_tokens(self, metrics_text: str) -> None:
        """It counts none."""
        return None
