"""What is known of one boot so far, as its phases find it out.

Trap: a phase reaches for a server or a model that is not there yet. Rule: what a phase needs is asked for by `require_...`, which says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from results.records import NodeRecord
from results.vocabulary import Purpose
from runners.coherence.gate import GateTarget
from runners.coherence.numeric_path import candidate_paths, references_of, scores_path
from runners.engines.base import UNKNOWN, EngineAdapter, Identity
from runners.engines.registry import adapter_for
from runners.envs.environment import Environment
from runners.launchers.docker_cli import Docker, ImageIdentity
from runners.launchers.endpoint import key_headers
from runners.model_references import known_good_for
from runners.models import LocalModel
from runners.plan import Cell
from runners.recorder import Recorder
from runners.request_fields import RequestFields
from runners.server_client import ServerClient
from runners.serving import Serving
from runners.stream import Target
from runners.vocabulary_file import OfflineVocabulary


@dataclass
class Boot:
    """What is known of one boot so far."""

    cell: Cell
    recorder: Recorder
    node: NodeRecord
    cache_root: Path
    has_cuda: bool
    progress: Callable[[str], None]
    may_download: bool = False
    docker: Docker = field(default_factory=Docker)
    image: ImageIdentity | None = None
    environment: Environment | None = None
    model: LocalModel | None = None
    serving: Serving | None = None
    identity: Identity | None = None
    fields: RequestFields | None = None
    vocabulary: OfflineVocabulary = field(default_factory=OfflineVocabulary)
    adapter: EngineAdapter = field(init=False)

    def __post_init__(self) -> None:
        self.adapter = adapter_for(self.cell.spec.name)

    @property
    def version(self) -> str:
        """The engine version asked for."""
        return self.cell.spec.version or UNKNOWN

    @property
    def target(self) -> Target:
        """Address and model name of the running server."""
        assert self.serving is not None
        assert self.model is not None
        return Target(self.serving.base_url, self.model.name, self.headers)

    @property
    def headers(self) -> dict[str, str]:
        """What goes with every request: an endpoint's API key. Our own servers get none."""
        spec = self.cell.spec
        return key_headers(spec.target, os.environ) if spec.distribution == "endpoint" else {}

    def client(self) -> ServerClient:
        """A client for short questions to the running server."""
        return ServerClient(self.require_serving().base_url, self.headers)

    def gate_target(self) -> GateTarget:
        """What the gate judges."""
        model, recipe, run = self.require_model(), self.cell.recipe, self.recorder.run
        paths = candidate_paths(recipe.weight_format, run.actual)
        making = run.purpose is Purpose.REFERENCE
        return GateTarget(
            run_id=run.run_id,
            base_url=self.require_serving().base_url,
            model=model.name,
            canary=model.canary,
            bos=recipe.bos,
            paths=references_of(recipe.source.canary, paths) if recipe.source.canary is not None else (),
            path=scores_path(paths, canary=model.canary is not None),
            known_good=None if making else known_good_for(recipe, model, self.recorder.store_root),
            context=run.max_model_len or recipe.max_model_len,
            instruct=recipe.instruct,
            reasoning=self.cell.spec.name in recipe.reasoning_parser,
            headers=self.headers,
        )

    def require_serving(self) -> Serving:
        """The running server."""
        assert self.serving is not None, "no phase after launch runs without a server"
        return self.serving

    def require_model(self) -> LocalModel:
        """The model that is served."""
        assert self.model is not None, "no phase after install runs without a model"
        return self.model
