"""A planted history exported, published by asv itself, and read back from what asv makes of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from results.asv.export import MARK, export
from results.asv.page import page_server, publish
from results.errors import StoreError
from results.store import Store
from results.vocabulary import Outcome, Purpose
from tests.results.planted_boots import plant

VERSIONS = [f"0.{minor}.0" for minor in range(20, 30)]
SUITE = Path("suite")
SCATTER = (0.0, 0.4, -0.3, 0.2, -0.5, 0.1, 0.3, -0.2, 0.4, -0.1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Ten releases; what each model did in them is its name."""
    store = Store(tmp_path_factory.mktemp("asv") / "store")
    speeds = {v: 100 + s for v, s in zip(VERSIONS, SCATTER, strict=True)}
    late, middle = VERSIONS[5:], VERSIONS[3:6]
    plant(store, {v: [s, s + 0.1] for v, s in speeds.items()}, model="steady")
    plant(store, {v: [s * (0.8 if v in late else 1)] for v, s in speeds.items()}, model="slower")
    plant(store, {v: [s * (1.2 if v in late else 1)] for v, s in speeds.items()}, model="faster")
    plant(store, {v: [s * (0.8 if v in middle else 1)] for v, s in speeds.items()}, model="slower-then-repaired")
    plant(store, {v: [Outcome.INCOHERENT if v in VERSIONS[-1:] else s] for v, s in speeds.items()}, model="gate-fails-in-the-newest")
    plant(store, {v: [Outcome.WRONG if v in middle else s] for v, s in speeds.items()}, model="gate-failed-and-was-repaired")
    plant(store, {v: [Outcome.CRASH if v in late else s] for v, s in speeds.items()}, model="crashes")
    plant(store, {v: [Outcome.INFRASTRUCTURE if v in late else s] for v, s in speeds.items()}, model="node-was-ill")
    plant(store, {"0.5.14": [50.0], "0.5.15.post1": [51.0]}, engine="sglang", model="steady")
    plant(store, {VERSIONS[9]: [Outcome.INCOHERENT]}, model="steady", purpose=Purpose.CONTROL)
    plant(store, {"0.1.dev21830+g1a2b3c4": [10.0]}, model="steady")
    return store


