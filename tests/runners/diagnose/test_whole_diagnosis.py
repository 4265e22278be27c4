"""Each conclusion, proved by a fault in an engine that the right control switches off: whole boots through the real pipeline."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from results.store import Store
from results.vocabulary import Purpose
from runners.diagnose.follow_up import Limits
from tests.runners.diagnose.flagged import GB10, NO_GPU, World, plant

_CACHES: dict[bool, Path] = {}


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """A planted cache for a node with a GPU and one for a node without, each with two releases."""
    made = {}
    for cuda in (True, False):
        cache = tmp_path_factory.mktemp("cuda" if cuda else "cpu")
        for version in ("0.31.0", "0.32.0"):
            plant(cache, version, cuda=cuda)
        made[cuda] = cache
    return made


@pytest.fixture
def spark(caches: dict[bool, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A GB10 with a store of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return World(Store(tmp_path / "home"), caches[True], GB10, monkeypatch)


@pytest.fixture
def box(caches: dict[bool, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A node without a GPU."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return World(Store(tmp_path / "home"), caches[False], NO_GPU, monkeypatch)


def _stored(world: World) -> dict[str, object]:
    (row,) = world.store.query("SELECT conclusion, detail, use_instead, controls, run_id FROM diagnoses")
    return row


@pytest.mark.parametrize(
    ("fault", "backend", "conclusion", "detail", "use_instead", "tried"),
    [
        ("graphs", "default", "execution_path", "cuda_graphs", ["--enforce-eager"], ["eager"]),
        ("moe", "default", "kernel", "moe=flashinfer_cutlass", ["--moe-backend marlin"], ["eager", "moe=marlin"]),
        ("attention", "eager", "attention", "FLASHINFER", ["--attention-backend TRITON_ATTN"], ["moe=marlin", "attention=TRITON_ATTN"]),
        ("kv_fp8", "kv_fp8", "kv_cache", "fp8", ["--kv-cache-dtype auto"], ["kv-cache-dtype=auto"]),
    ],
)
def test_a_fault_of_one_path_is_found_by_changing_that_path(
    spark: World, fault: str, backend: str, conclusion: str, detail: str, use_instead: list[str], tried: list[str]
) -> None:
    results, controls = spark.run(fault, backend=backend)
    failed, *made = results
    assert failed.run.outcome == "wrong"
    assert [result.run.backend_name for result in made] == [f"{backend}+{name}" for name in tried]
    assert all(r.run.purpose is Purpose.CONTROL and r.run.control_of == failed.run.run_id for r in made)
    row = _stored(spark)
    assert (row["conclusion"], row["detail"], row["use_instead"]) == (conclusion, detail, use_instead)
    assert row["run_id"] == failed.run.run_id
    assert row["controls"] == [r.run.run_id for r in made]
    assert all(word in controls.diagnoses[0][1].sentence for word in use_instead)


def test_no_control_is_timed(spark: World) -> None:
    results, _ = spark.run("graphs")
    assert results[-1].run.outcome == "pass"
    assert spark.store.query("SELECT count(*) n FROM samples WHERE run_id = ?", [results[-1].run.run_id]) == [{"n": 0}]


def test_a_fault_of_the_prefix_cache_is_found_without_a_gpu(box: World) -> None:
    box.run("prefix_cache", backend="eager")
    row = _stored(box)
    assert (row["conclusion"], row["detail"], row["use_instead"]) == ("kv_cache", "prefix_cache", ["--no-enable-prefix-caching"])


def test_an_answer_that_is_wrong_in_batches_alone_is_a_matter_of_concurrency(box: World) -> None:
    results, _ = box.run("batch", backend="eager")
    row = _stored(box)
    assert (row["conclusion"], row["use_instead"]) == ("concurrency", ["--max-num-seqs 1"])
    alone = box.store.query("SELECT verdict FROM coherence_results WHERE run_id = ? AND step = 'control_alone'", [results[0].run.run_id])
    together = box.store.query(
        "SELECT verdict FROM coherence_results WHERE run_id = ? AND step = 'control_together'", [results[0].run.run_id]
    )
    assert {r["verdict"] for r in alone} == {"match"}
    assert "wrong" in {r["verdict"] for r in together}
    repeat = results[-1].run
    assert (repeat.backend_name, repeat.control_of) == ("eager", results[0].run.run_id), "what comes and goes is repeated unchanged"
    assert repeat.outcome == "wrong"


def test_a_failure_that_does_not_come_back_is_undecided(box: World) -> None:
    box.monkeypatch.setenv("FLAGGED_STATE", str(box.store.root.parent / "boots-before"))
    box.run("first_boot_in_batches", backend="eager")
    row = _stored(box)
    assert (row["conclusion"], row["detail"]) == ("undecided", "does_not_repeat")


def test_an_answer_that_blames_the_bos_token_needs_no_control(box: World) -> None:
    results, _ = box.run("bos_missing", backend="eager")
    row = _stored(box)
    assert (row["conclusion"], row["detail"], row["controls"]) == ("template_or_bos", "bos_missing", [])
    assert len(results) == 1


def test_the_last_good_release_is_tried_last_and_decides(box: World) -> None:
    assert box.run("none", version="0.31.0", backend="eager")[0][0].run.outcome == "pass"
    results, _ = box.run("newer", backend="eager")
    row = _stored(box)
    assert (row["conclusion"], row["use_instead"]) == ("engine_version", ["vllm==0.31.0"])
    assert (results[-1].run.engine_version, results[-1].run.outcome) == ("0.31.0", "pass")


def test_weights_that_are_verified_are_never_blamed(box: World) -> None:
    box.run("always", backend="eager")
    row = _stored(box)
    assert (row["conclusion"], row["detail"]) == ("undecided", "every_path_tried")


def test_controls_are_bounded_in_number_and_time(spark: World) -> None:
    results, _ = spark.run("always", limits=Limits(boots=2))
    assert len(results) == 3
    assert _stored(spark)["conclusion"] == "undecided"
    (sentence,) = spark.store.query("SELECT sentence FROM diagnoses")
    assert "after 2 control boots" in sentence["sentence"]


def test_an_engine_without_a_fault_is_not_diagnosed(box: World) -> None:
    results, controls = box.run("none", backend="eager")
    assert [r.run.outcome for r in results] == ["pass"]
    assert controls.diagnoses == []


@pytest.fixture(autouse=True)
def _no_leftovers() -> None:
    for name in ("FLAGGED_FAULT", "FLAGGED_STATE"):
        os.environ.pop(name, None)
