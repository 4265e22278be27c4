from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from results.records import NodeRecord
from results.series import node_state_row
from runners.nightly.cells import Known, NightCells, candidates_of, cells_of, name_of
from runners.plan import Cell
from runners.spec import EngineSpec
from suites.suite_files import NightlyChoice, Suite

NOW = datetime(2026, 11, 30, 1, 30, tzinfo=UTC)
NODE = NodeRecord("ab" * 8, "spark", driver_version="580.159.03")
STATE = node_state_row(NODE)["node_state_id"]
SUITE = Suite(name="n", recipes=("canary-dense",), nightly=NightlyChoice(anchor="vllm==0.30.0"))


def night(*versions: str, suite: Suite = SUITE) -> NightCells:
    return cells_of(suite, [EngineSpec.parse(f"vllm=={v}") for v in versions], has_cuda=False, may_download=False)


NIGHT = night("0.32.0", "0.31.0")


def cell(version: str, cells: NightCells = NIGHT) -> Cell:
    return next(c for c in cells.cells if c.spec.version == version)


def boot(version: str, outcome: str = "pass", **more: Any) -> dict[str, Any]:
    c = cell(version) if version in ("0.30.0", "0.31.0", "0.32.0") else cell("0.32.0")
    return {
        "run_id": "r",
        "session_id": "s",
        "engine": "vllm",
        "engine_version": version,
        "distribution": "venv",
        "recipe_name": "canary-dense",
        "backend_name": "eager",
        "series_id": c.series_id(NODE.node_id),
        "node_state_id": STATE,
        "outcome": outcome,
        "purpose": "measure",
        "started_at": NOW,
        "health": "ok",
        "total_s": 60.0,
        "void": False,
        **more,
    }


def known(*boots: dict[str, Any]) -> Known:
    return Known(NODE, boots, NOW - timedelta(hours=1))


def test_the_anchors_cell_is_one_of_the_nights_even_if_its_release_is_not() -> None:
    assert [name_of(c) for c in NIGHT.cells] == [f"vllm=={v} canary-dense eager" for v in ("0.32.0", "0.31.0", "0.30.0")]
    assert NIGHT.anchor == cell("0.30.0")
    assert len(night("0.32.0", "0.30.0").cells) == 2, "the anchor's release is measured once, not twice"


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({}, True),
        ({"purpose": "confirm"}, True),
        ({"purpose": "anchor"}, True),
        ({"outcome": "incoherent"}, True),
        ({"outcome": "unsupported"}, True),
        ({"health": "suspect"}, True),
        ({"health": None}, True),
        ({"purpose": "control"}, False),
        ({"purpose": "self_check"}, False),
        ({"outcome": "infrastructure"}, False),
        ({"outcome": "interrupted"}, False),
        ({"outcome": "install_failed"}, False),
        ({"health": "void"}, False),
        ({"void": True}, False),
        ({"node_state_id": "another driver"}, False),
        ({"series_id": "another protocol"}, False),
        ({"distribution": "docker"}, False),
        ({"engine_version": "0.31.0"}, False),
    ],
)
def test_only_evidence_under_the_present_state_counts(change: dict[str, Any], counts: bool) -> None:
    assert bool(known(boot("0.32.0", **change)).counts(cell("0.32.0"))) is counts


def test_cell_measured_under_another_driver_is_stale_and_planned_again() -> None:
    old = known(*[boot("0.32.0", node_state_id="old driver")] * 3)
    assert old.is_stale(cell("0.32.0"))
    assert not known().is_stale(cell("0.32.0"))
    assert candidates_of(NIGHT, old, 3)[0].needed == 3


def test_faults_of_this_night_count_and_older_ones_and_interruptions_do_not() -> None:
    boots = [
        boot("0.32.0", "infrastructure"),
        boot("0.32.0", "install_failed"),
        boot("0.32.0", "interrupted"),
        boot("0.32.0", "infrastructure", started_at=NOW - timedelta(days=1)),
    ]
    assert [row["outcome"] for row in known(*boots).faults(cell("0.32.0"))] == ["infrastructure", "install_failed"]


def test_duration_comes_from_the_cell_itself_else_from_other_releases_else_nobody_knows() -> None:
    assert known(boot("0.32.0", total_s=50.0), boot("0.31.0", total_s=90.0)).seconds(cell("0.32.0")) == 50.0
    assert known(boot("0.31.0", total_s=90.0), boot("0.31.0", total_s=70.0)).seconds(cell("0.32.0")) == 80.0
    assert known(boot("0.31.0", outcome="crash")).seconds(cell("0.32.0")) is None


@pytest.mark.parametrize(
    ("boots", "failed"),
    [
        ([], False),
        ([("0.31.0", "crash")], True),
        ([("0.31.0", "unsupported")], False),
        ([("0.30.0", "crash"), ("0.31.0", "pass")], False),
        ([("0.31.0", "infrastructure"), ("0.30.0", "wrong")], True),
        ([("0.32.0", "crash")], False),
    ],
)
def test_a_cell_is_last_broken_if_the_newest_earlier_release_with_evidence_failed(boots: list[tuple[str, str]], failed: bool) -> None:
    assert known(*(boot(version, outcome) for version, outcome in boots)).failed_before(cell("0.32.0")) is failed


def new(*boots: dict[str, Any], cells: NightCells = NIGHT) -> set[str]:
    return {c.name.split()[0] for c in candidates_of(cells, known(*boots), 3) if c.is_new}


def test_first_night_ever_the_newest_release_is_new_and_the_others_are_coverage() -> None:
    assert new() == {"vllm==0.32.0"}


def test_every_release_newer_than_the_newest_complete_one_is_new() -> None:
    cells = night("0.32.0", "0.31.0", "0.30.0", suite=SUITE.model_copy(update={"nightly": NightlyChoice()}))
    assert new(*[boot("0.30.0")] * 3, cells=cells) == {"vllm==0.32.0", "vllm==0.31.0"}
    assert new(*[boot("0.31.0")] * 3, cells=cells) == {"vllm==0.32.0"}
    assert new(*[boot("0.32.0")] * 3, cells=cells) == set()


def test_a_release_that_only_fails_is_complete_after_two_boots() -> None:
    assert new(*[boot("0.32.0", "crash")] * 2) == set()
    assert new(boot("0.32.0", "crash")) == {"vllm==0.32.0"}


def test_the_anchor_is_never_new() -> None:
    assert new(cells=night()) == set()
    (anchor,) = candidates_of(night(), known(), 3)
    assert anchor.is_anchor


def test_counts_of_outcomes_reach_the_planner() -> None:
    found = candidates_of(NIGHT, known(boot("0.32.0"), boot("0.32.0", "wrong"), boot("0.31.0", "unsupported")), 3)
    assert [(c.made, c.failed, c.unsupported, c.is_canary, c.path) for c in found] == [
        (2, 1, 0, True, "vllm==0.32.0 eager"),
        (1, 0, 1, True, "vllm==0.31.0 eager"),
        (0, 0, 0, True, "vllm==0.30.0 eager"),
    ]


def test_a_cell_that_the_node_cannot_run_wants_one_boot_which_says_so() -> None:
    suite = Suite(name="n", recipes=("canary-dense", "canary-dense-nvfp4"))
    found = cells_of(suite, [EngineSpec("vllm", "0.32.0")], has_cuda=False, may_download=False)
    candidates = candidates_of(found, Known(NodeRecord("ab" * 8, "cpu"), [], NOW), 3)
    assert {c.name.split()[1]: c.needed for c in candidates} == {"canary-dense": 3, "canary-dense-nvfp4": 1}
