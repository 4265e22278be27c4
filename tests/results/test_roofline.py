"""The share of the memory's bandwidth that a decode rate amounts to, and the alarm for what no memory can deliver."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.boot_folder import BootSummary
from results.records import HealthRecord, RecipeRecord, RunRecord, SampleRecord
from results.roofline import rooflines_of
from results.schema import create
from results.store import Store
from results.summary import summarise
from suites.kv_cache import KV_BITS, KvShape, kv_bytes
from suites.recipes import Recipe, Source, recipe_for
from suites.recipes.knowledge import Weights
from suites.roofline import LEAST_BYTES
from tests.results.conftest import NODE, MakeBoot

LLAMA = recipe_for("shape-llama-3.1-8b-fp8")
PROMPT, ANSWER = 128, 256


def _boot(
    store: Store,
    make_boot: MakeBoot,
    recipe: Recipe = LLAMA,
    *,
    rate: float = 30.0,
    probe: float | None = 250.0,
    percent_of_nominal: float | None = None,
    launch_bound: bool = False,
    **fields: Any,
) -> str:
    """One stored boot of `recipe` with decode samples at `rate` and a probe of `probe` GB/s."""
    folder = make_boot(decode=(), recipe_id=recipe.recipe_id, recipe_name=recipe.name, **fields)
    run: RunRecord = folder.read().summary.run
    record = RecipeRecord(recipe.recipe_id, recipe.name, recipe.model, None, None, recipe.kind, recipe.model_dump(mode="json"))
    folder.write_summary(BootSummary(dataclasses.replace(run, weights="dummy" if recipe.dummy else "real"), NODE, recipe=record))
    sizes = {"prompt_tokens": PROMPT, "completion_tokens": ANSWER}
    sample = SampleRecord(run.run_id, "decode_c1", 0, 0, 1, cold=False, launch_bound=launch_bound, decode_tok_s=rate, **sizes)  # type: ignore[arg-type]
    folder.append([sample])
    for moment, found in (("before", probe), ("after", None if probe is None else probe * 0.9)):
        row = HealthRecord(run.run_id, run.started_at, moment, "ok", bandwidth_gb_s=found, percent_of_nominal=percent_of_nominal)
        folder.append([row])
    store.ingest(folder)
    return run.run_id


def _model(active: int = 10**9, bound: str = "exact", kv: KvShape | None = None, name: str = "m") -> Recipe:
    weights = Weights(total_bytes=active, active_bytes=active, bound=bound, derivation="a test's own number", source="test")
    return Recipe(name=name, kind="model", source=Source(path="/x"), weights=weights, kv=kv)


def test_the_share_is_rate_times_bytes_over_the_best_probe_of_the_boot(store: Store, make_boot: MakeBoot) -> None:
    (found,) = rooflines_of(store, [_boot(store, make_boot, percent_of_nominal=91.575)])
    assert LLAMA.weights is not None and LLAMA.kv is not None and LLAMA.weights.active_bytes is not None
    size = LLAMA.weights.active_bytes + (kv_bytes(LLAMA.kv, PROMPT + ANSWER // 2) or 0)
    assert (found.bytes_per_token, found.bandwidth_gb_s, found.bound) == (size, 250.0, "exact")
    assert found.percent == pytest.approx(100 * 30.0 * size / 250e9)
    assert found.percent_of_nominal == pytest.approx(100 * 30.0 * size / 273e9, rel=1e-4)
    assert not found.alarm
    assert "97 % of 250 GB/s (this node's probe), 89 % of 273 GB/s (data sheet)" in found.sentence


_SHAPES = st.builds(
    KvShape,
    full_layers=st.integers(0, 80),
    sliding_layers=st.integers(0, 80),
    sliding_window=st.integers(1, 1000),
    kv_heads=st.integers(1, 16),
    head_dim=st.sampled_from([64, 128, 256]),
    latent_layers=st.integers(0, 60),
    latent_dim=st.integers(1, 1000),
    source=st.just("test"),
)


@pytest.fixture(scope="module")
def bare() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory with one timed boot whose recipe is still to be said."""
    with duckdb.connect() as connection:
        create(connection)
        run = {"run_id": "a", "recipe_id": "r", "in_process": False, "started_at": "2026-11-30", "protocol_version": 1}
        run |= dict.fromkeys(
            ("session_id", "cell_id", "series_id", "engine", "engine_version", "distribution", "recipe_name", "backend_name", "node_id"),
            "x",
        )
        run |= {"phase": "teardown", "purpose": "measure", "weights": "real", "actual": "{}"}
        connection.execute(f"INSERT INTO runs ({', '.join(run)}) VALUES ({', '.join('?' * len(run))})", list(run.values()))
        connection.execute(
            "INSERT INTO stored_medians (run_id, workload, concurrency, launch_bound, samples, decode_tok_s, prompt_tokens,"
            f" completion_tokens) VALUES ('a', 'decode_c1', 1, false, 1, 30.0, {PROMPT}, {ANSWER})"
        )
        yield connection


