from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from runners import hub
from runners.errors import InfrastructureError, UsageError
from runners.models import as_served_now
from suites.recipes import Recipe, Source
from tests.runners.fake_hub import COMMIT, REPO, FakeHub, serving

INDEX = b'{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}'
FILES = {
    "config.json": b'{"vocab_size": 8}',
    "tokenizer.json": b'{"added_tokens": []}',
    "model.safetensors.index.json": INDEX,
    "model-1.safetensors": b"1" * 300_000,
    "model-2.safetensors": b"2" * 200_000,
    "original/model.safetensors": b"3" * 500_000,
    "metal/model.bin": b"4" * 500_000,
    ".gitattributes": b"x",
}
WANTED = {"config.json", "tokenizer.json", "model.safetensors.index.json", "model-1.safetensors", "model-2.safetensors"}


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))


@pytest.fixture
def server() -> Iterator[FakeHub]:
    with serving(FakeHub(dict(FILES), large=frozenset({"model-1.safetensors", "model-2.safetensors"}))) as running:
        yield running


def _plan(server: FakeHub, cache: Path, revision: str | None = None, free: int = 10 << 40) -> hub.DownloadPlan:
    return hub.plan_download(REPO, revision, cache_folder=cache, endpoint=server.url, free_bytes=lambda _: free)


def test_a_plan_says_size_and_free_space_and_fetches_nothing(server: FakeHub, tmp_path: Path) -> None:
    plan = _plan(server, tmp_path, free=5 << 30)
    assert (plan.commit, {f.name for f in plan.files}) == (COMMIT, WANTED)
    assert plan.fetch_bytes == plan.total_bytes == sum(len(FILES[name]) for name in WANTED)
    assert plan.weight_bytes == 500_000
    assert "0.5 MiB to fetch (5 of 5 files" in plan.sentence()
    assert "5.0 GiB are free" in plan.sentence()
    assert not any("/resolve/" in request for request in server.asked)
    assert not list(tmp_path.iterdir())


def test_a_fetched_model_is_whole_and_its_size_was_said_first(server: FakeHub, tmp_path: Path) -> None:
    said: list[str] = []
    snapshot = hub.fetch(_plan(server, tmp_path), said.append, endpoint=server.url)
    assert {p.relative_to(snapshot.folder).as_posix() for p in snapshot.folder.rglob("*")} == WANTED
    assert (snapshot.folder / "model-1.safetensors").read_bytes() == FILES["model-1.safetensors"]
    assert "to fetch" in said[0]
    assert said[-1].startswith("100 %")
    again = _plan(server, tmp_path)
    assert again.fetch_bytes == 0
    assert "all 5 files" in again.sentence()


def test_nothing_is_fetched_when_the_disk_has_no_room(server: FakeHub, tmp_path: Path) -> None:
    plan = _plan(server, tmp_path, free=hub.RESERVE_BYTES + 1000)
    with pytest.raises(InfrastructureError, match=r"do not fit into 2\.0 GiB of free space.*HF_HOME"):
        hub.fetch(plan, lambda _: None, endpoint=server.url)
    assert not any("/resolve/" in request for request in server.asked)


def test_a_download_goes_on_from_the_last_finished_file(server: FakeHub, tmp_path: Path) -> None:
    server.lost.add("model-2.safetensors")
    with pytest.raises(InfrastructureError):
        hub.fetch(_plan(server, tmp_path), lambda _: None, endpoint=server.url, workers=1)
    assert hub.cached(REPO, COMMIT, cache_folder=tmp_path) is None
    plan = _plan(server, tmp_path)
    assert {f.name for f in plan.files if not f.present} == {"model-2.safetensors"}
    server.lost.clear()
    server.asked.clear()
    hub.fetch(plan, lambda _: None, endpoint=server.url)
    assert "GET /stored/model-1.safetensors" not in server.asked
    assert hub.cached(REPO, COMMIT, cache_folder=tmp_path) is not None


def test_a_broken_connection_is_resumed_inside_the_file(server: FakeHub, tmp_path: Path) -> None:
    whole = server.files["model-2.safetensors"] = bytes(range(256)) * (12 << 12)
    server.cut, server.cut_at = ["model-2.safetensors"], 11 << 20
    snapshot = hub.fetch(_plan(server, tmp_path), lambda _: None, endpoint=server.url)
    assert (snapshot.folder / "model-2.safetensors").read_bytes() == whole
    assert server.ranges == [f"bytes={10 << 20}-"]


def test_a_file_that_is_not_of_the_announced_size_is_refused(server: FakeHub, tmp_path: Path) -> None:
    server.announced["tokenizer.json"] = 5
    with pytest.raises(InfrastructureError):
        hub.fetch(_plan(server, tmp_path), lambda _: None, endpoint=server.url)


@pytest.mark.parametrize(
    ("repo", "revision", "gated", "words"),
    [
        ("maker/other", None, False, "does not exist on the hub, or is private.*hf auth login"),
        (REPO, "v9", False, "maker/model@v9: has no such revision"),
        (REPO, None, True, "is gated.*Accept its terms.*HF_TOKEN"),
        ("a/b/c", None, False, "owner/name was expected"),
    ],
)
def test_what_the_hub_refuses_is_said_in_words(
    server: FakeHub, tmp_path: Path, repo: str, revision: str | None, gated: bool, words: str
) -> None:
    server.gated = gated
    with pytest.raises(UsageError, match=words):
        hub.plan_download(repo, revision, cache_folder=tmp_path, endpoint=server.url)


