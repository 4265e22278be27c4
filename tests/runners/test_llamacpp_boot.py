"""A whole boot of `llamacpp==bNNNN@endpoint:URL` against a stand-in that speaks llama.cpp's own endpoints."""

from __future__ import annotations

import json
from pathlib import Path

from results.store import Store
from tests.planted import Planted
from tests.planted_engine import known_answers
from tests.scripted_engine import Profile, counting_answer
from tests.scripted_server import ScriptedServer


def _run(tmp_path: Path, spec_version: str, build: str) -> tuple[int, Planted, str]:
    planted, known = Planted(tmp_path, "b6123"), known_answers()
    server = ScriptedServer(
        profile=Profile("llamacpp", build, "canary-dense", 2048),
        answer=lambda prompt, most: known.get(prompt) or counting_answer(prompt, most),
    )
    with server:
        spec = f"llamacpp=={spec_version}@endpoint:{server.base_url}"
        done = planted.sparkproof("run", "--engine", spec, "--model", "canary-dense", "--backend", "default", "--repeats", "1", "--json")
        assert server.engine.requests, done.stderr
    return done.returncode, planted, done.stdout


def test_a_llamacpp_server_passes_the_gate_and_is_timed(tmp_path: Path) -> None:
    code, planted, shown = _run(tmp_path, "b6123", "b6123")
    (cell,) = json.loads(shown)["cells"]
    assert (code, cell["outcome"], cell["engine"], cell["engine_version"]) == (0, "pass", "llamacpp", "b6123"), cell["reason"]
    assert cell["gate_matched"] == cell["gate_prompts"] == 89
    assert set(cell["kernels"].values()) == {"unknown"}, "no answer of llama.cpp names a kernel"
    (run,) = Store(planted.home).query("SELECT server_version, max_model_len, engine_token_count, client_token_count FROM runs")
    assert (run["server_version"], run["max_model_len"]) == ("b6123", 2048)
    assert run["engine_token_count"] == run["client_token_count"]
    counted = Store(planted.home).query("SELECT DISTINCT metric FROM engine_counters")
    assert [row["metric"] for row in counted] == ["generation_tokens"]


def test_another_build_than_asked_for_is_not_measured(tmp_path: Path) -> None:
    code, _, shown = _run(tmp_path, "b6123", "b6124")
    (cell,) = json.loads(shown)["cells"]
    assert (code, cell["outcome"]) == (3, "infrastructure")
    assert "the server says it is b6124, but b6123 was asked for" in cell["reason"]
