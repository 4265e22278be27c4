from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest

from results.report.release_formats import as_junit, as_markdown, as_text
from results.report.release_report import ReleaseReport, known_releases, release_reports, report_of
from results.store import Store
from results.vocabulary import Outcome
from tests.results.planted_boots import plant
from tests.results.report.markdown import SHOWN, active, kinds_holding

EVIL = "EVIL```\n<script>alert(1)</script> ]]> &lt; \x00\x1b[31m [l](javascript:x)"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("report") / "store")
    plant(store, {"0.31.0": [100.0] * 3, "0.32.0": [101.0] * 3}, model="steady")
    plant(store, {"0.31.0": [100.0], "0.32.0": [Outcome.CRASH] * 2}, model="broken")
    plant(store, {"0.31.0": [100.0], "0.32.0": [Outcome.INFRASTRUCTURE]}, model="not-run")
    plant(store, {"0.31.0": [100.0], "0.32.0": [90.0], "0.33.dev1+gabc": [90.0]}, model="suspected")
    plant(store, {"0.5.14": [50.0]}, engine="sglang", model="steady")
    return store


def test_each_engine_is_reported_at_its_newest_release_with_boots(store: Store) -> None:
    assert [(one.engine, one.release) for one in release_reports(store)] == [("sglang", "0.5.14"), ("vllm", "0.32.0")]
    assert [one.release for one in release_reports(store, "vllm", "0.31")] == ["0.31.0"]
    assert release_reports(store, "vllm", "0.30.0") == []
    assert known_releases(store, "vllm") == ["vllm 0.32.0", "vllm 0.31.0"]


def test_no_cell_vanishes_and_the_broken_ones_come_first(store: Store) -> None:
    (report,) = release_reports(store, "vllm")
    assert report.cells[0].recipe == "broken"
    states = {line.recipe: (line.state, line.alarm) for line in report.cells}
    assert states["steady"] == ("pass", False)
    assert states["broken"] == ("crash", True)
    assert set(states) >= {"steady", "broken", "suspected"}
    assert report.left_out == ("0.33.dev1+gabc",), "a fork build is counted and never ordered among releases"


def test_a_suspected_number_is_told_with_what_would_decide_it(store: Store) -> None:
    (report,) = release_reports(store, "vllm")
    (suspected,) = [line for line in report.cells if line.recipe == "suspected"]
    told = {number.series: number for number in suspected.numbers}["decode_c1/decode_tok_s"]
    assert told.verdict == "inconclusive"
    assert told.effect == pytest.approx(-0.1)
    assert "3 a side are needed" in told.reason


def test_text_and_markdown_show_state_speed_and_reason(store: Store) -> None:
    reports = release_reports(store, "vllm")
    for shown in (as_text(reports), as_markdown(reports)):
        for words in ("vllm 0.32.0", "broke in 0.32.0", "101.0 tok/s", "+1.0%", "1 alarm", "0.33.dev1+gabc"):
            assert words in shown, words


def test_junit_fails_what_is_broken_and_counts_it(store: Store) -> None:
    root = ElementTree.fromstring(as_junit(release_reports(store, "vllm")))
    (suite,) = root
    cases = {case.get("classname"): [part.tag for part in case] for case in suite}
    assert cases["vllm.broken"] == ["failure"]
    assert cases["vllm.steady"] == ["system-out"]
    assert (suite.get("failures"), suite.get("tests")) == ("1", str(len(cases)))


def test_json_holds_every_field(store: Store) -> None:
    (report,) = release_reports(store, "vllm")
    data = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert {cell["recipe"]: cell["state"] for cell in data["cells"]}["broken"] == "crash"


def _hostile() -> ReleaseReport:
    row: dict[str, Any] = dict.fromkeys(
        (
            "history_id",
            "distribution",
            "recipe_name",
            "quantization",
            "backend_name",
            "node_label",
            "node_id",
            "state",
            "headline",
            "reason",
        ),
        EVIL,
    )
    row |= {"alarm": True, "confirmed": True, "boots": 2, "differs": [EVIL], "last_good": EVIL, "last_run_id": EVIL, "launch_bound": False}
    row |= dict.fromkeys(("decode_tok_s", "decode_tok_s_low", "decode_tok_s_high", "decode_change", "aggregate_tok_s", "ttft_s"), 1.0)
    number = {
        "history_id": EVIL,
        "series": EVIL,
        "verdict": "slower",
        "reason": EVIL,
        "median": 1.0,
        "baseline": EVIL,
        "effect": 0.1,
        "p": 0.1,
    }
    return report_of(EVIL, EVIL, [row], [{**number, "n_baseline": 1, "n_candidate": 1, "moved": True}], [EVIL])


def test_hostile_text_never_becomes_markdown_or_breaks_xml() -> None:
    shown = as_markdown([_hostile()])
    assert not active(shown)
    assert kinds_holding(shown, "EVIL") <= SHOWN
    root = ElementTree.fromstring(as_junit([_hostile()]))
    assert [part.tag for part in root.iter()] == ["testsuites", "testsuite", "testcase", "failure"]
    assert "\x1b" not in as_text([_hostile()])