@given(shape=_SHAPES, dtype=st.sampled_from([*KV_BITS, "something_else"]))
@settings(deadline=None, max_examples=60)
def test_the_view_counts_the_cache_as_the_memory_check_does(bare: duckdb.DuckDBPyConnection, shape: KvShape, dtype: str) -> None:
    bare.execute("UPDATE runs SET configured = ?", [json.dumps({"kv_cache_dtype": dtype})])
    bare.execute("DELETE FROM recipes")
    definition = _model(kv=shape).model_dump_json()
    bare.execute("INSERT INTO recipes (recipe_id, name, model, kind, definition) VALUES ('r', 'm', 'm', 'model', ?)", [definition])
    ((found,),) = bare.execute("SELECT kv_bytes FROM rooflines").fetchall()
    assert abs(found - (kv_bytes(shape, PROMPT + ANSWER // 2, dtype) or 0)) <= 1


@pytest.mark.parametrize(
    ("rate", "more", "alarm"),
    [
        (249.0, {}, False),
        (262.0, {}, False),  # within the 5 % that two probes may differ by
        (263.0, {}, True),
        (300.0, {"command": ("vllm", "--speculative-config", "{}")}, False),
        (300.0, {"probe": None}, False),
        (255.0, {"percent_of_nominal": 99.0}, True),  # above the data sheet
    ],
)
def test_what_no_memory_can_deliver_is_an_alarm(store: Store, make_boot: MakeBoot, rate: float, more: dict[str, Any], alarm: bool) -> None:
    (found,) = rooflines_of(store, [_boot(store, make_boot, _model(), rate=rate, **more)])
    assert found.alarm is alarm
    assert ("ALARM" in found.sentence) is alarm


def test_an_estimated_size_is_called_one_and_raises_no_alarm(store: Store, make_boot: MakeBoot) -> None:
    (found,) = rooflines_of(store, [_boot(store, make_boot, _model(bound="about"), rate=500.0)])
    assert found.percent == pytest.approx(200.0) and not found.alarm
    assert "about 1 GB a token" in found.sentence


def test_a_model_that_may_come_from_a_cache_has_no_roofline(store: Store, make_boot: MakeBoot) -> None:
    small = _boot(store, make_boot, _model(LEAST_BYTES - 1, name="small"), started_at="2026-11-30T13:00:00+00:00")
    canary = _boot(store, make_boot, _model(LEAST_BYTES), launch_bound=True, started_at="2026-11-30T14:00:00+00:00")
    large = _boot(store, make_boot, _model(LEAST_BYTES), started_at="2026-11-30T15:00:00+00:00")
    assert [found.run_id for found in rooflines_of(store, [small, canary, large])] == [large]


def test_the_summary_of_a_cell_carries_weights_and_roofline(store: Store, make_boot: MakeBoot) -> None:
    (cell,) = summarise(store, [_boot(store, make_boot)])
    assert cell.weights == "dummy"
    assert cell.roofline is not None and cell.roofline.percent == pytest.approx(97.0, abs=0.5)


def test_dummy_and_real_weights_of_one_model_never_share_a_history(store: Store, make_boot: MakeBoot) -> None:
    _boot(store, make_boot)
    _boot(store, make_boot, _model(), started_at="2026-11-30T14:00:00+00:00")
    rows = store.query("SELECT count(DISTINCT history_id) AS histories, count(DISTINCT weights) AS weights FROM boots")
    assert rows == [{"histories": 2, "weights": 2}]
    assert store.query("SELECT recipe_name, weights FROM matrix ORDER BY weights") == [
        {"recipe_name": LLAMA.name, "weights": "dummy"},
        {"recipe_name": "m", "weights": "real"},
    ]