@pytest.fixture(scope="module")
def exported(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asv") / "out"
    done = export(store, folder, SUITE)
    assert (done.releases, done.left_out) == (12, 1)
    return folder


@pytest.fixture(scope="module")
def page(exported: Path) -> Path:
    return publish(exported).html


def _asv(folder: Path, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "asv", *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _git(folder: Path, *arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=folder / "releases", capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split("\n")[:-1]


def test_regressions_json_lists_what_is_unresolved_and_nothing_else(page: Path) -> None:
    listed = json.loads((page / "regressions.json").read_text())["regressions"]
    found = {(facets["model"], name) for name, _, facets, *_ in listed}
    assert found == {
        ("slower", "track_time_per_token('decode_c1')"),
        ("slower", "track_time_per_token('decode_c8')"),
        ("gate-fails-in-the-newest", "track_incoherent"),
        ("crashes", "track_failed"),
    }


def test_a_regression_is_found_at_its_release(page: Path) -> None:
    index = json.loads((page / "index.json").read_text())
    commits = {commit: tag for tag, revision in index["tags"].items() for commit in [index["revision_to_hash"][str(revision)]]}
    listed = json.loads((page / "regressions.json").read_text())["regressions"]
    jumps = {facets["model"]: jump for _, _, facets, _, _, _, jump in listed}
    where = {model: commits[index["revision_to_hash"][str(jump[-1][1])]] for model, jump in jumps.items()}
    assert where == {"slower": "vllm-0.25.0", "gate-fails-in-the-newest": "vllm-0.29.0", "crashes": "vllm-0.25.0"}


def test_there_is_one_branch_per_engine_and_one_commit_and_tag_per_release_in_order(exported: Path) -> None:
    assert _git(exported, "log", "--format=%s", "vllm") == [f"vllm {version}" for version in reversed(VERSIONS)]
    assert _git(exported, "log", "--format=%s", "sglang") == ["sglang 0.5.15.post1", "sglang 0.5.14"]
    assert set(_git(exported, "tag")) == {f"vllm-{v}" for v in VERSIONS} | {"sglang-0.5.14", "sglang-0.5.15.post1"}
    dates = [int(stamp) for stamp in _git(exported, "log", "--reverse", "--format=%ct", "vllm")]
    assert dates == sorted(set(dates)), "asv reads the order of dates as the order of releases"


def test_asv_compare_and_show_work_on_the_tags(exported: Path) -> None:
    compared = _asv(exported, "compare", "--machine", "node", "vllm-0.24.0", "vllm-0.25.0")
    (line,) = [line for line in compared.splitlines() if "decode_c1" in line and "node/slower-eager" in line]
    assert line.startswith("| +")
    assert re.search(r"1\.2[0-9]", line)
    assert "decode_c8" in _asv(exported, "show", "vllm-0.25.0")


def _values(exported: Path, model: str, tag: str) -> dict[str, Any]:
    (commit,) = _git(exported, "rev-parse", f"{tag}^{{commit}}")
    (path,) = (exported / "results" / "node").glob(f"{commit[:8]}-{model}-eager-*.json")
    return {name: row[0] for name, row in json.loads(path.read_text())["results"].items()}


def test_values_are_seconds_per_token_null_when_it_failed_and_0_or_1(exported: Path) -> None:
    steady = _values(exported, "steady", "vllm-0.20.0")
    assert steady["track_time_per_token"] == [pytest.approx(1 / 100.05), pytest.approx(1 / 400.2)]
    assert (steady["track_incoherent"], steady["track_failed"]) == ([0], [0])
    gate = _values(exported, "gate-fails-in-the-newest", "vllm-0.29.0")
    assert gate == {"track_incoherent": [1], "track_failed": [0], "track_time_per_token": [None, None]}
    assert _values(exported, "crashes", "vllm-0.29.0")["track_failed"] == [1]


def test_a_release_without_evidence_is_no_point_and_a_control_boot_is_none(exported: Path) -> None:
    (commit,) = _git(exported, "rev-parse", "vllm-0.29.0^{commit}")
    names = {path.name for path in (exported / "results" / "node").glob(f"{commit[:8]}-*.json")}
    assert not any("node-was-ill" in name for name in names)
    assert _values(exported, "steady", "vllm-0.29.0")["track_incoherent"] == [0]


def test_the_page_loads_nothing_from_anywhere_else(page: Path) -> None:
    loaded = re.findall(r'(?:src|href)="([^"]+)"', (page / "index.html").read_text())
    assert loaded
    for path in loaded:
        assert path.startswith("./")
        assert (page / path).is_file()


def test_less_is_better_is_said_because_the_page_takes_a_track_for_a_throughput(page: Path) -> None:
    benchmarks = json.loads((page / "index.json").read_text())["benchmarks"]
    assert {name: entry["less_is_better"] for name, entry in benchmarks.items()} == dict.fromkeys(
        ("track_time_per_token", "track_launch_bound_time_per_token", "track_incoherent", "track_failed"), True
    )


def test_the_preview_listens_on_loopback_only(page: Path) -> None:
    with page_server(page, 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/regressions.json", timeout=30) as answer:
                assert json.load(answer)["regressions"]
        finally:
            server.shutdown()
            thread.join()


def test_a_second_export_gives_the_same_commits_and_replaces_what_is_gone(store: Store, exported: Path) -> None:
    before = _git(exported, "for-each-ref", "--format=%(refname) %(objectname)")
    stale = exported / "results" / "node" / "stale.json"
    stale.write_text("{}")
    export(store, exported, SUITE)
    assert _git(exported, "for-each-ref", "--format=%(refname) %(objectname)") == before
    assert not stale.exists()


def test_a_folder_of_somebody_elses_is_refused_and_untouched(store: Store, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StoreError, match="no export made"):
        export(store, tmp_path, SUITE)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    assert not (tmp_path / MARK).exists()


def test_an_empty_store_has_nothing_to_export(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plant(store, {"0.32.0": [Outcome.INFRASTRUCTURE]})
    with pytest.raises(StoreError, match="no boot of a release"):
        export(store, tmp_path / "out", SUITE)
    with pytest.raises(StoreError, match="no export here"):
        publish(tmp_path / "out")