def test_a_hub_that_cannot_be_reached_is_our_fault_and_says_what_to_check(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"cannot be reached or used.*Check the network"):
        hub.plan_download(REPO, cache_folder=tmp_path, endpoint="http://127.0.0.1:9")


def test_offline_mode_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    code = f"from runners import hub; hub.plan_download({REPO!r}, endpoint='http://127.0.0.1:9')"
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "HF_HUB_OFFLINE is set" in ended.stderr


def test_the_endpoint_and_cache_of_the_environment_are_used(server: FakeHub, tmp_path: Path) -> None:
    environment = {**os.environ, "HF_ENDPOINT": server.url, "HF_HUB_CACHE": str(tmp_path), "HF_TOKEN": "hf_" + "s" * 20}
    code = f"from runners import hub; print(hub.resolve({REPO!r}, None, print, may_download=True).folder)"
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert Path(ended.stdout.splitlines()[-1]).parent == tmp_path / "models--maker--model" / "snapshots"
    assert server.authorizations >= {"Bearer hf_" + "s" * 20}
    assert "ssss" not in ended.stdout + ended.stderr


def test_without_leave_nothing_is_downloaded_and_the_size_is_said(server: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not downloaded\. maker/model@0123456789ab: 0\.5 MiB to fetch"):
        hub.resolve(REPO, None, lambda _: None, may_download=False, cache_folder=tmp_path, endpoint=server.url)


def test_a_pinned_commit_in_the_cache_needs_no_hub(server: FakeHub, tmp_path: Path) -> None:
    hub.resolve(REPO, None, lambda _: None, may_download=True, cache_folder=tmp_path, endpoint=server.url)
    asked = len(server.asked)
    assert hub.resolve(REPO, COMMIT, lambda _: None, may_download=False, cache_folder=tmp_path, endpoint=server.url).commit == COMMIT
    assert len(server.asked) == asked


def test_without_a_hub_a_branch_is_what_the_cache_last_saw(server: FakeHub, tmp_path: Path) -> None:
    hub.resolve(REPO, None, lambda _: None, may_download=True, cache_folder=tmp_path, endpoint=server.url)
    said: list[str] = []
    found = hub.resolve(REPO, None, said.append, may_download=False, cache_folder=tmp_path, endpoint="http://127.0.0.1:9")
    assert found.commit == COMMIT
    assert "from the cache" in said[0]


@pytest.mark.parametrize("lost", sorted(WANTED))
def test_a_snapshot_that_lacks_one_file_does_not_count(server: FakeHub, tmp_path: Path, lost: str) -> None:
    snapshot = hub.fetch(_plan(server, tmp_path), lambda _: None, endpoint=server.url)
    (snapshot.folder / lost).unlink()
    assert hub.cached(REPO, COMMIT, cache_folder=tmp_path) is None
    assert hub.missing_files(REPO, snapshot.folder) == (lost,)


def test_a_cache_of_another_tool_is_judged_by_its_own_weight_index(server: FakeHub, tmp_path: Path) -> None:
    folder = tmp_path / "models--maker--model" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors.index.json", "model-1.safetensors"):
        (folder / name).write_bytes(FILES[name])
    assert hub.missing_files(REPO, folder) == ("model-2.safetensors",)
    (folder / "model-2.safetensors").write_bytes(b"2")
    assert hub.missing_files(REPO, folder) == ()


def test_a_file_name_that_leaves_the_folder_is_refused(server: FakeHub, tmp_path: Path) -> None:
    server.files["../../evil.json"] = b"x"
    with pytest.raises(InfrastructureError, match="outside of the model"):
        _plan(server, tmp_path)


@pytest.mark.parametrize(
    ("names", "left_out"),
    [
        (["model.safetensors", "pytorch_model.bin", "tf_model.h5", "config.json"], {"pytorch_model.bin", "tf_model.h5"}),
        (["consolidated.safetensors", "params.json", "tekken.json"], set()),
        (["consolidated.safetensors", "model.safetensors", "params.json"], {"consolidated.safetensors"}),
        (["pytorch_model.bin", "config.json"], set()),
        (["model.safetensors", "encoding/helper.py"], set()),
    ],
)
def test_only_one_format_of_the_weights_is_wanted(names: list[str], left_out: set[str]) -> None:
    assert set(names) - set(hub.wanted(names)) == left_out


def test_an_unpinned_recipe_is_as_the_cache_holds_it_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe(name="m", kind="model", source=Source(hub=REPO))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert as_served_now(recipe) == recipe, "nothing is here: nothing is known"
    folder = tmp_path / f"models--{REPO.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).write_text("{}")
    assert as_served_now(recipe).revision == COMMIT
    assert as_served_now(recipe).recipe_id != recipe.recipe_id
    assert as_served_now(recipe.model_copy(update={"revision": COMMIT})).revision == COMMIT
