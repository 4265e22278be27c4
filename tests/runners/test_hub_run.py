"""`sparkproof run` of a model that lies on a hub: nothing is fetched unasked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from results.store import Store
from tests.planted import Planted, plant
from tests.runners.fake_hub import COMMIT, REPO, FakeHub, serving

FILES = {
    "config.json": b'{"vocab_size": 512, "max_position_embeddings": 4096}',
    "tokenizer.json": b'{"added_tokens": []}',
    "model.safetensors": b"1" * 300_000,
}


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with serving(FakeHub(dict(FILES), large=frozenset({"model.safetensors"}))) as running:
        yield running


def _variables(planted: Planted, hub: FakeHub) -> dict[str, Any]:
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(planted.root / "hf"), "HF_TOKEN": ""}


def test_without_download_size_and_free_space_are_said_and_nothing_starts(tmp_path: Path, hub: FakeHub) -> None:
    planted = Planted(tmp_path, "0.32.0")
    done = planted.sparkproof("run", "--engine", "vllm==0.32.0", "--model", REPO, **_variables(planted, hub))
    words = " ".join(done.stderr.split())
    assert done.returncode == 2, words
    assert "0.3 MiB to fetch (3 of 3 files" in words
    assert "are free" in words
    assert "--download" in words
    assert not [request for request in hub.asked if "/resolve/" in request]
    assert not planted.home.exists()


def test_with_download_the_snapshot_is_what_the_server_gets(tmp_path: Path, hub: FakeHub) -> None:
    planted = plant(tmp_path)
    arguments = ("run", "--engine", "vllm==0.32.0", "--model", REPO, "--download", "--repeats", "1", "--json")
    done = planted.sparkproof(*arguments, SCRIPTED_BOOT="crash", **_variables(planted, hub))
    assert json.loads(done.stdout)["cells"][0]["outcome"] == "crash", done.stderr
    (run,) = (json.loads(path.read_text())["run"] for path in (planted.home / "boots").glob("*/run.json"))
    snapshot = planted.root / "hf" / "hub" / f"models--{REPO.replace('/', '--')}" / "snapshots" / COMMIT
    assert str(snapshot) in run["command"]
    assert {p.name for p in snapshot.iterdir()} == set(FILES)
    assert "0.3 MiB to fetch" in done.stderr
    assert any(COMMIT in warning for warning in run["warnings"])


def test_a_branch_that_moved_is_another_cell_of_the_same_series(tmp_path: Path, hub: FakeHub) -> None:
    """The recipe pins no commit: what `main` was at the time is part of what was measured (M16), and is kept."""
    planted = plant(tmp_path)
    arguments = ("run", "--engine", "vllm==0.32.0", "--model", REPO, "--download", "--repeats", "1", "--json")
    commits = (COMMIT, COMMIT, COMMIT[::-1])
    for commit in commits:
        hub.commit = commit
        done = planted.sparkproof(*arguments, SCRIPTED_BOOT="crash", **_variables(planted, hub))
        assert done.returncode == 1, done.stderr
    store = Store(planted.home)
    runs = store.query("SELECT cell_id, series_id, recipe_id FROM runs ORDER BY started_at, run_id")
    assert runs[0] == runs[1]
    assert runs[2]["series_id"] == runs[0]["series_id"]
    assert runs[2]["cell_id"] != runs[0]["cell_id"]
    assert runs[2]["recipe_id"] != runs[0]["recipe_id"]
    revisions = {row["recipe_id"]: row["revision"] for row in store.query("SELECT recipe_id, revision FROM recipes")}
    assert [revisions[run["recipe_id"]] for run in runs] == list(commits)
