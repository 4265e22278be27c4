"""Shapes through the command line, against the scripted engine in a planted environment (`tests/planted.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from results.store import Store
from tests.planted import Planted, plant

SHAPE = "shape-tiny-llama-3.1-8b"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return plant(tmp_path_factory.mktemp("planted"))


@pytest.fixture
def planted(world: Planted, tmp_path: Path) -> Planted:
    (tmp_path / "cache").symlink_to(world.root / "cache")
    return Planted(tmp_path, world.version)


def _run(planted: Planted, **environment: str) -> tuple[int, dict[str, dict[str, object]]]:
    done = planted.sparkproof("run", "--engine", f"vllm=={planted.version}", "--model", SHAPE, "--repeats", "1", "--json", **environment)
    assert done.stdout.strip(), done.stderr
    return done.returncode, {cell["recipe_name"]: cell for cell in json.loads(done.stdout)["cells"]}


def test_a_shape_is_timed_after_its_canary_and_every_row_says_that_its_weights_are_random(planted: Planted) -> None:
    code, cells = _run(planted)
    assert (code, {name: cell["outcome"] for name, cell in cells.items()}) == (0, {"canary-dense": "pass", SHAPE: "pass"})
    assert cells["canary-dense"]["gate_prompts"] == 89
    assert cells["canary-dense"]["decode_tok_s"] is None, "it ends after its gate"
    assert (cells[SHAPE]["weights"], cells[SHAPE]["gate_prompts"], cells[SHAPE]["launch_bound"]) == ("dummy", 0, True)
    store = Store(planted.home)
    runs = {run["recipe_name"]: run for run in store.query("SELECT * FROM runs")}
    assert (runs[SHAPE]["weights"], runs["canary-dense"]["weights"], runs["canary-dense"]["purpose"]) == ("dummy", "real", "admission")
    assert [part for part in runs[SHAPE]["command"] if part in ("--load-format", "dummy")] == ["--load-format", "dummy"]
    samples = store.query("SELECT run_id, flags, valid FROM samples")
    assert samples and all(s["valid"] and "weights=dummy" in s["flags"] and s["run_id"] == runs[SHAPE]["run_id"] for s in samples)
    assert store.query("SELECT count(*) n FROM coherence_results WHERE run_id = ?", [runs[SHAPE]["run_id"]]) == [{"n": 0}]
    assert store.query("SELECT weights, is_evidence FROM boots ORDER BY recipe_name") == [
        {"weights": "real", "is_evidence": False},
        {"weights": "dummy", "is_evidence": True},
    ]


def test_what_a_shape_writes_is_not_judged_and_its_tokens_are_timed_all_the_same(planted: Planted) -> None:
    code, cells = _run(planted, SCRIPTED_BROKEN=SHAPE)
    assert (code, cells[SHAPE]["outcome"], cells["canary-dense"]["gate_matched"]) == (0, "pass", 89), cells[SHAPE]["reason"]
    samples = Store(planted.home).query("SELECT completion_tokens, decode_tok_s, valid FROM samples WHERE NOT cold")
    assert samples and all(s["valid"] and s["completion_tokens"] == 256 and s["decode_tok_s"] > 0 for s in samples)


def test_a_shape_is_refused_and_not_timed_when_its_canary_is_broken(planted: Planted) -> None:
    code, cells = _run(planted, SCRIPTED_AS="flood")
    assert code == 1, "the broken canary is the news"
    assert (cells["canary-dense"]["outcome"], cells[SHAPE]["outcome"]) == ("incoherent", "infrastructure")
    assert "not admitted: its canary canary-dense is incoherent" in str(cells[SHAPE]["reason"])
    store = Store(planted.home)
    assert store.query("SELECT count(*) n FROM samples") == [{"n": 0}]
    assert store.query("SELECT command FROM runs WHERE recipe_name = ?", [SHAPE]) == [{"command": []}], "no server was started for it"
