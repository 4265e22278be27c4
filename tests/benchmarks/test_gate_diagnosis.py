"""The benchmark of the diagnosis, with the scripted engine in the place of the real one: whole boots through the proxy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.gate import flagged_proxy
from benchmarks.gate.diagnosis import SCENARIOS, run
from benchmarks.gate.report import diagnosis_table
from tests.planted_engine import known_answers, known_scores
from tests.runners.diagnose.flagged import plant
from tests.scripted_engine import Profile, counting_answer
from tests.scripted_server import ScriptedServer


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """A right engine that serves the dense canary."""
    known = known_answers()
    profile = Profile("vllm", "0.32.0", "canary-dense", 2048)
    with ScriptedServer(profile=profile, answer=lambda prompt, most: known.get(prompt) or counting_answer(prompt, most)) as server:
        server.engine.scored = known_scores()
        yield server.base_url


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """A node without a GPU whose vLLM is the proxy."""
    cache = tmp_path_factory.mktemp("cache")
    plant(cache, "0.32.0", cuda=False, engine=Path(flagged_proxy.__file__))
    return {False: cache}


@pytest.mark.parametrize("name", ["bos_missing", "prefix_cache"])
def test_what_the_proxy_breaks_is_concluded_from_the_answers_behind_it(
    name: str, upstream: str, caches: dict[bool, Path], tmp_path: Path
) -> None:
    row = run(next(s for s in SCENARIOS if s.name == name), tmp_path, caches, upstream)
    assert row["as_expected"], row
    assert row["outcome"] == "wrong"
    assert "not as expected" not in diagnosis_table([row])
    assert "not as expected" in diagnosis_table([{**row, "as_expected": False}])
