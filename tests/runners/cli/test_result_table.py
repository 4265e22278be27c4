from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from results.store import Store
from results.summary import CellSummary, Previous, Spread
from runners.cli.result_table import as_json, overhead_s, render

CELL = CellSummary(
    engine="vllm",
    engine_version="0.32.0",
    recipe_name="canary-dense",
    backend_name="eager",
    outcome="pass",
    outcomes={"pass": 1},
    reason=None,
    launch_bound=True,
    decode_tok_s=Spread(135.2, 112.0, 158.0, 5),
    aggregate_tok_s=None,
    ttft_s=Spread(0.026, 0.02, 0.03, 5),
    memory_used_bytes=3 << 30,
    max_model_len=2048,
    kv_cache_tokens=524288,
    kernels={"attention": "unknown", "graph_mode": "eager"},
    configured={"graph_mode": "eager"},
    gate_prompts=89,
    gate_matched=89,
    phase_s={"install": 20.0, "launch": 1.0, "ready": 40.0, "coherence": 15.0, "throughput": 30.0},
    previous=Previous("0.31.0", "pass", "faster", "decode_tok_s is +10.0%", "0.31.0", 0.1),
    run_ids=("20261130T130501Z-1f00ab42",),
)


def _shown(cell: CellSummary, width: int = 140) -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    console.print(render([cell], Store(Path("store"))))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_canary_rate_is_marked_and_explained() -> None:
    shown = _shown(CELL)
    assert "135*" in shown and "112–158" in shown
    assert "launch-bound" in shown
    assert "+10.0% vs 0.31.0" in shown
    assert "unknown: attention" in shown


def test_a_reason_cannot_write_markup_or_escapes_to_the_terminal() -> None:
    shown = _shown(dataclasses.replace(CELL, outcome="wrong", reason="[red]x[/red] \x1b[31mred"))
    assert "[red]x[/red] red" in shown
    assert "\x1b[31m" not in shown


def test_overhead_leaves_out_installing_and_the_engines_start() -> None:
    assert overhead_s(CELL) == 45.0


def test_only_files_that_the_boot_made_are_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = store.boots / CELL.run_ids[0]
    folder.mkdir(parents=True)
    console = Console(width=300, file=io.StringIO(), highlight=False)
    console.print(render([CELL], store))
    (folder / "server.log").touch()
    console.print(render([CELL], store))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert shown.count(f"log {folder / 'server.log'}") == 1 and "serve script" not in shown


def test_published_rates_stand_beside_the_measurement_with_their_source() -> None:
    gpt_oss = dataclasses.replace(CELL, recipe_name="gpt-oss-120b")
    assert "claimed elsewhere" in _shown(gpt_oss)
    claims = as_json([gpt_oss], Store(Path("store")), 0)["cells"][0]["claims"]
    assert claims and all(claim["source"] and claim["engine"] == "vllm" for claim in claims)
    assert as_json([CELL], Store(Path("store")), 0)["cells"][0]["claims"] == []


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_change_is_never_cut_off_however_narrow_the_terminal(width: int) -> None:
    table = _shown(CELL, width).split("* launch-bound")[0]
    assert table.count("┓") == 1, "the table's right border is there"
    change = "".join(line.rsplit("│", 2)[-2] for line in table.splitlines() if line.count("│") > 2)
    assert "".join(change.split()) == "+10.0%vs0.31.0,faster"


@pytest.mark.parametrize(
    ("previous", "said"),
    [
        (None, "first version here"),
        (Previous("0.31.0", "pass", "broke", "", "0.31.0", None), "broke: 0.31.0 was pass"),
        (Previous("0.31.0", "pass", "unchanged", "", "0.31.0", 0.004), "+0.4% vs 0.31.0, unchanged"),
        (Previous("0.31.0", "pass", "unchanged", "", "0.31.0", None), "as 0.31.0, unchanged"),
        (Previous("0.31.0", "pass", "inconclusive", "", "0.30.0", -0.08), "-8.0% vs 0.30.0, inconclusive"),
        (Previous("0.31.0", "crash", None, "", None, None), "no evidence; 0.31.0 was crash"),
    ],
)
def test_the_change_is_what_the_stored_verdict_says(previous: Previous | None, said: str) -> None:
    shown = _shown(dataclasses.replace(CELL, previous=previous), 250)
    assert said in shown
