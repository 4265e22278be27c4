"""What ends our own servers is told whether the node's memory is ours alone to judge."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runners import serving
from runners.serving import SHARED_VARIABLE, OwnServer


@pytest.mark.parametrize(("value", "judged"), [(None, True), ("0", True), ("1", False)])
def test_memory_after_a_teardown_is_judged_unless_other_runners_share_the_node(
    monkeypatch: pytest.MonkeyPatch, value: str | None, judged: bool
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(serving.teardown, "stop", lambda process, **options: asked.append(options))
    monkeypatch.setattr(OwnServer, "__init__", lambda self: None)
    monkeypatch.setattr(OwnServer, "unwatch", lambda self: ())
    monkeypatch.delenv(SHARED_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(SHARED_VARIABLE, value)
    server = OwnServer()  # type: ignore[call-arg]
    server.__dict__.update(process=SimpleNamespace(), _hurry=lambda: False, _machine=None)
    server.stop()
    assert [options["judge_memory"] for options in asked] == [judged]
