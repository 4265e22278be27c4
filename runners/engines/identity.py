"""What a server says it is.

Trap: an image tagged nightly, or a server that answers on a port left over from another boot, is measured under the wrong name
(M24). Rule: version and model are what the server itself reports; what it does not say is None, and the spec never fills the gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.version import InvalidVersion, Version

from runners.engines.base import UNKNOWN, Identity
from runners.engines.kernels import read_capacity, read_kernels


def same_public_version(spec: str, reported: str) -> bool:
    """True if both are the same version apart from the local part: 0.32.0 and 0.32.0+cpu are, 0.32.0 and 0.32.1.dev3 are not.

    Texts that are no PEP 440 versions are the same only if they are equal.
    """
    try:
        return Version(Version(spec).public) == Version(Version(reported).public)
    except InvalidVersion:
        return spec.strip() == reported.strip()


def read_identity(
    engine: str, version: str, *, reported: Any, answers: Mapping[str, Any], log_text: str, server_info: Mapping[str, Any] | None
) -> Identity:
    """Identity from GET /v1/models, the log and, where the engine has one, its info answer."""
    card = _first_model(answers.get("/v1/models"))
    read_as = "" if version == UNKNOWN else version
    report = read_kernels(engine, read_as, log_text, server_info)
    capacity = read_capacity(engine, read_as, log_text, server_info)
    served_len = card.get("max_model_len")
    return Identity(
        version=reported if isinstance(reported, str) and reported else None,
        model=card["id"] if isinstance(card.get("id"), str) else None,
        max_model_len=served_len if isinstance(served_len, int) and not isinstance(served_len, bool) else capacity.max_model_len,
        kv_cache_tokens=capacity.kv_cache_tokens,
        model_memory_bytes=capacity.model_memory_bytes,
        kernels=report.kernels,
        unparsed=report.unparsed,
    )


def _first_model(models: Any) -> Mapping[str, Any]:
    """The first entry of /v1/models that is no adapter of another one; empty if there is none."""
    data = models.get("data") if isinstance(models, Mapping) else None
    cards = [card for card in data if isinstance(card, Mapping)] if isinstance(data, list) else []
    return next((card for card in cards if not card.get("parent")), {})
