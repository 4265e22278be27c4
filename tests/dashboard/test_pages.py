"""Every page on an empty, a small, the sample and a hostile store."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from dashboard import source
from dashboard.links import PAGES
from results.compare import MOST_JUDGED, ComparedCell, Question, compare
from results.store import Store
from results.vocabulary import Outcome
from tests.dashboard.conftest import Open
from tests.dashboard.shown_by import cells, grids, texts
from tests.dashboard.stores import HOSTILE, WIDE_RELEASES, WIDE_ROWS, Planned, made, wide

STORES = ("empty", "small", "sample", "hostile")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("kind", STORES)
def test_every_page_opens_on_every_store(open_page: Open, stores: dict[str, Store], kind: str, page: str) -> None:
    app = open_page(stores[kind], page)
    assert not app.exception
    assert not app.error
    assert app.title[0].value == ("No results yet" if kind == "empty" else PAGES[page].title)


def test_an_empty_store_says_how_to_make_the_first_run(open_page: Open, stores: dict[str, Store]) -> None:
    app = open_page(stores["empty"], "today")
    assert "sparkproof run --engine" in app.code[0].value
    assert any("sparkproof demo" in block.value for block in app.code)


def test_today_names_the_newest_good_release_and_what_broke_since(open_page: Open, stores: dict[str, Store]) -> None:
    shown = texts(open_page(stores["small"], "today"))
    assert "Newest good: SGLang 0.5.14 / marlin. 0.5.15 breaks gpt-oss-120b on marlin: hang, not confirmed yet." in shown
    assert "Newest good: vLLM 0.33.0" in shown


def test_today_lists_failures_first_with_what_to_use_instead(open_page: Open, stores: dict[str, Store]) -> None:
    rows = cells(open_page(stores["small"], "today"), "Findings")
    assert rows[0][0] == "✗ hang | detected"
    assert rows[0][2] == "0.5.15 | good in 0.5.14"
    assert rows[0][5] == "--moe-backend marlin"
    assert rows[-1][0] == "✗ incoherent | fixed in 0.33.0"


def test_matrix_shows_every_failure_and_says_why_a_cell_is_empty(open_page: Open, stores: dict[str, Store]) -> None:
    app = open_page(stores["small"], "matrix", engine="vllm")
    rows = {(row[0].split(" | ")[0], row[1]): row[2:] for row in cells(app, "Outcomes")}
    assert [cell.split(" | ")[0] for cell in rows["gpt-oss-120b", "flashinfer"]] == ["✓ 60.2", "✗ incoherent", "✓ 60.2"]
    assert [cell.split(" | ")[0] for cell in rows["qwen3.5-35b", "marlin"]] == ["∅ gone", "↷ fallback", "· not run"]
    never = grids(app)[0]["rows"][-1][-1]
    assert never["tip"] == "0.31.0: this cell was never booted on it"


@pytest.mark.parametrize("view", ["both", "correctness", "speed"])
def test_an_outcome_has_its_sign_in_every_view(open_page: Open, stores: dict[str, Store], view: str) -> None:
    app = open_page(stores["small"], "matrix", engine="vllm", view=view)
    shown = {cell["k"]: cell["t"][0] for row in grids(app)[0]["rows"] for cell in row if "k" in cell}
    assert shown == {"pass": "✓", "fail": "✗", "fallback": "↷", "gone": "∅", "notrun": "·"}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"only": "failing"}, []),
        ({"only": "changed"}, ["gpt-oss-120b", "qwen3.5-35b"]),
        ({"q": "QWEN"}, ["qwen3.5-35b"]),
        ({"q": "gpt marlin"}, ["gpt-oss-120b"]),
        ({"q": "no such thing"}, []),
    ],
)
def test_matrix_filters_come_from_the_address(
    open_page: Open, stores: dict[str, Store], parameters: dict[str, str], expected: list[str]
) -> None:
    app = open_page(stores["small"], "matrix", engine="vllm", **parameters)
    assert [row[0].split(" | ")[0] for row in cells(app, "Outcomes")] == expected


def test_a_filter_that_is_changed_is_written_into_the_address(open_page: Open, stores: dict[str, Store]) -> None:
    app = open_page(stores["small"], "matrix", engine="vllm")
    app.selectbox(key="filter_engine").set_value("sglang").run()
    app.text_input(key="filter_q").set_value("gpt").run()
    assert dict(app.query_params) == {"engine": "sglang", "q": "gpt"}
    assert [row[2] for row in cells(app, "Outcomes")] == ["✗ hang | ✗ broke, 1 boot"]


def test_an_unknown_value_in_the_address_is_dropped(open_page: Open, stores: dict[str, Store]) -> None:
    app = open_page(stores["small"], "matrix", engine="'; DROP TABLE runs; --", node="nobody", view="nothing")
    assert not app.exception
    assert app.query_params["engine"] == "sglang"
    assert "node" not in app.query_params
    assert "view" not in app.query_params


def test_cell_draws_failed_boots_the_roofline_and_what_changed_on_the_node(open_page: Open, stores: dict[str, Store]) -> None:
    app = open_page(stores["small"], "cell", engine="vllm", recipe="gpt-oss-120b", backend="flashinfer")
    chart = app.get("vega_lite_chart")[0].proto
    drawn = b"".join(dataset.data.data for dataset in chart.datasets).decode("utf-8", "replace")
    for text in ("roofline at 273 GB/s: 91 tok/s", "driver 590.48 → 595.10", "✗2"):
        assert text in drawn
    assert "66 % of what 273 GB/s allow" in texts(app)
    assert [row[1] for row in cells(app, "What each release did")] == ["✓ pass", "✗ incoherent", "✓ pass"]
    assert len(cells(app, "Boots of this cell")) == 6


def test_what_others_published_is_drawn_hollow_whatever_release_it_is_about(open_page: Open, stores: dict[str, Store]) -> None:
    app = open_page(stores["small"], "cell", engine="vllm", recipe="gpt-oss-120b", backend="marlin")
    chart = app.get("vega_lite_chart")[0].proto
    (hollow,) = [layer for layer in json.loads(chart.spec)["layer"] if layer["mark"].get("filled") is False]
    (drawn,) = [dataset for dataset in chart.datasets if dataset.name == hollow["data"]["name"]]
    claims = pa.ipc.open_stream(drawn.data.data).read_all().to_pylist()
    assert {(claim["release"], claim["value"]) for claim in claims} == {
        ("0.32.0", 58.8),
        ("0.32.0", 59.5),
        ("other release", 33.0),
    }
    assert [row[4] for row in cells(app, "Numbers published by others")] == ["58.80", "59.50", "33.00"]


def test_a_cell_that_never_passed_is_drawn_without_an_empty_chart_above_its_failures(open_page: Open, tmp_path: Path) -> None:
    app = open_page(made(tmp_path, [Planned(outcome=Outcome.CRASH)] * 2), "cell", metric="ttft_s")
    assert not app.exception
    spec = json.loads(app.get("vega_lite_chart")[0].proto.spec)
    points, *others = spec["layer"]
    assert points["encoding"]["y"]["axis"] is None
    assert [layer["data"]["name"] for layer in others] == ["failures", "nodes"]
    assert spec["height"] < 200


@pytest.mark.parametrize("metric", ["ttft_s", "memory_used_bytes", "verified_context_tokens", "nll_drift_rms"])
def test_cell_switches_its_metric_from_the_address(open_page: Open, stores: dict[str, Store], metric: str) -> None:
    app = open_page(stores["small"], "cell", engine="vllm", recipe="gpt-oss-120b", backend="marlin", metric=metric)
    assert not app.exception
    assert app.query_params["metric"] == metric


def _run_of(store: Store, where: str) -> str:
    return str(store.query(f"SELECT run_id FROM runs WHERE {where} ORDER BY run_id LIMIT 1")[0]["run_id"])


def test_run_marks_the_first_difference_to_the_expected_answer(open_page: Open, stores: dict[str, Store]) -> None:
    run = _run_of(stores["small"], "outcome = 'incoherent'")
    app = open_page(stores["small"], "run", run=run)
    pair = next(grid for grid in grids(app) if grid["caption"].startswith("The answer beside"))
    answer, expected = pair["rows"][0][1:]
    assert [cell["t"][cell["at"] :] for cell in (answer, expected)] == ["XXsat on the mat", "sat on the mat"]
    assert [cell["t"][cell["at"] :] for cell in pair["rows"][1][1:]] == ["9 3", "2 3"]


def test_run_shows_the_decisive_line_of_its_log(open_page: Open, stores: dict[str, Store]) -> None:
    app = open_page(stores["small"], "run", run=_run_of(stores["small"], "outcome = 'incoherent'"))
    log = next(grid for grid in grids(app) if grid["caption"] == "Server log")
    assert [row[1]["t"] for row in log["rows"] if row[1].get("k") == "fail"] == ["ERROR the decisive line"]


def test_run_says_which_kernels_are_not_known(open_page: Open, stores: dict[str, Store]) -> None:
    app = open_page(stores["small"], "run", run=_run_of(stores["small"], "outcome = 'pass'"))
    assert cells(app, "Kernels asked for") == [
        ["attention", "TRITON_ATTN", "TRITON_ATTN", "as asked"],
        ["moe", "marlin", "unknown", "unknown"],
    ]


@pytest.mark.parametrize("run", ["../../../../etc/passwd", "20261101T060000Z-ffffffff", "x" * 500, "<script>1</script>"])
def test_a_run_that_is_none_of_ours_is_refused(open_page: Open, stores: dict[str, Store], run: str) -> None:
    app = open_page(stores["small"], "run", run=run)
    assert not app.exception
    assert len(app.error) == 1
    assert not any(grid["caption"] == "Server log" for grid in grids(app))


def test_a_boot_that_runs_is_shown_as_running(open_page: Open, stores: dict[str, Store]) -> None:
    app = open_page(stores["small"], "node")
    assert cells(app, "Boots that run now")[0][1] == "▸ coherence"
    assert "running, in phase coherence" in texts(open_page(stores["small"], "run", run=_run_of(stores["small"], "outcome IS NULL")))


def test_compare_says_what_else_changed(open_page: Open, stores: dict[str, Store]) -> None:
    app = open_page(stores["small"], "compare", engine="vllm", a="0.31.0", b="0.33.0")
    assert cells(app, "Cells of both sides")[0][1] == "? confounded"
    assert cells(app, "What else changed") == [["gpt-oss-120b on flashinfer", "driver (590.48 -> 595.10)"]]


def test_compare_tells_outcomes_at_once_and_verdicts_when_they_are_judged(
    open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases = ("0.31.0", "0.32.0", "0.33.0")
    store = made(tmp_path, [Planned(version=one, decode=50.0 - 10 * (one == "0.33.0")) for one in releases for _ in range(3)])
    judge, asked = threading.Event(), threading.Event()

    def slow(store: Store, question: Question, most_judged: int = MOST_JUDGED) -> list[ComparedCell]:
        if most_judged:
            asked.set()
            judge.wait(60)
        return compare(store, question, most_judged)

    monkeypatch.setattr(source, "compare", slow)
    app = open_page(store, "compare", engine="vllm", a="0.31.0", b="0.33.0")
    assert asked.wait(60)
    assert "1 cell being judged now" in texts(app)
    (told,) = cells(app, "Cells of both sides")
    assert (told[1], told[4], told[5]) == ("–", "-19.9 %", "pass -> pass; not judged yet")
    judge.set()
    now = source.state()
    assert now is not None
    source._judging(now, Question("vllm", "0.31.0", "0.33.0")).result(60)
    app.run()
    assert "being judged" not in texts(app)
    (judged,) = cells(app, "Cells of both sides")
    assert judged[1] == "… inconclusive"
    assert "not yet confirmed" in judged[5]


@pytest.mark.parametrize("axis", ["node", "backend"])
def test_nodes_and_backends_are_put_side_by_side_without_a_verdict(open_page: Open, stores: dict[str, Store], axis: str) -> None:
    app = open_page(stores["small"], "compare", engine="vllm", axis=axis, release="0.33.0")
    assert not app.exception
    if axis == "backend":
        rows = {row[0].split(" | ")[0]: row for row in cells(app, "Cells of both sides")}
        assert rows["gpt-oss-120b"][1] == "–"
        assert rows["gpt-oss-120b"][4] in ("+19.9 %", "-16.6 %")


def test_the_ledger_says_where_a_failure_was_seen_and_gone_and_links_its_issue(open_page: Open, stores: dict[str, Store]) -> None:
    app = open_page(stores["small"], "changes")
    ledger = next(grid for grid in grids(app) if grid["caption"] == "Failures by signature")
    (row,) = ledger["rows"]
    assert [row[1]["t"], row[2]["t"]] == ["0.32.0", "0.33.0"]
    assert row[5]["h"] == "https://github.com/vllm-project/vllm/issues/12345"


def test_every_view_has_its_rows_and_their_sql(open_page: Open, stores: dict[str, Store]) -> None:
    app = open_page(stores["small"], "matrix", engine="vllm")
    assert [drawer.label for drawer in app.expander] == ["Rows behind this"]


@pytest.mark.parametrize("page", PAGES)
def test_no_text_from_outside_is_drawn_as_markdown(open_page: Open, stores: dict[str, Store], page: str) -> None:
    app = open_page(stores["hostile"], page)
    drawn = [*app.markdown, *app.caption, *app.header, *app.title, *app.subheader, *app.info, *app.warning]
    for element in drawn:
        assert not any(text[:20] in element.value for text in HOSTILE.values())
    labels = [widget.label for widget in (*app.selectbox, *app.text_input, *app.button, *app.expander)]
    assert not any(text[:20] in label for text in HOSTILE.values() for label in labels)


def test_hostile_names_reach_the_table_as_they_are_written(open_page: Open, stores: dict[str, Store]) -> None:
    app = open_page(stores["hostile"], "matrix", engine="vllm")
    names = [row[0].split(" | ")[0] for row in cells(app, "Outcomes")]
    assert HOSTILE["markup"] in names
    assert HOSTILE["sql"] in names
    assert not any("\x1b" in name or "\u202e" in name for name in names)


@pytest.mark.parametrize("engine", [name for name in HOSTILE if name != "long"])
def test_a_hostile_cell_is_found_by_its_permalink(open_page: Open, stores: dict[str, Store], engine: str) -> None:
    name = HOSTILE[engine].replace("\x00", "")
    app = open_page(stores["hostile"], "cell", engine="vllm", recipe=name, backend=name, node=name)
    assert not app.exception
    assert app.query_params["recipe"] == name
    assert len(cells(app, "Boots of this cell")) == 2


def test_a_store_of_an_older_data_model_says_what_to_do(open_page: Open, stores: dict[str, Store], tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.writing() as connection:
        connection.execute("UPDATE schema_version SET version = 1")
    app = open_page(store, "today")
    assert not app.exception
    assert "sparkproof db vacuum" in texts(app)


def test_a_file_that_is_no_database_says_what_to_do(open_page: Open, tmp_path: Path) -> None:
    (tmp_path / "sparkproof.duckdb").write_bytes(b"not a database at all" * 100)
    app = open_page(Store(tmp_path), "today")
    assert not app.exception
    assert "sparkproof rebuild" in texts(app)


def test_the_numbers_of_an_interrupted_boot_are_in_no_median(open_page: Open, tmp_path: Path) -> None:
    stopped = Planned(outcome=Outcome.INTERRUPTED, decode=10.0)
    app = open_page(made(tmp_path, [Planned(decode=50.0), stopped]), "matrix", engine="vllm")
    assert cells(app, "Outcomes")[0][2].startswith("✓ 50.2")


def test_sixty_releases_by_forty_rows_are_all_in_the_matrix_and_can_be_searched(open_page: Open, tmp_path: Path) -> None:
    store = wide(tmp_path)
    (table,) = grids(open_page(store, "matrix"))
    assert len(table["rows"]) == WIDE_ROWS
    assert {len(row) for row in table["rows"]} == {2 + WIDE_RELEASES} == {len(table["columns"])}
    assert [column["t"] for column in table["columns"]][2::59] == ["0.60.0", "0.1.0"]
    assert len(cells(open_page(store, "matrix", q="model-07 backend-1"), "Outcomes")) == 1
    failing = [row for row in table["rows"] if row[2].get("k") == "fail"]
    assert 0 < len(failing) < WIDE_ROWS
    assert len(cells(open_page(store, "matrix", only="failing"), "Outcomes")) == len(failing)
